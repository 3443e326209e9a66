// SPDX-License-Identifier: GPL-2.0-only
/*
 * Patches the code of C libraries, which are files of Android systems: as many calls must
 * be found as the code has, and nothing else may change. The code is never executed.
 *
 *	patch_file LIBC...
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "engine/preload/patch.h"
#include "tests/tap.h"

#define POOL		(1UL << 20)
#define CALLS_MIN	30

/* What ARCH/patch.c and ARCH/entry.S use of the engine */
unsigned char preload_class[ENTRY_CALLS];
unsigned char *preload_kind;
static unsigned char *pool, *pool_next;

long preload_dispatch(long nr, const long *a)
{
	(void)nr;
	(void)a;
	return 0;
}

unsigned char *pool_take(size_t len)
{
	unsigned char *p = pool_next;

	if (p + len > pool + POOL)
		return NULL;
	pool_next += len;
	return p;
}

#if defined(__x86_64__)
/* syscall() has no stub, but is patched as well. */
#define OTHER_CALLS	1
/* The calls of interest have a stub each: mov $NR, %eax; syscall */
static const short wanted[] = {
	SYS_read, SYS_write, SYS_close, SYS_socket, SYS_connect, SYS_accept4,
	SYS_bind, SYS_listen, SYS_sendto, SYS_recvfrom, SYS_sendmsg,
	SYS_recvmsg, SYS_getsockopt, SYS_setsockopt, SYS_ppoll, SYS_pselect6,
	SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_fcntl, SYS_dup,
	SYS_dup3, SYS_ioctl, SYS_openat, SYS_rt_sigaction, SYS_exit_group,
	SYS_getsockname, SYS_getpeername, SYS_shutdown, SYS_readv, SYS_writev,
};

static bool is_call(const unsigned char *p)
{
	uint32_t nr;

	if (p[0] != 0xb8 || p[5] != 0x0f || p[6] != 0x05 || (p[-1] & 0xf0) == 0x40)
		return false;
	memcpy(&nr, p + 1, sizeof(nr));
	return nr < ENTRY_CALLS && preload_class[nr];
}

static bool is_jump(const unsigned char *p)
{
	return *p == 0xe9;
}

#define CALL_SIZE	7
#define STEP		1
#elif defined(__aarch64__)
#define OTHER_CALLS	0
static const short wanted[] = { SYS_read };

static uint32_t insn(const unsigned char *p)
{
	uint32_t i;

	memcpy(&i, p, sizeof(i));
	return i;
}

/* svc #0, but not after mov x8, #rt_sigreturn */
static bool is_call(const unsigned char *p)
{
	return insn(p) == 0xd4000001 && insn(p - 4) != (0xd2800008 | SYS_rt_sigreturn << 5);
}

static bool is_jump(const unsigned char *p)
{
	return insn(p) >> 26 == 5;
}

#define CALL_SIZE	4
#define STEP		4
#endif

/** all_jumps - whether each call has become a jump, and nothing else has changed */
static bool all_jumps(const struct text *t, int *calls)
{
	const unsigned char *p = t->start + STEP;
	size_t others = 0;

	*calls = 0;
	while (p + 16 < t->end) {
		if (is_call(p)) {
			if (!is_jump(text_at(t, p)))
				return false;
			++*calls;
			p += CALL_SIZE;
			continue;
		}
		others += memcmp(p, text_at(t, p), STEP) != 0;
		p += STEP;
	}
	return others <= OTHER_CALLS * 8;
}

static bool load(const char *path, struct text *t)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), i;
	unsigned char *file;
	const Elf64_Ehdr *eh;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return false;
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (file == MAP_FAILED)
		return false;
	eh = (void *)file;
	for (i = 0; i < eh->e_phnum; i++) {
		const Elf64_Phdr *ph = (void *)(file + eh->e_phoff + (size_t)i * eh->e_phentsize);

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X))
			continue;
		t->page = t->start = file + ph->p_offset;
		t->end = t->start + ph->p_filesz;
		t->len = ph->p_filesz;
	}
	/* The trampolines must be within reach of the code. */
	pool = pool_next = mmap(file - POOL, POOL, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	t->copy = mmap(NULL, t->len + 16, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(t->copy, t->page, t->len);
	return t->start && pool != MAP_FAILED;
}

int main(int argc, char **argv)
{
	size_t i;
	int arg, n, calls;

	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		preload_class[wanted[i]] = CLASS_LOOK;
	for (arg = 1; arg < argc; arg++) {
		struct text t = { 0 };

		if (!ok(load(argv[arg], &t), "%s has code", argv[arg]))
			continue;
		n = arch_patch(&t);
		ok(n >= CALLS_MIN, "%d calls are patched", n);
		ok(all_jumps(&t, &calls), "each call is a jump now, and the rest is unchanged");
		ok(n >= calls && n <= calls + OTHER_CALLS,
		   "and no others: %d stubs are in the code", calls);
	}
	return tap_end();
}
