/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of lklhost know of each other. */
#ifndef LKLHOST_HOST_H
#define LKLHOST_HOST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit status of lklhost itself; the target's travels in CTL_EV_EXIT. */
#define HOST_EXIT_OK	0
#define HOST_EXIT_USAGE	2	/* could not start; one line says why */
#define HOST_EXIT_PANIC	3	/* panic with nobody left to tell */

/**
 * struct lklhost - the one instance
 * @run_dir: --run
 * @name: --name
 * @stack_path: --stack
 * @abi: --abi
 * @ctl_fd: --ctl-fd, the launcher's control connection
 * @lock_fd: --lock-fd, held open for its lock, -1: none
 * @cleanup_fd: --cleanup-fd, -1: none
 * @home_netns: descriptor of the network namespace we were started in
 * @no_userns: --no-userns
 * @in_userns: we moved into a user namespace of our own
 * @state: CTL_STATE_*
 * @start_ns: CLOCK_MONOTONIC at start
 * @mptcp: TCP stream sockets become MPTCP
 * @instance: random, part of every carrier's name
 */
struct lklhost {
	const char *run_dir;
	const char *name;
	const char *stack_path;
	const char *abi;
	int ctl_fd;
	int lock_fd;
	int cleanup_fd;
	int home_netns;
	bool no_userns;
	bool in_userns;
	uint32_t state;
	uint64_t start_ns;
	bool mptcp;
	uint64_t instance;
};

extern struct lklhost host;

/* main.c, lifecycle.c */
void host_panicked(void);
void host_stop(int sig, uint32_t grace_ms);
void host_target_ended(pid_t pid, int status);
void host_launcher_gone(void);
__attribute__((noreturn)) void host_cleanup_exec(void);

/* log.c */
int log_open(const char *dir);
void log_take_stdio(void);
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_console(const char *text, size_t len);
size_t log_ring(char *buf, size_t len);
void warn_user(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* target.c */
int target_fork(char **argv, char *err, size_t errlen);
int target_release(const char *resolv, uint32_t resolv_len);
pid_t target_pid(void);
int target_watch(void);
int target_notify_fd(void);
void target_finish(void);

/* exec.c */
int exec_init(void);
void exec_forked(void);
pid_t exec_idle_zygote(void);
void exec_reap(void);
bool exec_is_zygote(pid_t pid);
void exec_reaped(pid_t pid, int status);
void exec_run_ended(void);
void exec_panicked(void);

/* netns.c */
int netns_private(char *err, size_t errlen);
int netns_enter(bool userns);

/* filter.c */
int filter_install(void);

/* tree.c */
size_t tree_list(pid_t *pids, size_t max);
void tree_signal(int sig);
bool tree_kill(uint32_t limit_ms);

/* engine, supervise/ */
int engine_init(void);
int engine_start(int notify_fd);
void engine_stop(void);
bool engine_drain(void);
size_t engine_stats(char *buf, size_t len);
size_t engine_account(char *buf, size_t len);
size_t engine_owners(void *buf, size_t len);
bool engine_has_stack_fd(int fd);

/* control server */
int ctl_init(int launcher_fd);
void ctl_event(uint32_t kind, uint32_t pid, int64_t arg, const char *text);
bool ctl_wants(uint32_t kind);
void ctl_panicked(void);
void ctl_close_all(void);
int ctl_fatal(int fd, const char *text);

#endif
