// SPDX-License-Identifier: GPL-2.0-only
/*
 * Patches the system calls of x86-64, for ../patch.c.
 *
 * Theory of operation
 *
 * A jump has five bytes and does not fit in the two of `syscall`. There are
 * three ways, tried in this order:
 *
 * - `mov $NR, %eax; syscall`, seven bytes: the jump replaces both, and the
 *   trampoline loads the number. This applies only if the number is of
 *   interest.
 * - `syscall; cmp $-4095, %rax` (or a variant): the jump replaces both, and the
 *   trampoline makes the comparison afterwards.
 * - Otherwise, if a number of interest was loaded shortly before and the
 *   instructions in between can be moved: the trampoline executes all of them.
 *
 * Compiled C libraries contain no jump to the second instruction of a pair.
 * clone, vfork and sigreturn are not of interest and stay unchanged.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "engine/preload/internal.h"
#include "engine/preload/patch.h"

#define TRAMP_SIZE	64

const long arch_reach = 0x7ff00000L;

void preload_entry(void);

/** put_jump - write a five-byte jump, which will be at the address @at, to @buf */
static void put_jump(unsigned char *buf, const unsigned char *at,
		     const unsigned char *to)
{
	int32_t rel = (int32_t)(to - (at + 5));

	buf[0] = 0xe9;
	memcpy(buf + 1, &rel, sizeof(rel));
}

/**
 * trampoline - make code that calls preload_entry and returns
 * @head: @head_len bytes to execute before the call
 * @tail: @tail_len bytes to execute after it
 * @back: where to continue
 */
static unsigned char *trampoline(const unsigned char *head, size_t head_len,
				 const unsigned char *tail, size_t tail_len,
				 const unsigned char *back)
{
	unsigned char *p = pool_take(TRAMP_SIZE), *start = p;
	uintptr_t entry = (uintptr_t)preload_entry, after = (uintptr_t)back;

	if (!p)
		return NULL;
	if (tail_len) {
		memcpy(p, tail, tail_len);
		put_jump(p + tail_len, p + tail_len, back);
		after = (uintptr_t)p;
		p += tail_len + 5;
		start = p;
	}
	if (head_len)
		memcpy(p, head, head_len);
	p += head_len;
	*p++ = 0x49;			/* movabs $after, %r11 */
	*p++ = 0xbb;
	memcpy(p, &after, 8);
	p += 8;
	*p++ = 0x48;			/* movabs $entry, %rcx */
	*p++ = 0xb9;
	memcpy(p, &entry, 8);
	p += 8;
	*p++ = 0xff;			/* jmp *%rcx */
	*p++ = 0xe1;
	return start;
}

/** wanted - whether the call may concern the stack */
static bool wanted(uint32_t nr)
{
	return nr < ENTRY_CALLS && preload_class[nr] != CLASS_HOST;
}

/**
 * movable - length of an instruction that can be moved, or 0
 *
 * These are the instructions that compilers put between the load of a number
 * and the call: a move, an addition or a lea, with registers or memory that is
 * not relative to rip.
 */
static int movable(const unsigned char *p)
{
	int len = 2, mod, rm;

	if ((*p & 0xf0) == 0x40) {
		p++;
		len++;
	}
	if (*p != 0x8b && *p != 0x89 && *p != 0x83 && *p != 0x31 && *p != 0x8d)
		return 0;
	mod = p[1] >> 6;
	rm = p[1] & 7;
	if (mod == 0 && rm == 5)
		return 0;
	if (mod != 3 && rm == 4)
		len++;
	if (mod == 1)
		len++;
	if (mod == 2)
		len += 4;
	if (*p == 0x83)
		len++;
	return len;
}

/**
 * load_before - find the instruction that loads a number of interest into eax,
 * if only movable instructions lie between it and @p; or NULL
 */
static unsigned char *load_before(unsigned char *p, const unsigned char *start)
{
	unsigned char *q, *r;
	uint32_t nr;
	int len;

	for (q = p - 6; q >= p - 20 && q > start; q--) {
		memcpy(&nr, q + 1, sizeof(nr));
		if (*q != 0xb8 || (q[-1] & 0xf0) == 0x40 || !wanted(nr))
			continue;
		for (r = q + 5; r < p; r += len) {
			len = movable(r);
			if (!len)
				break;
		}
		if (r == p)
			return q;
	}
	return NULL;
}

/** cmp_after - length of a comparison with an error number at @p, or 0 */
static size_t cmp_after(const unsigned char *p)
{
	if (p[0] == 0x48 && p[1] == 0x3d && p[4] == 0xff && p[5] == 0xff)
		return 6;
	if (p[0] == 0x3d && p[3] == 0xff && p[4] == 0xff)
		return 5;
	return 0;
}

/**
 * patch_one - patch the call at @p, where the two bytes look like `syscall`
 *
 * Returns the number of bytes patched from @p on, 0 if left alone, or a
 * negative errno.
 */
static int patch_one(unsigned char *p, const struct text *t)
{
	unsigned char *tramp, *load;
	size_t cmp = cmp_after(p + 2);
	uint32_t nr;

	if (p - 6 >= t->start && p[-5] == 0xb8 && (p[-6] & 0xf0) != 0x40) {
		memcpy(&nr, p - 4, sizeof(nr));
		if (!wanted(nr))
			return 0;
		tramp = trampoline(p - 5, 5, NULL, 0, p + 2);
		if (!tramp)
			return -ENOMEM;
		put_jump(text_at(t, p - 5), p - 5, tramp);
		return 2;
	}
	if (cmp) {
		tramp = trampoline(NULL, 0, p + 2, cmp, p + 2 + cmp);
		if (!tramp)
			return -ENOMEM;
		put_jump(text_at(t, p), p, tramp);
		return 2 + (int)cmp;
	}
	load = load_before(p, t->start);
	if (!load)
		return 0;
	tramp = trampoline(load, (size_t)(p - load), NULL, 0, p + 2);
	if (!tramp)
		return -ENOMEM;
	put_jump(text_at(t, load), load, tramp);
	return 2;
}

int arch_patch(const struct text *t)
{
	unsigned char *p;
	int ret, n = 0;

	for (p = t->start; p + 16 < t->end; p++) {
		if (p[0] != 0x0f || p[1] != 0x05)
			continue;
		ret = patch_one(p, t);
		if (ret < 0)
			return ret;
		n += ret > 0;
		p += ret > 0 ? ret - 1 : 1;
	}
	return n;
}
