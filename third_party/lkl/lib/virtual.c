// SPDX-License-Identifier: GPL-2.0-only
/*
 * Virtual time.
 *
 * Theory of operation
 *
 * The kernel gets its time, its random seed and its memory from this library, so
 * all of them can be the caller's. One source is left: get_cycles() executes
 * rdtsc, which the kernel mixes into its random numbers. PR_SET_TSC makes this
 * instruction trap. The fault handler then returns the virtual time to the
 * kernel, and the real counter to other code of the process, such as the vDSO.
 *
 * The clock stands still while the kernel runs. Time passes only between turns
 * of the loop, or if a call has to wait.
 */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* Far from what the host's kernel maps, and valid on all x86-64 processors */
#define ARENA	((void *)0x200000000000UL)

int lklh_virtual(void)
{
	return virtual_now != NULL;
}

#ifdef HAVE_VIRTUAL
unsigned long long *virtual_now;
static unsigned long long real_offset, state;

unsigned long long virtual_real(void)
{
	return *virtual_now + real_offset;
}

/* SplitMix64 */
static unsigned long long next_random(void)
{
	unsigned long long z = state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

void virtual_random(void *buf, unsigned long len)
{
	unsigned char *p = buf;

	while (len--)
		*p++ = (unsigned char)next_random();
}

/**
 * virtual_pages - memory for the kernel; addresses are keys of its hash tables
 */
void *virtual_pages(unsigned long size)
{
	void *p = mmap(ARENA, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
		       MAP_FIXED_NOREPLACE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_HUGEPAGE);
	return p;
}

/**
 * virtual_wait - events_wait_loop() in virtual time
 *
 * Time passes to the kernel's next timer, if this is before @until. No frame
 * arrives meanwhile.
 */
int virtual_wait(unsigned long long until)
{
	unsigned long long d = events_deadline();

	if (__atomic_load_n(&lkl_irq_pending, __ATOMIC_SEQ_CST))
		return 0;
	if (!d || d > until)
		d = until;
	if (d == ~0ULL)
		return -1;	/* nothing can end this wait */
	if (d > *virtual_now)
		*virtual_now = d;
	events_timer_due();
	return 0;
}

static unsigned long long host_rdtsc(void)
{
	unsigned int lo, hi;

	prctl(PR_SET_TSC, PR_TSC_ENABLE);
	__asm__ __volatile__("rdtsc" : "=a" (lo), "=d" (hi));
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
	return lo | (unsigned long long)hi << 32;
}

/**
 * virtual_rdtsc - execute the instruction at which a thread has trapped
 * @kernel: the thread runs the kernel
 *
 * Returns 0 if it is not rdtsc or rdtscp.
 */
int virtual_rdtsc(ucontext_t *uc, int kernel)
{
	greg_t *r = uc->uc_mcontext.gregs;
	const unsigned char *pc = (const unsigned char *)r[REG_RIP];
	unsigned long long v;
	int len;

	/* A jump to a bad address faults again here, and ends the process. */
	if (r[REG_TRAPNO] != 13)	/* general protection */
		return 0;
	if (pc[0] == 0x0f && pc[1] == 0x31)
		len = 2;
	else if (pc[0] == 0x0f && pc[1] == 0x01 && pc[2] == 0xf9)
		len = 3;
	else
		return 0;
	v = kernel ? *virtual_now : host_rdtsc();
	r[REG_RAX] = (unsigned int)v;
	r[REG_RDX] = (unsigned int)(v >> 32);
	if (len == 3)
		r[REG_RCX] = 0;
	r[REG_RIP] += len;
	return 1;
}

API int lkl_set_virtual(unsigned long long *now, unsigned long long real,
			unsigned long long seed)
{
	if (!loop_mode || lkl_usable() || virtual_now)
		return -EBUSY;
	if (!now || !*now)
		return -EINVAL;
	if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV))
		return -errno;
	virtual_now = now;
	real_offset = real;
	state = seed;
	return 0;
}
#else
API int lkl_set_virtual(unsigned long long *now __attribute__((unused)),
			unsigned long long real __attribute__((unused)),
			unsigned long long seed __attribute__((unused)))
{
	return -EOPNOTSUPP;
}
#endif
