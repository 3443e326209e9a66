// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exchange the instruction that makes a call, while lklhost makes the thread
 * execute calls with it. The new instruction leads to code that makes calls of
 * its own. rseq(2) and syscall user dispatch lead there without an exchange.
 * See main.c.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exchange.h"

#define PAGE	4096
#define LANDING	64	/* of the jump, in the page */
#define SECOND	128	/* another call, in the page */
#define AREA	32	/* size of struct rseq */
#define FIRST	3	/* the first number that the worker may use */
#define LAST	12

/* The call, a jump in its place to LANDING, and a jump from there to a pointer. */
#if defined(__x86_64__)
#define CALL	{ 0x0f, 0x05, 0xc3 }			/* syscall; ret */
#define JUMP	{ 0xeb, LANDING - 2 }
#define SPIN	{ 0xeb, 0xfe }
#define TRAP	{ 0xcd, 0x80 }				/* int $0x80 */
#define FAR	{ 0xff, 0x25, 0, 0, 0, 0 }		/* jmp *(%rip) */
#elif defined(__aarch64__)
#define CALL	{ 0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6 }	/* svc 0; ret */
#define JUMP	{ LANDING / 4, 0, 0, 0x14 }
#define SPIN	{ 0, 0, 0, 0x14 }
#define TRAP	{ 0, 0, 0x20, 0xd4 }			/* brk 0 */
#define FAR	{ 0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6 }	/* ldr x16; br */
#else
#define CALL	{ 0 }
#define JUMP	{ 0 }
#define SPIN	{ 0 }
#define TRAP	{ 0 }
#define FAR	{ 0 }
#endif

static const unsigned char call[] = CALL, jump[] = JUMP, spin[] = SPIN,
			   trap[] = TRAP, far_jump[] = FAR;
static unsigned char *page;
static struct sockaddr_in listener;
static unsigned int turn;

/**
 * instruct - make a call with the instruction in the page, or with this one
 *
 * The page may lead to landed(), which returns to here. A function that is not
 * inlined needs none of the registers that landed() has changed.
 */
static __attribute__((noinline)) long instruct(bool in_page, long nr, long a, long b, long c)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	register long r9 __asm__("r9") = 0;
	long ret = nr;

	if (in_page)
		__asm__ volatile("sub $128, %%rsp; call *%1; add $128, %%rsp"
				 : "+a"(ret) : "b"(page), "D"(a), "S"(b), "d"(c),
				 "r"(r10), "r"(r8), "r"(r9)
				 : "rcx", "r11", "memory");
	else
		__asm__ volatile("syscall" : "+a"(ret) : "D"(a), "S"(b), "d"(c),
				 "r"(r10), "r"(r8), "r"(r9)
				 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;

	if (in_page)
		__asm__ volatile("blr %1" : "+r"(x0) : "r"(page), "r"(x8),
				 "r"(x1), "r"(x2) : "x16", "x30", "memory");
	else
		__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2)
				 : "memory");
	return x0;
#else
	return in_page ? -1 : syscall(nr, a, b, c);
#endif
}

/**
 * landed - make a call that lklhost takes for its own
 *
 * lklhost sets the registers for each call, so this begins anew each time.
 */
static void landed(void)
{
	unsigned int n = turn++;

	if (n % 2)
		instruct(false, SYS_connect, FIRST + (long)(n / 2 % 3),
			 (long)&listener, sizeof(listener));
	else
		instruct(false, SYS_socket, AF_INET, SOCK_STREAM, 0);
}

/** put - replace the instruction */
static void put(const unsigned char *code, size_t size)
{
	if (size == 2)
		__atomic_store_n((uint16_t *)page, *(const uint16_t *)code,
				 __ATOMIC_SEQ_CST);
	else
		__atomic_store_n((uint32_t *)page, *(const uint32_t *)code,
				 __ATOMIC_SEQ_CST);
	__builtin___clear_cache((char *)page, (char *)page + 8);
}

#define INSTRUCTION	(sizeof(jump))		/* bytes */

/** set_up - write the page */
static void set_up(void)
{
	void (*to)(void) = landed;
	int fd;

	local_address(&listener);
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		_exit(1);
	memcpy(page, call, sizeof(call));
	memcpy(page + SECOND, call, sizeof(call));
	memcpy(page + LANDING, far_jump, sizeof(far_jump));
	memcpy(page + LANDING + sizeof(far_jump), &to, sizeof(to));
	__builtin___clear_cache((char *)page, (char *)page + PAGE);
	for (fd = FIRST; fd < LAST; fd++)
		close(fd);
}

/** call_in_page - make a call for which lklhost executes others */
static void call_in_page(void)
{
	int fd;

	instruct(true, SYS_socket, AF_INET, SOCK_DGRAM, 0);
	for (fd = FIRST; fd < LAST; fd++) {
		tell(fd);
		close(fd);
	}
}

/** exchange_instruction - let the page have another instruction for a moment */
static void exchange_instruction(void)
{
	volatile uint64_t wait;

	switch (below(64)) {
	case 0:
		put(spin, INSTRUCTION);
		break;
	case 1:
		put(trap, INSTRUCTION);
		break;
	case 2:
		mprotect(page, PAGE, PROT_READ | PROT_WRITE);
		mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
		break;
	default:
		put(jump, INSTRUCTION);
		break;
	}
	for (wait = below(3000); wait; wait--)
		;
	put(call, INSTRUCTION);
}

const struct kind instructions = { "instructions", set_up, call_in_page,
				   exchange_instruction, 0 };

/** exchange_loop - let the thread stay at the instruction, for a while */
static void exchange_loop(void)
{
	usleep((useconds_t)below(1000));
	put(spin, INSTRUCTION);
	usleep(200000);
	put(call, INSTRUCTION);
}

const struct kind loop = { "loop", set_up, call_in_page, exchange_loop, 0 };

static struct rseq *area;
static struct rseq_cs section;

/** set_up_rseq - let the kernel lead the thread from the page to a landing */
static void set_up_rseq(void)
{
	const uint32_t signature = RSEQ_SIG;

	set_up();
	memcpy(page + LANDING - sizeof(signature), &signature, sizeof(signature));
	memcpy(page + SECOND - sizeof(signature), &signature, sizeof(signature));
	section.start_ip = (uintptr_t)page;
	section.post_commit_offset = INSTRUCTION;
	section.abort_ip = (uintptr_t)page + LANDING;
	area = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset, AREA,
		RSEQ_FLAG_UNREGISTER, RSEQ_SIG);	/* the C library's */
	if (area == MAP_FAILED || syscall(SYS_rseq, area, AREA, 0, RSEQ_SIG))
		_exit(1);
}

/** call_in_section - make a call that is a critical section of rseq(2) */
static void call_in_section(void)
{
	area->rseq_cs = (uintptr_t)&section;
	call_in_page();
}

/** exchange_section - change where the section ends and where it leads to */
static void exchange_section(void)
{
	section.abort_ip = (uintptr_t)page + (below(2) ? LANDING : SECOND);
	section.post_commit_offset = INSTRUCTION + below(2);
	if (below(1 << 16))
		return;
	mprotect(area, PAGE, PROT_NONE);	/* the kernel needs it */
	mprotect(area, PAGE, PROT_READ | PROT_WRITE);
}

const struct kind sections = { "rseq", set_up_rseq, call_in_section,
			       exchange_section, 0 };

static volatile char selector;

/** dispatched - handle SIGSYS in place of the call in the page */
static void dispatched(int sig)
{
	(void)sig;
	landed();
}

/** set_up_dispatch - let the kernel send SIGSYS for calls in the page */
static void set_up_dispatch(void)
{
	struct sigaction sa = { .sa_handler = dispatched };

	set_up();
	if (sigaction(SIGSYS, &sa, NULL) ||
	    prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, page,
		  &selector))	/* the program itself is below the page */
		_exit(1);
}

/** exchange_selector - let the calls pass, or not */
static void exchange_selector(void)
{
	selector = below(2) ? SYSCALL_DISPATCH_FILTER_BLOCK :
			      SYSCALL_DISPATCH_FILTER_ALLOW;
}

const struct kind dispatch = { "dispatch", set_up_dispatch, call_in_page,
			       exchange_selector, 0 };
