// SPDX-License-Identifier: GPL-2.0-only
/*
 * Patches the system calls of the C library.
 *
 * Theory of operation
 *
 * Not functions are replaced but `syscall` instructions: whatever the C library
 * does for itself - the resolver's sockets, the close() inside getifaddrs(),
 * stdio, posix_spawn - is seen too, errno, cancellation and restarts stay its
 * own, and one table by call number serves all (dispatch.c).
 *
 * An instruction of two bytes has no room for a jump of five. Three ways, tried in
 * this order:
 *
 * - `mov $NR, %eax; syscall`, seven bytes: a jump takes the place of the first,
 *   and its trampoline loads the number. Only where the number is of interest.
 * - `syscall; cmp $-4095, %rax` (or its kin): the jump takes the place of both,
 *   and the trampoline compares afterwards.
 * - elsewhere, when a number of interest was loaded shortly before and what lies
 *   between does the same anywhere: the trampoline does all of it.
 *
 * Nothing jumps between the two instructions of a pair in C libraries as they are
 * compiled; clone, vfork and sigreturn are not of interest and stay untouched.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#define POOL_SIZE	(256UL << 10)
#define TRAMP_SIZE	64
#define REACH		0x7ff00000L	/* of a jump, with something to spare */

void preload_entry(void);

/**
 * struct text - the executable part of the C library
 * @fn: an address in it, to find it by
 * @start, @end: where it is
 */
struct text {
	uintptr_t fn;
	unsigned char *start, *end;
};

static unsigned char *pool, *pool_next;

/** find_text - dl_iterate_phdr() callback */
static int find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct text *t = arg;
	int i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_LOAD && (ph->p_flags & PF_X) &&
		    t->fn >= start && t->fn < start + ph->p_memsz) {
			t->start = (unsigned char *)start;
			t->end = t->start + ph->p_memsz;
			return 1;
		}
	}
	return 0;
}

/** pool_make - memory for trampolines where jumps from @t reach it */
static int pool_make(const struct text *t)
{
	uintptr_t at = (uintptr_t)t->start & ~0xfffffUL;
	long away;

	for (away = 0x100000; away < REACH / 2; away += 0x100000) {
		void *p = mmap((void *)(at - (uintptr_t)away), POOL_SIZE,
			       PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		long d;

		if (p == MAP_FAILED)
			return -errno;
		d = (long)((uintptr_t)p - (uintptr_t)t->start);
		if (d < REACH && d > -REACH) {
			pool = pool_next = p;
			return 0;
		}
		munmap(p, POOL_SIZE);
	}
	return -ENOMEM;
}

/** put_jump - a jump of five bytes at @at, written to @buf */
static void put_jump(unsigned char *buf, const unsigned char *at,
		     const unsigned char *to)
{
	int32_t rel = (int32_t)(to - (at + 5));

	buf[0] = 0xe9;
	memcpy(buf + 1, &rel, sizeof(rel));
}

/**
 * trampoline - code that goes to preload_entry and comes back
 * @head: @head_len bytes to execute before
 * @tail: @tail_len bytes to execute afterwards
 * @back: where to go on
 */
static unsigned char *trampoline(const unsigned char *head, size_t head_len,
				 const unsigned char *tail, size_t tail_len,
				 const unsigned char *back)
{
	unsigned char *p = pool_next, *start = p;
	uintptr_t entry = (uintptr_t)preload_entry, after = (uintptr_t)back;

	if (p + TRAMP_SIZE > pool + POOL_SIZE)
		return NULL;
	pool_next += TRAMP_SIZE;
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

/** wanted - whether a call is ever anything but the host's */
static bool wanted(uint32_t nr)
{
	return nr < ENTRY_CALLS && preload_class[nr] != CLASS_HOST;
}

/**
 * movable - length of an instruction that does the same anywhere, or 0
 *
 * The few that compilers put between the load of a number and the call: a move,
 * an addition, a lea, with a register or memory but not relative to itself.
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
 * load_before - where a number of interest is loaded into eax, and nothing but
 * movable instructions lies between that and @p; or NULL
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
 * patch_one - the two bytes at @p look like `syscall`
 *
 * Returns how many bytes were patched from @p on, 0: left alone, or a negative
 * errno.
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
		put_jump(p - 5, p - 5, tramp);
		return 2;
	}
	if (cmp) {
		tramp = trampoline(NULL, 0, p + 2, cmp, p + 2 + cmp);
		if (!tramp)
			return -ENOMEM;
		put_jump(p, p, tramp);
		return 2 + (int)cmp;
	}
	load = load_before(p, t->start);
	if (!load)
		return 0;
	tramp = trampoline(load, (size_t)(p - load), NULL, 0, p + 2);
	if (!tramp)
		return -ENOMEM;
	put_jump(load, load, tramp);
	return 2;
}

/** say - an error for preload_prepare()'s caller */
static int say(char *err, size_t errlen, int ret, const char *what)
{
	snprintf(err, errlen, "%s: %s", what, strerror(-ret));
	return ret;
}

/**
 * patch_libc - patch every system call of interest
 *
 * The caller is the only thread.
 */
int patch_libc(char *err, size_t errlen)
{
	struct text t = { .fn = (uintptr_t)dlsym(RTLD_DEFAULT, "recvfrom") };
	unsigned char *page, *p;
	size_t len;
	int ret, n = 0;

	if (!t.fn || !dl_iterate_phdr(find_text, &t))
		return say(err, errlen, -ENOEXEC,
			   "finding the code of the C library");
	ret = pool_make(&t);
	if (ret)
		return say(err, errlen, ret,
			   "finding room near the C library");
	page = (unsigned char *)((uintptr_t)t.start & ~4095UL);
	len = (size_t)(t.end - page);
	if (mprotect(page, len, PROT_READ | PROT_WRITE | PROT_EXEC))
		return say(err, errlen, -errno,
			   "making the C library's code writable");
	for (p = t.start; p + 16 < t.end; p++) {
		if (p[0] != 0x0f || p[1] != 0x05)
			continue;
		ret = patch_one(p, &t);
		if (ret < 0)
			break;
		n += ret > 0;
		p += ret > 0 ? ret - 1 : 1;
	}
	if (mprotect(page, len, PROT_READ | PROT_EXEC) ||
	    mprotect(pool, POOL_SIZE, PROT_READ | PROT_EXEC))
		return say(err, errlen, -errno, "protecting code again");
	if (ret < 0)
		return say(err, errlen, ret, "patching the C library");
	if (n < 50)	/* statically linked, or no C library we know */
		return say(err, errlen, -ENOEXEC,
			   "finding the system calls of the C library");
	return 0;
}
