// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clocks that a program reads without a system call.
 *
 * Theory of operation
 *
 * The functions below replace those of the vDSO in a program's memory. They read
 * the time from a page at CLOCK_PAGE, which belongs to the process alone. The
 * first read maps it, and this process writes the time to it before a thread goes
 * on, if it has passed. So all that a program reads depends on virtual time only.
 *
 * Time must pass for programs that only poll a clock. Therefore the page has the
 * number of reads that are left: after CLOCK_READS without a wait, a function
 * makes the system call, which takes time. While a new thread and its creator run
 * at the same time, no reads are left, because their order would decide which of
 * them makes the call.
 *
 * A node without a coordinator has no page: it runs packetdrill, whose scripts
 * expect that time passes between two calls.
 *
 * The page is writable for the count. A program that writes to it changes only
 * its own memory: this process never reads it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "virtual/virtual.h"

#define CLOCK_PAGE	0x300000000000	/* far from what the host's kernel maps */
#define CLOCK_READS	4096
#define VDSO_SIZE	8192
#define SPENT		1	/* third argument of the call: no reads are left */
#define STR2(x)		#x
#define STR(x)		STR2(x)

/* At CLOCK_PAGE; the functions know the offsets. */
struct page {
	uint32_t reads, unused;
	uint64_t real_s, real_ns, mono_s, mono_ns, real_us;
};

/*
 * The last byte of a function says whether the page exists: 0: nobody has tried,
 * 1: yes, 2: no. The third argument of clock_gettime() is the result of mmap() if
 * this call follows it.
 */
__asm__(
	".pushsection .rodata\n"
	"clock_gettime_begin:\n"
	"	cmpb	$1, 9f(%rip)\n"
	"	jb	6f\n"
	"	ja	4f\n"
	"	movabs	$" STR(CLOCK_PAGE) ", %rdx\n"
	"	cmpl	$11, %edi\n"
	"	ja	4f\n"
	"	lea	8(%rdx), %r8\n"
	"	mov	$0x821, %eax\n"		/* CLOCK_REALTIME, _COARSE, TAI */
	"	bt	%edi, %eax\n"
	"	jc	1f\n"
	"	lea	24(%rdx), %r8\n"
	"	mov	$0xd2, %eax\n"		/* CLOCK_MONOTONIC, _RAW, _COARSE, BOOTTIME */
	"	bt	%edi, %eax\n"
	"	jnc	4f\n"
	"1:	cmpl	$0, (%rdx)\n"
	"	je	3f\n"
	"	decl	(%rdx)\n"
	"	mov	(%r8), %rax\n"
	"	mov	%rax, (%rsi)\n"
	"	mov	8(%r8), %rax\n"
	"	mov	%rax, 8(%rsi)\n"
	"	xor	%eax, %eax\n"
	"	ret\n"
	"3:	mov	$" STR(SPENT) ", %edx\n"
	"	jmp	5f\n"
	"4:	xor	%edx, %edx\n"
	"5:	mov	$228, %eax\n"		/* clock_gettime */
	"	syscall\n"
	"	ret\n"
	"6:	push	%rdi\n"
	"	push	%rsi\n"
	"	movabs	$" STR(CLOCK_PAGE) ", %rdi\n"
	"	mov	$4096, %esi\n"
	"	mov	$3, %edx\n"		/* PROT_READ | PROT_WRITE */
	"	mov	$0x100022, %r10d\n"	/* MAP_PRIVATE | _ANONYMOUS | _FIXED_NOREPLACE */
	"	mov	$-1, %r8\n"
	"	xor	%r9d, %r9d\n"
	"	mov	$9, %eax\n"		/* mmap */
	"	syscall\n"
	"	pop	%rsi\n"
	"	pop	%rdi\n"
	"	mov	%rax, %rdx\n"
	"	jmp	5b\n"
	"9:	.byte	0\n"
	"clock_gettime_end:\n"
	"gettimeofday_begin:\n"
	"	cmpb	$1, 9f(%rip)\n"
	"	jne	4f\n"
	"	test	%rdi, %rdi\n"
	"	je	4f\n"
	"	movabs	$" STR(CLOCK_PAGE) ", %rdx\n"
	"	cmpl	$0, (%rdx)\n"
	"	je	3f\n"
	"	decl	(%rdx)\n"
	"	mov	8(%rdx), %rax\n"
	"	mov	%rax, (%rdi)\n"
	"	mov	40(%rdx), %rax\n"
	"	mov	%rax, 8(%rdi)\n"
	"	xor	%eax, %eax\n"
	"	ret\n"
	"3:	mov	$" STR(SPENT) ", %edx\n"
	"	jmp	5f\n"
	"4:	xor	%edx, %edx\n"
	"5:	mov	$96, %eax\n"		/* gettimeofday */
	"	syscall\n"
	"	ret\n"
	"9:	.byte	0\n"
	"gettimeofday_end:\n"
	".popsection\n");

extern const char clock_gettime_begin[], clock_gettime_end[], gettimeofday_begin[], gettimeofday_end[];

static const struct {
	const char *name, *begin, *end;
} functions[CLOCK_FUNCTIONS] = {
	{ "__vdso_clock_gettime", clock_gettime_begin, clock_gettime_end },
	{ "__vdso_gettimeofday", gettimeofday_begin, gettimeofday_end },
};

/**
 * clock_patch - replace a function of the vDSO, at @at, with one that reads the page
 *
 * Returns false if this is not possible.
 */
bool clock_patch(struct thread *t, const char *name, uint64_t at, uint64_t size)
{
	int i;

	for (i = 0; i < CLOCK_FUNCTIONS && !alone; i++) {
		size_t len = (size_t)(functions[i].end - functions[i].begin);

		if (strcmp(functions[i].name, name) || len > size ||
		    mem_write(t, at, functions[i].begin, len))
			continue;
		t->p->clock.state[i] = at + len - 1;
		return true;
	}
	return false;
}

static bool from_vdso(struct thread *t)
{
	uint64_t ip = t->req.data.instruction_pointer, vdso = t->p->clock.vdso;

	return (t->req.data.nr == SYS_clock_gettime || t->req.data.nr == SYS_gettimeofday) &&
	       ip >= vdso && ip < vdso + VDSO_SIZE;
}

/** clock_spent - whether a thread makes a call because no reads are left */
bool clock_spent(struct thread *t)
{
	return t->p->clock.armed && from_vdso(t) && t->req.data.args[2] == SPENT;
}

/** clock_attach - use the page that a program has mapped before this call */
void clock_attach(struct thread *t)
{
	struct clock *c = &t->p->clock;
	uint8_t state;
	int i;

	if (c->tried || !c->state[0] || t->req.data.nr != SYS_clock_gettime || !from_vdso(t))
		return;
	c->tried = true;
	c->mapped = t->req.data.args[2] == CLOCK_PAGE;
	state = c->mapped ? 1 : 2;
	for (i = 0; i < CLOCK_FUNCTIONS; i++)
		if (c->state[i] && mem_write(t, c->state[i], &state, 1))
			fail("%s: its vDSO cannot be changed", t->p->program->name);
}

/** clock_update - before a thread goes on: write the time to its page, if it has passed */
void clock_update(struct thread *t)
{
	struct clock *c = &t->p->clock;
	bool arm = !t->p->program->births;
	uint64_t real = now + REAL_OFFSET;
	struct page page = {
		.reads = arm ? CLOCK_READS : 0,
		.real_s = real / 1000000000, .real_ns = real % 1000000000,
		.real_us = real % 1000000000 / 1000,
		.mono_s = now / 1000000000, .mono_ns = now % 1000000000,
	};

	if (!c->mapped || (c->at == now && c->armed == arm))
		return;
	c->at = now;
	c->armed = arm;
	mem_write(t, CLOCK_PAGE, &page, sizeof(page));	/* fails if it was killed */
}
