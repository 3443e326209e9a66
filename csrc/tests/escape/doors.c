// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ways to bypass the filter: other ways to make a system call, filters that the
 * target installs, and parts of the host's kernel that act without a socket.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#include <asm/ldt.h>
#endif

#include "escape.h"

#ifndef PTRACE_O_SUSPEND_SECCOMP
#define PTRACE_O_SUSPEND_SECCOMP	(1 << 21)
#endif

/** system_call - make a call that must not be available */
static const char *system_call(const struct attempt *at)
{
	static char params[256];

	return RAW(at->a, at->b, params) < 0 ? failure(errno) : "reached";
}

#ifdef __x86_64__
#define CODE_32	0x23	/* selectors of the kernel's code segments */
#define LDT_0	0x7	/* selector of the first entry of the LDT, with user's rights */
#define INT_80	0x80cd	/* instructions, little endian */
#define SYSCALL	0x050f
#define CODE_64	0x33

/** i386 - make a call with int 0x80; pointers must fit in 32 bits */
static long i386(long nr, long b, long c, long d)
{
	long ret = nr;

	__asm__ volatile("int $0x80" : "+a"(ret) : "b"(b), "c"(c), "d"(d)
			 : "r8", "r9", "r10", "r11", "memory");
	if (ret < 0 && ret > -4096) {
		errno = (int)-ret;
		return -1;
	}
	return ret;
}

/* A code segment of 32 bits, and the instruction that makes the call. */
static struct {
	uint16_t selector, instruction;
} far = { CODE_32, INT_80 };

/**
 * i386_far - the same in a code segment of 32 bits
 *
 * With the instruction "syscall", %ebp has the second argument.
 */
static long i386_far(long nr, long b, long c, long d)
{
	unsigned char stub[] = {
		0, 0, 0xea, 16, 0, 0, 0, CODE_64, 0,	/* the call; ljmp */
		0, 0, 0, 0, 0, 0, 0,
		0x4c, 0x89, 0xe4, 0x41, 0xff, 0xe5,	/* mov %r12,%rsp; jmp *%r13 */
	};
	struct __attribute__((packed)) {
		uint32_t offset;
		uint16_t selector;
	} to = { 0, far.selector };
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	void *at = &to;
	long ret = nr;

	if (page == MAP_FAILED)
		return -1;
	memcpy(stub, &far.instruction, sizeof(far.instruction));
	memcpy(page, stub, sizeof(stub));
	to.offset = (uint32_t)(uintptr_t)page;
	*(uint32_t *)(page + 3) = to.offset + 16;
	__asm__ volatile("push %%rbp; mov %%rsp, %%r12; lea 1f(%%rip), %%r13;"
			 "mov %%ecx, %%ebp; ljmpl *(%1); 1: pop %%rbp"
			 : "+a"(ret), "+S"(at), "+c"(c) : "b"(b), "d"(d)
			 : "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "memory");
	errno = (int)-(int)ret;
	return (int)ret < 0 ? -1 : ret;
}

static long (*i386_call)(long nr, long b, long c, long d) = i386;

/** by_i386 - make call number @a of i386; for socketcall and socket, @b is the family */
static const char *by_i386(const struct attempt *at)
{
	int *args = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			 MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long ret;

	if (args == MAP_FAILED)
		return "absent";
	args[0] = (int)at->b;
	args[1] = SOCK_STREAM;
	args[2] = 0;
	if (at->a == 102)	/* socketcall; its subcall 1 is socket */
		ret = i386_call(at->a, 1, (long)args, 0);
	else if (at->a == 359)	/* socket */
		ret = i386_call(at->a, at->b, SOCK_STREAM, 0);
	else
		ret = i386_call(at->a, 1, (long)(args + 16), 0);
	return ret < 0 ? failure(errno) : "reached";
}

/** by_segment - make it in a code segment of 32 bits */
static const char *by_segment(const struct attempt *at)
{
	i386_call = i386_far;
	return by_i386(at);
}

/** by_ldt - make it in a code segment of the process's own */
static const char *by_ldt(const struct attempt *at)
{
	struct user_desc code = { .limit = 0xfffff, .seg_32bit = 1, .contents = 2,
				  .limit_in_pages = 1, .useable = 1 };

	if (syscall(SYS_modify_ldt, 1, &code, sizeof(code)))
		return errno == ENOSYS ? "absent" : failure(errno);
	far.selector = LDT_0;
	return by_segment(at);
}

/** by_syscall - make it with the instruction "syscall", which Intel has for 64 bits only */
static const char *by_syscall(const struct attempt *at)
{
	far.instruction = SYSCALL;
	return by_segment(at);
}

/** by_program - make it in a program for i386 */
static const char *by_program(const struct attempt *at)
{
	static struct {
		Elf32_Ehdr head;
		Elf32_Phdr part;
		unsigned char code[40];
	} elf = {
		{ { 0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT },
		  ET_EXEC, EM_386, EV_CURRENT, 0x10000 + offsetof(typeof(elf), code),
		  sizeof(Elf32_Ehdr), 0, 0, sizeof(Elf32_Ehdr), sizeof(Elf32_Phdr), 1,
		  0, 0, 0 },
		{ PT_LOAD, 0, 0x10000, 0x10000, sizeof(elf), sizeof(elf),
		  PF_R | PF_X, 0x1000 },
		/* socket(); exit(result < 0) */
		{ 0xb8, 0, 0, 0, 0, 0xbb, 0, 0, 0, 0, 0xb9, 1, 0, 0, 0, 0x31, 0xd2,
		  0xcd, 0x80, 0x89, 0xc3, 0xc1, 0xeb, 31, 0xb8, 1, 0, 0, 0, 0xcd, 0x80 },
	};
	char *const none[] = { NULL };
	int fd = memfd_create("i386", 0), status;
	pid_t pid;

	*(uint32_t *)(elf.code + 1) = (uint32_t)at->a;
	*(uint32_t *)(elf.code + 6) = (uint32_t)at->b;
	if (write(fd, &elf, sizeof(elf)) != sizeof(elf))
		return failure(errno);
	pid = fork();
	if (!pid) {
		syscall(SYS_execveat, fd, "", none, none, AT_EMPTY_PATH);
		_exit(2);	/* this kernel has no such programs */
	}
	if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		return word("SIG%s", sigabbrev_np(WTERMSIG(status)));
	return !status ? "reached" : WEXITSTATUS(status) == 2 ? "absent" : "ENOSYS";
}

/** by_x32 - make a call with the numbers of x32 */
static const char *by_x32(const struct attempt *at)
{
	return RAW(0x40000000 | at->a, at->b, SOCK_STREAM, 0) < 0 ?
	       failure(errno) : "reached";
}
#else
static const char *by_i386(const struct attempt *at)
{
	(void)at;
	return "absent";
}
#define by_x32 by_i386
#define by_segment by_i386
#define by_ldt by_i386
#define by_syscall by_i386
#define by_program by_i386
#endif

/** own_filter - install a filter: @action for @nr; all other calls are allowed */
static long own_filter(unsigned int nr, unsigned int action, unsigned long flags)
{
	struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 4, insns };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

/** filter_listener - let the target supervise itself */
static const char *filter_listener(const struct attempt *at)
{
	(void)at;
	return own_filter(SYS_socket, SECCOMP_RET_USER_NOTIF,
			  SECCOMP_FILTER_FLAG_NEW_LISTENER) < 0 ?
	       failure(errno) : "own";
}

/** filter_allow - install a filter that allows everything, for all threads (TSYNC) */
static const char *filter_allow(const struct attempt *at)
{
	if (own_filter(SYS_socket, SECCOMP_RET_ALLOW, (unsigned long)at->a) < 0)
		return failure(errno);
	return RAW(SYS_socket, AF_VSOCK, SOCK_STREAM, 0) < 0 ? failure(errno) :
							       "reached";
}

#ifdef __x86_64__
/** traced - child that calls getppid(), which its tracer replaces by another call */
static void traced(bool filtered)
{
	if (ptrace(PTRACE_TRACEME, 0, 0, 0))
		_exit(errno);	/* the engine trace */
	raise(SIGSTOP);
	if (filtered)
		own_filter(SYS_getppid, SECCOMP_RET_TRACE, 0);
	RAW(SYS_getppid, AF_VSOCK, SOCK_STREAM, 0);
	_exit(0);
}

/** at_getppid - whether the child has stopped at the entry of the call */
static bool at_getppid(pid_t pid, struct user_regs_struct *regs)
{
	ptrace(PTRACE_GETREGS, pid, 0, regs);
	return regs->orig_rax == SYS_getppid && regs->rax == (unsigned long)-ENOSYS;
}

/**
 * tracer_call - have a tracer change the number of a call after the filter has
 * checked it
 *
 * If @a is set, the target's own filter stops the call (SECCOMP_RET_TRACE);
 * otherwise PTRACE_SYSCALL does.
 */
static const char *tracer_call(const struct attempt *at)
{
	struct user_regs_struct regs;
	int status;
	pid_t pid = fork();

	if (!pid)
		traced(at->a);
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return WIFEXITED(status) ? failure(WEXITSTATUS(status)) :
					   "silent";
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL |
	       PTRACE_O_TRACESECCOMP);
	do {
		ptrace(at->a ? PTRACE_CONT : PTRACE_SYSCALL, pid, 0, 0);
		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			return "silent";
	} while (!at_getppid(pid, &regs));
	regs.orig_rax = SYS_socket;
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
	ptrace(PTRACE_SYSCALL, pid, 0, 0);
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return "silent";
	ptrace(PTRACE_GETREGS, pid, 0, &regs);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return (long)regs.rax < 0 ? failure((int)-(long)regs.rax) : "reached";
}
#else
static const char *tracer_call(const struct attempt *at)
{
	(void)at;
	return "absent";
}
#endif

/** suspend_seccomp - have a tracer suspend the filter, as CRIU does */
static const char *suspend_seccomp(const struct attempt *at)
{
	pid_t pid = fork();
	long ret;
	int err;

	(void)at;
	if (!pid)
		for (;;)
			pause();
	ret = ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_SUSPEND_SECCOMP);
	err = errno;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return ret ? failure(err) : "reached";
}

/** not_dumpable - hide from lklhost, then connect */
static const char *not_dumpable(const struct attempt *at)
{
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return failure(errno);
	return connect_out(at);
}

/** daemonize - connect from a daemonized process */
static const char *daemonize(const struct attempt *at)
{
	char text[64];
	ssize_t n;
	int p[2];
	pid_t pid;

	if (pipe(p))
		return failure(errno);
	pid = fork();
	if (!pid) {
		if (fork())
			_exit(0);
		setsid();
		dprintf(p[1], "%s", connect_out(at));
		_exit(0);
	}
	close(p[1]);
	waitpid(pid, NULL, 0);
	n = read(p[0], text, sizeof(text) - 1);
	close(p[0]);
	if (n <= 0)
		return "silent";
	text[n] = '\0';
	return word("%s", text);
}

/** program - execute another program: a privileged one, or one without a library */
static const char *program(const struct attempt *at)
{
	static const char *const files[] = { "SELF", "SETUID", "FILECAP", "STATIC" };
	const char *path = at->a ? setting(files[at->a]) : "/proc/self/exe";

	if (!*path)
		return "absent";
	return by_exec(path, at->b ? "setns-outside" : "bare-inet-stream",
		       at->a == 0);
}

/** put_file - write @len bytes into a file, which may be new; returns 0 or -1 */
static int put_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0755);
	ssize_t n = fd < 0 ? -1 : write(fd, data, len);
	int err = errno;

	close(fd);
	errno = err;
	return n == (ssize_t)len ? 0 : -1;
}

/**
 * foreign_program - execute a program for a CPU that does not exist
 *
 * binfmt_misc of a user namespace of our own (Linux 6.7) makes the kernel execute the
 * static program in its place: it opens it when it is registered (F), with the rights of
 * the foreign program (C).
 */
static const char *foreign_program(const struct attempt *at)
{
	static const unsigned char header[64] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, [16] = 2, [18] = 0xad, 0xde };
	char uids[64], gids[64], rule[4300];

	(void)at;
	snprintf(uids, sizeof(uids), "0 %d 1", geteuid());
	snprintf(gids, sizeof(gids), "0 %d 1", getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) ||
	    put_file("/proc/self/setgroups", "deny", 4) ||
	    put_file("/proc/self/uid_map", uids, strlen(uids)) ||
	    put_file("/proc/self/gid_map", gids, strlen(gids)))
		return failure(errno);
	snprintf(rule, sizeof(rule), ":escape:M:16:\\x02\\x00\\xad\\xde::%s:FC", setting("STATIC"));
	if (mount("none", "/mnt", "tmpfs", 0, NULL) || mkdir("/mnt/rules", 0700) ||
	    mount("none", "/mnt/rules", "binfmt_misc", 0, NULL))
		return errno == EPERM || errno == ENODEV ? "absent" : failure(errno);
	if (put_file("/mnt/foreign", header, sizeof(header)) ||
	    put_file("/mnt/rules/register", rule, strlen(rule)))
		return failure(errno);
	return by_exec("/mnt/foreign", "bare-inet-stream", false);
}

/** bpf_load - load a program into the host's kernel */
static const char *bpf_load(const struct attempt *at)
{
	struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = (unsigned int)at->a;
	attr.insns = (uintptr_t)insns;
	attr.insn_cnt = 2;
	attr.license = (uintptr_t)"GPL";
	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr)) < 0 ?
	       failure(errno) : "allowed";
}

/** perf - monitor all processes of a CPU */
static const char *perf(const struct attempt *at)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
	};

	(void)at;
	if (syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0) >= 0)
		return "allowed";
	return errno == ENOSYS ? "absent" : failure(errno);
}

/** stall - userfaultfd: pages that block a reader; allowed for user mode only */
static const char *stall(const struct attempt *at)
{
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC | (int)at->a);

	if (fd >= 0)
		return "allowed";
	return errno == ENOSYS ? "absent" : failure(errno);
}

/**
 * upcall - request a key that a program of the host looks up for the kernel
 *
 * request-key(8) runs in the host's network namespace and asks its name servers.
 */
static const char *upcall(const struct attempt *at)
{
	(void)at;
	if (syscall(SYS_request_key, "dns_resolver", "escape.invalid", "",
		    KEY_SPEC_THREAD_KEYRING) >= 0)
		return "reached";
	return errno == ENOSYS ? "absent" : failure(errno);
}

/** keyring - read the session's keys, which belong to the user on the host */
static const char *keyring(const struct attempt *at)
{
	(void)at;
	if (syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0) >= 0)
		return "allowed";
	return errno == ENOSYS ? "absent" : failure(errno);
}

/** by_handle - open a file in a folder that only its owner may enter */
static const char *by_handle(const struct attempt *at)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = { .h.handle_bytes = MAX_HANDLE_SZ };
	int mount_id, fd;

	(void)at;
	if (name_to_handle_at(AT_FDCWD, setting("DIR"), &u.h, &mount_id, 0))
		return "absent";	/* this file system has no handles */
	fd = open_by_handle_at(open(setting("DIR"), O_RDONLY), &u.h, O_RDONLY);
	return fd < 0 ? failure(errno) : "allowed";
}

/** type_in - put a line into the terminal's input, as if its user had typed it */
static const char *type_in(const struct attempt *at)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
	const char *p, *typed = "id\n";

	(void)at;
	if (master < 0 || grantpt(master) || unlockpt(master))
		return "absent";
	setsid();
	slave = open(ptsname(master), O_RDWR);
	if (slave < 0 || ioctl(slave, TIOCSCTTY, 0))
		return "absent";
	for (p = typed; *p; p++)
		if (ioctl(slave, TIOCSTI, p))
			return failure(errno);
	return "reached";
}

/** host_file - open a file that controls the host's kernel */
static const char *host_file(const struct attempt *at)
{
	static const char *const paths[] = {
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
		"/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper",
		"/proc/sysrq-trigger", "/dev/mem", "/dev/vhost-net", "/dev/vsock",
	};
	int fd = open(paths[at->a], O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		return "allowed";
	return errno == ENOENT || errno == ENODEV || errno == ENXIO ? "absent" :
								     failure(errno);
}

/** load_module - load a module into the host's kernel */
static const char *load_module(const struct attempt *at)
{
	(void)at;
	if (!syscall(SYS_finit_module, -1, "", 0))
		return "allowed";
	return errno == ENOSYS ? "absent" : errno == EBADF ? "allowed" :
							     failure(errno);
}

/** make_tap - make a tap device, of the stack or in the target's namespace */
static const char *make_tap(const struct attempt *at)
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR);

	(void)at;
	if (fd < 0)
		return errno == ENOENT ? "absent" : failure(errno);
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", setting("TAP"));
	return ioctl(fd, TUNSETIFF, &ifr) ? failure(errno) : "own";
}

const struct attempt door_attempts[] = {
	{ "io-uring-setup", system_call, SYS_io_uring_setup, 1 },
	{ "io-uring-enter", system_call, SYS_io_uring_enter, 0 },
	{ "io-uring-register", system_call, SYS_io_uring_register, 0 },
	{ "x32-socket", by_x32, 41, AF_INET },
	{ "i386-socketcall", by_i386, 102, AF_INET },
	{ "i386-socket", by_i386, 359, AF_INET },
	{ "i386-vsock", by_i386, 359, AF_VSOCK },
	{ "i386-io-uring", by_i386, 425, 0 },
	{ "i386-segment", by_segment, 359, AF_INET },
	{ "i386-ldt", by_ldt, 359, AF_INET },
	{ "i386-syscall", by_syscall, 359, AF_INET },
	{ "i386-program", by_program, 359, AF_INET },
	{ "seccomp-listener", filter_listener, 0, 0 },
	{ "seccomp-allow", filter_allow, 0, 0 },
	{ "seccomp-tsync", filter_allow, SECCOMP_FILTER_FLAG_TSYNC, 0 },
	{ "seccomp-trace", tracer_call, 1, 0 },
	{ "ptrace-syscall", tracer_call, 0, 0 },
	{ "ptrace-suspend-seccomp", suspend_seccomp, 0, 0 },
	{ "not-dumpable", not_dumpable, 0, 0 },
	{ "daemon", daemonize, 0, 0 },
	{ "exec-without-library", program, 0, 0 },
	{ "exec-static", program, 3, 0 },
	{ "exec-foreign", foreign_program, 0, 0 },
	{ "exec-set-user-id", program, 1, 1 },
	{ "exec-file-capabilities", program, 2, 1 },
	{ "bpf-socket-filter", bpf_load, BPF_PROG_TYPE_SOCKET_FILTER, 0 },
	{ "bpf-xdp", bpf_load, BPF_PROG_TYPE_XDP, 0 },
	{ "perf-event", perf, 0, 0 },
	{ "userfaultfd", stall, 0, 0 },
	{ "userfaultfd-user", stall, 1, 0 },
	{ "request-key", upcall, 0, 0 },
	{ "keyring", keyring, 0, 0 },
	{ "open-by-handle", by_handle, 0, 0 },
	{ "terminal-input", type_in, 0, 0 },
	{ "core-pattern", host_file, 0, 0 },
	{ "modprobe-path", host_file, 1, 0 },
	{ "binfmt-register", host_file, 2, 0 },
	{ "uevent-helper", host_file, 3, 0 },
	{ "sysrq", host_file, 4, 0 },
	{ "dev-mem", host_file, 5, 0 },
	{ "dev-vhost-net", host_file, 6, 0 },
	{ "dev-vsock", host_file, 7, 0 },
	{ "kernel-module", load_module, 0, 0 },
	{ "tap", make_tap, 0, 0 },
	{ NULL, NULL, 0, 0 },
};
