/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes: lklhost's helpers, which are forked before it gives up its rights
 * and namespaces; the rights and namespaces themselves; and the processes of the
 * target.
 */
#ifndef LKLHOST_PROCESS_H
#define LKLHOST_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HELPER_FDS	3	/* number of the first in a helper */

/* helper.c */
void helper_out_of_reach(void);
pid_t helper_fork(const char *name, const int *fds, unsigned int n);
void helper_add(pid_t pid);
bool helper_is(pid_t pid);
bool helper_close_from(unsigned int first);

/* hostnet_helper.c: the helper that stays in the host's network namespace */
int home_start(void);
int hostnet_socket(int domain, int type, int proto);

/* cleanup_helper.c: the helper that cleans up if lklrun cannot */
int keeper_start(void);
bool keeper_cleanup(void);

/* caps.c: capabilities(7), by number or as a bit mask of numbers */
bool caps_have(int cap);
void caps_drop(uint64_t caps);
void caps_limit(uint64_t keep);
uint64_t caps_suspend(void);
void caps_resume(uint64_t had);

/* user.c: --user, the user that the target runs as */
bool user_set(const char *text);
int user_rehearse(void);
int user_change(void);
int user_become(void);
bool user_has_namespace(void);
void user_file_ids(void);

/* netns.c */
int netns_private(void);
void netns_warn(void);
int netns_enter(bool userns);
int netns_no_ipv6(void);
int write_file(const char *path, const char *text);

/* tree.c: the processes of the target */
size_t tree_below(pid_t *pids, size_t n, size_t max);
size_t tree_list(pid_t *pids, size_t max);
bool tree_empty(void);
bool tree_has(pid_t pid);
void tree_signal(int sig);
bool tree_kill(uint32_t limit_ms);

/* services.c: the host's name services, which the target must not ask */
#define SERVICE_BASES	2
#define SERVICE_FOLDERS	5
#define SERVICE_RESOLVED "systemd/resolve"

extern const char *const service_bases[SERVICE_BASES];
extern const char *const service_folders[SERVICE_FOLDERS];
bool service_is(const char *socket);

#endif
