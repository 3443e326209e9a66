/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The target: the user's program, from its fork to its end, and further
 * programs that clients start on the same stack.
 */
#ifndef LKLHOST_TARGET_H
#define LKLHOST_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/control.h"

/**
 * struct target_ops - callbacks for events of the target; set by main()
 * @ended: handles the end of the target or its tree, with a waitpid(2) status
 * @stop: handles a signal to end the run; SIGKILL must follow after @grace_ms
 */
struct target_ops {
	void (*ended)(pid_t pid, int status);
	void (*stop)(int sig, uint32_t grace_ms);
};

/* target.c */
int target_fork(char **argv, char *err, size_t errlen);
int target_listener(void);
int target_watch(const struct target_ops *ops);
int target_release(const char *resolv, uint32_t resolv_len);
bool target_lingers(void);
void target_uncover(void);

/* exec.c */
int exec_request(struct client *cl, const struct ctl_hdr *hdr,
		 const uint8_t *body, size_t len);
int exec_signal(struct client *cl, const struct ctl_hdr *hdr,
		const uint8_t *body);
void exec_client_gone(struct client *cl);
void exec_run_ended(void);
void exec_panicked(void);

#endif
