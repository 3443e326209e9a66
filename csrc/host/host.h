/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations shared by the parts of lklhost. */
#ifndef LKLHOST_HOST_H
#define LKLHOST_HOST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit status of lklhost itself; that of the target is in CTL_EV_EXIT. */
#define HOST_EXIT_OK	0
#define HOST_EXIT_USAGE	2	/* could not start; an error line was printed */
#define HOST_EXIT_PANIC	3	/* panic without a client to report it to */
#define HOST_EXIT_STALLED 4	/* memory of a target hangs; a line says so */

/**
 * struct lklhost - the state of this process
 * @run_dir: --run
 * @name: --name
 * @stack_path: --stack
 * @abi: --abi
 * @preload: --preload, the library to load into the target; NULL: supervise
 * @ctl_fd: --ctl-fd, the launcher's control connection
 * @lock_fd: --lock-fd, -1: none, or the keeper has it
 * @cleanup_fd: --cleanup-fd, -1: none, or the keeper has it
 * @no_userns: --no-userns
 * @in_userns: lklhost moved into its own user namespace
 * @private_netns: lklhost is in an empty network namespace
 * @shared_user_ns: errno that prevented a user namespace for the target of
 *	--user
 * @shared_netns: errno that prevented a network namespace: lklhost and the
 *	target stay in that of the host
 * @state: CTL_STATE_*
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
	int ctl_fd;
	int lock_fd;
	int cleanup_fd;
	bool no_userns;
	bool in_userns;
	bool private_netns;
	int shared_netns;
	int shared_user_ns;
	uint32_t state;
	uint64_t start_ns;
	bool mptcp;
	bool wait_tree;
	bool ask_end;
	uint64_t instance;
};

extern struct lklhost host;

/* main.c, lifecycle.c */
void host_panicked(void);
void host_stop(int sig, uint32_t grace_ms);
void host_target_ended(pid_t pid, int status);
void host_launcher_gone(void);
void host_farewell_done(void);

/* log.c */
int log_open(const char *dir);
void log_take_stdio(void);
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_console(const char *text, size_t len);
size_t log_ring(char *buf, size_t len);
void warn_user(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void note_user(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Separators of names in LD_PRELOAD, ld.so(8). */
#define PRELOAD_SEPARATORS	": \t\n"

/* child.c */
int child_load(const char *libraries);

/* target.c */
int target_fork(char **argv, char *err, size_t errlen);
int target_release(const char *resolv, uint32_t resolv_len);
pid_t target_pid(void);
bool target_lingers(void);
int target_watch(void);
int target_notify_fd(void);
void target_finish(void);

/* exec.c */
int exec_init(void);
void exec_forked(void);
pid_t exec_idle_zygote(void);
pid_t exec_zygote(void);
void exec_reap(void);
bool exec_is_zygote(pid_t pid);
void exec_reaped(pid_t pid, int status);
void exec_run_ended(void);
void exec_panicked(void);

/* netns.c */
int netns_private(void);
int netns_enter(bool userns);
int netns_no_ipv6(void);
int write_file(const char *path, const char *text);

/* view/serve.c */
void view_open(void);
int view_fd(void);
void view_mounted(int error);
void view_stop(void);
size_t view_stats(char *buf, size_t len);

/* filter.c */
int filter_install(void);
int filter_install_plain(void);

/* engine/supervise/hostnet.c */
int hostnet_add(const char *text);
bool hostnet_any(void);

/* tree.c */
size_t tree_list(pid_t *pids, size_t max);
bool tree_empty(void);
bool tree_has(pid_t pid);
void tree_signal(int sig);
bool tree_kill(uint32_t limit_ms);

/* engine/supervise */
int engine_init(void);
int engine_start(int notify_fd);
void engine_stop(void);
bool engine_drain(uint64_t *mark);
size_t engine_stats(char *buf, size_t len);
size_t engine_account(char *buf, size_t len);
size_t engine_owners(void *buf, size_t len);
uint64_t engine_carrier_ino(uint64_t stack_ino);
bool engine_has_stack_fd(int fd);

/* ask.c */
void ask_end(void);
bool ask_end_pending(void);

/* control server */
int ctl_init(int launcher_fd);
void ctl_event(uint32_t kind, uint32_t pid, int64_t arg, const char *text);
unsigned int ctl_wants(uint32_t kind);
void ctl_panicked(void);
void ctl_close_all(void);
int ctl_fatal(int fd, const char *text);

#endif
