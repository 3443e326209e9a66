/* SPDX-License-Identifier: GPL-2.0-only */
/* The state of lklhost as a whole. */
#ifndef LKLHOST_LKLHOST_H
#define LKLHOST_LKLHOST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit status of lklhost itself; that of the target is in CTL_EV_EXIT. */
#define HOST_EXIT_OK	0
#define HOST_EXIT_USAGE	2	/* could not start; an error line was printed */
#define HOST_EXIT_PANIC	3	/* panic without a client to report it to */
#define HOST_EXIT_STALLED 4	/* access to a target's memory hangs; a line reports it */

/**
 * struct lklhost - the state of this process
 * @run_dir: --run
 * @name: --name
 * @stack_path: --stack
 * @abi: --abi
 * @preload: --preload, the library to load into the target; NULL: supervise or
 *	trace
 * @trace: --trace, ptrace(2) in place of seccomp notification
 * @ctl_fd: --ctl-fd, the launcher's control connection
 * @lock_fd: --lock-fd, -1: none, or the keeper has it
 * @cleanup_fd: --cleanup-fd, -1: none, or the keeper has it
 * @gateway_fd: --gateway, lklrun's end of a gateway; -1: this is no gateway
 * @no_userns: --no-userns
 * @hide: --hide: do not execute the command if the host's name services or the
 *	run directory are visible to it
 * @in_userns: lklhost moved into its own user namespace
 * @private_netns: lklhost is in an empty network namespace
 * @shared_user_ns: errno that prevented a user namespace for the target of
 *	--user
 * @shared_netns: errno that prevented a network namespace: lklhost and the
 *	target stay in that of the host
 * @state: CTL_STATE_*
 * @target_pid: pid of the target, 0: there is none yet, or it has ended
 * @start_ns: CLOCK_MONOTONIC at start
 * @mptcp: TCP stream sockets become MPTCP sockets
 * @wait_tree: the run lasts until the target's whole tree has ended
 * @ask_end: report the target's end to lklrun while the stack still runs
 * @instance: random, part of every carrier's name
 */
struct lklhost {
	const char *run_dir;
	const char *name;
	const char *stack_path;
	const char *abi;
	const char *preload;
	bool trace;
	int ctl_fd;
	int lock_fd;
	int cleanup_fd;
	int gateway_fd;
	bool no_userns;
	bool hide;
	bool in_userns;
	bool private_netns;
	int shared_netns;
	int shared_user_ns;
	uint32_t state;
	pid_t target_pid;
	uint64_t start_ns;
	bool mptcp;
	bool wait_tree;
	bool ask_end;
	uint64_t instance;
};

extern struct lklhost host;

#endif
