/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A stand-in for the code of bionic's libc.so: one stub for each system call, as
 * bionic's build generates them, and nothing else. The functions of the stand-in are
 * in base.c.
 */
#include <asm/unistd.h>

	.text

/* STUB_AS(SYMBOL, NAME) - the function SYMBOL for the system call NAME */
#if defined(__x86_64__)
#define STUB_AS(symbol, name)			\
	.globl	symbol;				\
	.type	symbol, %function;		\
	.p2align 4;				\
symbol:						\
	mov	%rcx, %r10;			\
	mov	$__NR_##name, %eax;		\
	syscall;				\
	cmp	$-4095, %rax;			\
	jb	1f;				\
	neg	%eax;				\
	mov	%eax, %edi;			\
	jmp	set_errno@PLT;			\
1:	ret;					\
	.size	symbol, . - symbol
#elif defined(__aarch64__)
#define STUB_AS(symbol, name)			\
	.globl	symbol;				\
	.type	symbol, %function;		\
	.p2align 4;				\
symbol:						\
	mov	x8, #__NR_##name;		\
	svc	#0;				\
	cmn	x0, #4095;			\
	cneg	x0, x0, hi;			\
	b.ls	1f;				\
	b	set_errno;			\
1:	ret;					\
	.size	symbol, . - symbol
#endif
#define STUB(name)	STUB_AS(name, name)

	STUB(read)
	STUB(readv)
	STUB(preadv2)
	STUB(recvfrom)
	STUB(recvmsg)
	STUB(recvmmsg)
	STUB(write)
	STUB(writev)
	STUB(pwritev2)
	STUB(sendto)
	STUB(sendmsg)
	STUB(sendmmsg)
	STUB(bind)
	STUB(getsockname)
	STUB(getpeername)
	STUB(shutdown)
	STUB(socket)
	STUB(accept4)
	STUB(connect)
	STUB(listen)
	STUB(getsockopt)
	STUB(setsockopt)
	STUB(close)
	STUB(dup)
	STUB(dup3)
	STUB(fcntl)
	STUB(ioctl)
	STUB(sendfile)
	STUB(splice)
	STUB(epoll_create1)
	STUB(epoll_ctl)
	STUB_AS(_exit, exit_group)
	STUB_AS(__openat, openat)
	STUB_AS(__ppoll, ppoll)
	STUB_AS(__pselect6, pselect6)
	STUB_AS(__epoll_pwait, epoll_pwait)
	STUB_AS(__rt_sigaction, rt_sigaction)

	.section .note.GNU-stack,"",%progbits
