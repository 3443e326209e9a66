// SPDX-License-Identifier: GPL-2.0-only
/*
 * Patches the system calls of arm64, for ../patch.c.
 *
 * Theory of operation
 *
 * An instruction and a jump both have four bytes, and a jump reaches 128 MB. So
 * each `svc #0` becomes a jump to a trampoline of its own, whatever the call
 * number. The number is in x8, and entry.S decides on it when the call is made.
 * This does not depend on the surrounding code of the compiler, and jumps to
 * the instruction from elsewhere still work.
 *
 * The only `svc` left alone follows `mov x8, #rt_sigreturn`: unwinders
 * recognize signal frames by these two instructions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/preload/internal.h"
#include "engine/preload/patch.h"

#define INSN_SVC	0xd4000001U
#define INSN_JUMP	0x14000000U
#define INSN_SIGRETURN	(0xd2800008U | SYS_rt_sigreturn << 5)

const long arch_reach = 127L << 20;

void preload_entry(void);
extern HIDDEN const unsigned char preload_tramp[];
extern HIDDEN const struct {
	uint32_t len, jump, data;
} preload_tramp_at;

/** jump - the instruction that jumps from @from to @to */
static uint32_t jump(const unsigned char *from, const unsigned char *to)
{
	return INSN_JUMP | ((uint32_t)((to - from) >> 2) & 0x3ffffff);
}

/** trampoline - make the trampoline for the call at @p */
static unsigned char *trampoline(const unsigned char *p)
{
	unsigned char *tramp = pool_take(preload_tramp_at.len), *at;
	const uintptr_t data[2] = { (uintptr_t)preload_entry, (uintptr_t)p + 4 };
	uint32_t insn;

	if (!tramp)
		return NULL;
	memcpy(tramp, preload_tramp, preload_tramp_at.len);
	memcpy(tramp + preload_tramp_at.data, data, sizeof(data));
	at = tramp + preload_tramp_at.jump;
	insn = jump(at, p + 4);
	memcpy(at, &insn, sizeof(insn));
	return tramp;
}

int arch_patch(const struct text *t)
{
	const unsigned char *p;
	unsigned char *tramp;
	uint32_t insn, before = 0;
	int n = 0;

	for (p = t->start; p + 4 <= t->end; p += 4, before = insn) {
		memcpy(&insn, p, sizeof(insn));
		if (insn != INSN_SVC || before == INSN_SIGRETURN)
			continue;
		tramp = trampoline(p);
		if (!tramp)
			return -ENOMEM;
		insn = jump(p, tramp);
		memcpy(text_at(t, p), &insn, sizeof(insn));
		insn = INSN_SVC;
		n++;
	}
	return n;
}
