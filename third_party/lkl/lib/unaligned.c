// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unaligned loads and stores on 32-bit Arm.
 *
 * ldm, stm, ldrd and strd need an address that is a multiple of 4, and an IP
 * header behind an Ethernet header may not have one. The Arm kernel relies on
 * its own fault handler, which carries out the instruction; this file does the
 * same. The kernel here is ARM code throughout, so these four instructions are
 * all.
 */
#include "internal.h"

#ifdef __arm__
#include <string.h>

#define PC		15
#define PSR_T		0x20u

static unsigned long word_at(unsigned long addr)
{
	unsigned long word;

	memcpy(&word, (const char *)addr, sizeof(word));
	return word;
}

static void move(unsigned long *reg, unsigned long addr, int load)
{
	if (load)
		memcpy(reg, (const char *)addr, sizeof(*reg));
	else
		memcpy((char *)addr, reg, sizeof(*reg));
}

/* ldm, stm: bits 24 to 20 are "before", "up", "user", "write back", "load" */
static int multiple(unsigned long insn, unsigned long *r)
{
	unsigned int base = insn >> 16 & 15, list = insn & 0xffff, i;
	unsigned int size = __builtin_popcount(list) * 4;
	int before = insn >> 24 & 1, up = insn >> 23 & 1, load = insn >> 20 & 1;
	unsigned long old = r[base], at = up ? old : old - size;

	if (insn & 1 << 22 || list & 1 << PC)
		return 0;
	if (before == up)
		at += 4;
	for (i = 0; i < PC; i++)
		if (list & 1 << i) {
			move(&r[i], at, load);
			at += 4;
		}
	if (insn & 1 << 21 && !(load && list & 1 << base))
		r[base] = up ? old + size : old - size;
	return 1;
}

/* ldrd, strd: bits 24 to 21 are "before", "up", "immediate", "write back" */
static int pair(unsigned long insn, unsigned long *r)
{
	unsigned int base = insn >> 16 & 15, first = insn >> 12 & 15;
	int before = insn >> 24 & 1, load = !(insn & 0x20);
	unsigned long offset = insn & 1 << 22 ? (insn >> 4 & 0xf0) | (insn & 15) :
			       r[insn & 15];
	unsigned long old = base == PC ? r[PC] + 8 : r[base];
	unsigned long new = insn & 1 << 23 ? old + offset : old - offset;
	unsigned long at = before ? new : old;

	if (first & 1 || first == 14)
		return 0;
	move(&r[first], at, load);
	move(&r[first + 1], at + 4, load);
	if (!before || insn & 1 << 21)
		r[base] = new;
	return 1;
}

/**
 * fault_unaligned - carry out the instruction that faulted on an unaligned
 * address
 *
 * Returns 1 if done, so execution continues behind it; 0 if the instruction is
 * unknown.
 */
int fault_unaligned(ucontext_t *uc)
{
	unsigned long *r = &uc->uc_mcontext.arm_r0, insn;
	int done = 0;

	if (uc->uc_mcontext.arm_cpsr & PSR_T)
		return 0;
	insn = word_at(r[PC]);
	if (insn >> 28 == 15)	/* an instruction without a condition */
		return 0;
	if ((insn & 0x0e000000) == 0x08000000)
		done = multiple(insn, r);
	else if ((insn & 0x0e1000d0) == 0x000000d0)
		done = pair(insn, r);
	if (done)
		r[PC] += 4;
	return done;
}
#else
/* Other CPUs support unaligned access. */
int fault_unaligned(ucontext_t *uc)
{
	(void)uc;
	return 0;
}
#endif
