// SPDX-License-Identifier: GPL-2.0-only
/*
 * Isolation: lklhost drops privileges before it reads data from the network.
 *
 * Theory of operation
 *
 * lklhost parses packets in a whole kernel. An attacker who takes over lklhost
 * with a packet must find little of use. isolate() is called once, after
 * everything is set up: the helpers and the target are forked, the library is
 * loaded, and ctl.sock exists. No device has been added yet, and the kernel has
 * not booted. isolate() restricts four things, in this order:
 *
 * Mounts. lklhost moves into a mount namespace whose root is an empty,
 * read-only file system that contains only /proc. As root, it mounts a /proc
 * that shows only processes (subset=pid, Linux 5.8). If that is not permitted,
 * it keeps the host's /proc with /proc/sys covered. Before that, descriptors
 * meant for the target are closed, because one could be a directory whose ".."
 * leads out of the root.
 *
 * File ids. With --user, lklhost then accesses files with the ids of that user,
 * who owns the files in /proc/PID of the target.
 *
 * Capabilities. lklhost drops all but the following capabilities from all sets
 * (bounding, permitted, effective, inheritable, ambient):
 *
 *	run by root		CAP_SYS_PTRACE, CAP_KILL, CAP_DAC_OVERRIDE
 *	... engine preload	CAP_KILL
 *	... with --user		none
 *	... a gateway		none
 *	run by another user	CAP_SYS_PTRACE, in lklhost's user namespace only
 *	... engine preload	none
 *
 * CAP_SYS_PTRACE permits access to the memory and descriptors of targets that
 * have capabilities, changed their user or are not dumpable. CAP_KILL and
 * CAP_DAC_OVERRIDE are for targets that changed their user: CAP_KILL permits
 * lklhost to end them, CAP_DAC_OVERRIDE to open their /proc/PID/mem and
 * /proc/PID/fd. With the engine preload, lklhost does not access the target.
 * With --user, lklhost owns the target's user namespace (user.c), which is
 * sufficient. If lklhost does not have CAP_SYS_PTRACE, it keeps all its
 * capabilities: it can then access the target only while it has every
 * capability that the target has (ptrace(2)).
 *
 * System calls. A seccomp filter, with no_new_privs, kills lklhost on calls
 * that start programs or processes, control traced processes, or change
 * namespaces, mounts, ids or the host's kernel. The filter refuses calls that
 * change names and owners of files, new io_uring rings, and sockets of all
 * families but AF_UNIX. From here on, lklhost needs none of these calls,
 * because other processes make them: the keeper (cleanup_helper.c) runs `lklrun
 * cleanup`, the maker (mirror/mirror_helper.c) creates packet sockets, and the home
 * helper (hostnet_helper.c) creates sockets for --host-net. The filter lists the denied
 * calls, so that a foreign library may use all others. Calls newer than this
 * list fail with ENOSYS.
 *
 * If a step fails, lklhost logs it and the run continues: a container may
 * permit neither mounts nor a seccomp filter.
 *
 * With the back end "host", isolate() does nothing: lklhost then parses no
 * packets, and executes the calls that lklctl requests in the host's kernel.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "host/host.h"
#include "process/process.h"

#define MOUNT_FLAGS	(MS_NOSUID | MS_NODEV | MS_NOEXEC)
#define NEWEST_CALL	462		/* mseal(2), Linux 6.10 */
#define X32_BIT		0x40000000u
#define ARM_OWN		0x0f0000u	/* calls specific to arm */
#define MAX_INSNS	256
#ifdef __SANITIZE_ADDRESS__	/* its reports need files and tracing */
#define SANITIZED	true
#else
#define SANITIZED	false
#endif
#define ARG(n)		(offsetof(struct seccomp_data, args) + 8 * (n))

/* lklhost never makes these calls; if it does, an attacker controls it. */
static const uint32_t killed[] = {
	SYS_execve, SYS_execveat, SYS_setns,
	SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot,
	SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
	SYS_init_module, SYS_finit_module, SYS_delete_module,
	SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct,
	SYS_add_key, SYS_request_key, SYS_keyctl,
	SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_fanotify_init,
	SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid,
	SYS_setresgid, SYS_setgroups, SYS_setfsuid, SYS_setfsgid,
	SYS_adjtimex, SYS_sethostname, SYS_setdomainname, SYS_syslog,
	SYS_quotactl, SYS_kcmp, SYS_personality,
#ifdef SYS_settimeofday
	SYS_settimeofday,
#endif
#ifdef SYS_clock_settime
	SYS_clock_settime,
#endif
#ifdef SYS_clock_settime64
	SYS_clock_settime64,
#endif
#ifdef SYS_setuid32
	SYS_setuid32, SYS_setgid32, SYS_setreuid32, SYS_setregid32,
	SYS_setresuid32, SYS_setresgid32, SYS_setgroups32, SYS_setfsuid32,
	SYS_setfsgid32,
#endif
#ifdef SYS_fork
	SYS_fork, SYS_vfork,
#endif
#ifdef SYS_kexec_file_load
	SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
	SYS_iopl, SYS_ioperm, SYS_modify_ldt,
#endif
#ifdef SYS_open_tree
	SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
	SYS_fspick,
#endif
#ifdef SYS_mount_setattr
	SYS_mount_setattr,
#endif
#ifdef SYS_io_uring_register
	SYS_io_uring_register,
#endif
#ifdef SYS_process_madvise
	SYS_process_madvise,
#endif
};

/*
 * lklhost does not need these calls. The stack's library has its own io_uring,
 * which can only write. A new ring could create sockets of any kind.
 */
static const uint32_t refused[] = {
	SYS_io_uring_setup,
	SYS_mknodat, SYS_linkat, SYS_symlinkat, SYS_renameat, SYS_renameat2,
	SYS_fchownat, SYS_fchown, SYS_fchmodat, SYS_fchmod,
	SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
#ifdef SYS_mknod
	SYS_mknod, SYS_link, SYS_symlink, SYS_rename, SYS_chown, SYS_lchown,
	SYS_chmod,
#endif
};

static struct sock_filter prog[MAX_INSNS];
static unsigned int len;

/** emit - append an instruction */
static void emit(uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	prog[len++] = (struct sock_filter){ code, jt, jf, k };
}

/**
 * emit_each - take @action for each of @n calls
 *
 * The call number must be loaded.
 */
static void emit_each(const uint32_t *calls, size_t n, uint32_t action)
{
	size_t i;

	for (i = 0; i < n; i++) {
		emit(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
		emit(BPF_RET | BPF_K, action, 0, 0);
	}
}

/**
 * emit_unless - take @action for call @nr, unless argument 0 passes test @op @k
 */
static void emit_unless(uint32_t nr, uint16_t op, uint32_t k, uint32_t action)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 4);
	emit(BPF_LD | BPF_W | BPF_ABS, ARG(0), 0, 0);
	emit(BPF_JMP | op | BPF_K, k, 0, 1);
	emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	emit(BPF_RET | BPF_K, action, 0, 0);
}

/**
 * emit_numbers - deny calls of other architectures and calls that are too new
 */
static void emit_numbers(void)
{
	emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, NOTIFY_ARCH, 1, 0);
	emit(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
	emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
#ifdef __arm__
	emit(BPF_JMP | BPF_JGE | BPF_K, ARM_OWN, 0, 1);
	emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
#endif
#ifdef __x86_64__
	emit(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
	emit(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
#endif
	emit(BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1);
	emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS, 0, 0);
}

/**
 * emit_ptrace - kill lklhost on ptrace(2), except for the engine trace
 *
 * That engine controls the processes that it traces already. It cannot trace
 * more. With the engine supervise, lklhost can stop a thread after a call
 * (trace/exit_stop.c), but not read or change its registers.
 */
static void emit_ptrace(void)
{
	static const uint32_t stops[] = {
		PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH,
	};
	static const uint32_t allowed[] = {
		PTRACE_CONT, PTRACE_SYSCALL, PTRACE_INTERRUPT, PTRACE_LISTEN, PTRACE_GETEVENTMSG,
		PTRACE_GETSIGINFO, PTRACE_GETREGSET, PTRACE_SETREGSET,
		PTRACE_GETSIGMASK, PTRACE_SETSIGMASK,
	};
	unsigned int jump = len;

	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 0);
	if (host.trace) {
		emit(BPF_LD | BPF_W | BPF_ABS, ARG(0), 0, 0);
		emit_each(allowed, sizeof(allowed) / sizeof(allowed[0]),
			  SECCOMP_RET_ALLOW);
	} else if (!host.preload) {
		emit(BPF_LD | BPF_W | BPF_ABS, ARG(0), 0, 0);
		emit_each(stops, sizeof(stops) / sizeof(stops[0]), SECCOMP_RET_ALLOW);
	}
	emit(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
	prog[jump].jf = (uint8_t)(len - jump - 1);
}

/** build - generate the filter */
static void build(void)
{
	len = 0;
	emit_numbers();
	emit_ptrace();
	emit_each(killed, sizeof(killed) / sizeof(killed[0]),
		  SECCOMP_RET_KILL_PROCESS);
	emit_each(refused, sizeof(refused) / sizeof(refused[0]),
		  SECCOMP_RET_ERRNO | EPERM);
#ifdef SYS_clone3	/* its flags are in memory; C libraries fall back to clone() */
	emit_each((const uint32_t[]){ SYS_clone3 }, 1,
		  SECCOMP_RET_ERRNO | ENOSYS);
#endif
	emit_unless(SYS_clone, BPF_JSET, CLONE_THREAD, SECCOMP_RET_KILL_PROCESS);
	emit_unless(SYS_unshare, BPF_JEQ, CLONE_FILES, SECCOMP_RET_KILL_PROCESS);
	emit_unless(SYS_socket, BPF_JEQ, AF_UNIX,
		    SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

/** calls_limit - install the filter for all threads; requires no_new_privs */
static int calls_limit(void)
{
	struct sock_fprog fprog = { .filter = prog };
	long ret;

	build();
	fprog.len = (unsigned short)len;
	/*
	 * Before Linux 5.16, a filter without SPEC_ALLOW slows down every
	 * branch.
	 */
	ret = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		      SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		      &fprog);
	return ret < 0 ? -errno : ret ? -EBUSY : 0;
}

/** proc_mount - mount "proc" in the current directory */
static int proc_mount(void)
{
	if (mkdir("proc", 0555))
		return -errno;
	if (!mount("proc", "proc", "proc", MOUNT_FLAGS, "subset=pid"))
		return 0;
	/*
	 * The PID namespace belongs to another user namespace, or the kernel is
	 * old. In a user namespace, a bind mount must include the submounts.
	 */
	if (mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL) ||
	    mount("lklrun", "proc/sys", "tmpfs", MOUNT_FLAGS | MS_RDONLY,
		  "mode=555,size=4k"))
		return -errno;
	return 0;
}

/** root_change - make the current directory, which is a mount, the root */
static int root_change(void)
{
	if (syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH))
		return -errno;
	return chdir("/") || mount("", "/", NULL, MS_REMOUNT | MS_BIND |
				   MS_RDONLY | MOUNT_FLAGS, NULL) ? -errno : 0;
}

/**
 * mounts_leave - move to a mount namespace without the host's mounts
 *
 * The new root is mounted on the run directory, which exists and belongs to
 * this run alone. The directory's files are already open. Without a private
 * network namespace, however, lklhost still needs the directory (carrier.c) and
 * keeps the host's mounts.
 */
static int mounts_leave(void)
{
	int ret;

	if (host.shared_netns)
		return -host.shared_netns;
	if (unshare(CLONE_NEWNS) ||
	    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("lklrun", host.run_dir, "tmpfs", MOUNT_FLAGS,
		  "mode=555,size=4k") || chdir(host.run_dir))
		return -errno;
	ret = proc_mount();
	if (!ret)
		ret = root_change();
	if (ret) {
		(void)!chdir("/");
		umount2(host.run_dir, MNT_DETACH);
	}
	return ret;
}

/** caps_kept - get the capabilities to keep, see the top of this file */
static uint64_t caps_kept(void)
{
	const uint64_t ptrace = 1ull << CAP_SYS_PTRACE;
	const uint64_t other_users = 1ull << CAP_KILL;

	if (user_has_namespace() || host.gateway_fd >= 0)
		return 0;
	if (host.preload)
		return host.in_userns || geteuid() ? 0 : other_users;
	if (!caps_have(CAP_SYS_PTRACE))
		return ~0ull;
	if (host.in_userns)
		return ptrace;
	return ptrace | other_users | 1ull << CAP_DAC_OVERRIDE;
}

/** done - log a step if it failed */
static void done(const char *what, int ret)
{
	if (ret)
		log_line("isolation: %s: %s", what, strerror(-ret));
}

/**
 * isolate_descriptors - close the descriptors meant for the target
 *
 * The target has inherited them already. lklhost's own descriptors are
 * close-on-exec. This must run before the library is loaded, because the
 * descriptors of a library may not be close-on-exec.
 */
void isolate_descriptors(void)
{
	struct dirent *e;
	DIR *dir = opendir("/proc/self/fd");

	while (dir && (e = readdir(dir))) {
		int fd = atoi(e->d_name);	/* 0 for "." and ".." */

		if (fd > STDERR_FILENO && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
			close(fd);
	}
	if (dir)
		closedir(dir);
}

/** isolate - drop all privileges that are no longer needed */
void isolate(void)
{
	if (!strcmp(host.abi, "host"))
		return;
	if (!SANITIZED)
		done("lklhost keeps the host's mounts", mounts_leave());
	if (user_has_namespace())
		user_file_ids();
	caps_limit(caps_kept());
	if (!SANITIZED)
		done("lklhost has no seccomp filter", calls_limit());
}
