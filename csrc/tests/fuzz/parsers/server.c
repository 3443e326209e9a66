// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control server for a fuzzer: clients come by socketpair(), and the end of
 * lklrun's connection, or a CTL_STOP, does not end the process.
 */
#include "control/ctl_server.c"

#include "host/host.h"
#include "stack/stack.h"

#include "clients.h"

void __wrap_host_launcher_gone(void);
void __wrap_host_stop(int sig, uint32_t grace_ms);
void __wrap_tree_signal(int sig);
int __wrap_engine_start(void);
int __wrap_target_release(const char *resolv, uint32_t resolv_len);

/** __wrap_host_launcher_gone - the run would end */
void __wrap_host_launcher_gone(void)
{
}

/** __wrap_host_stop - the target would get a signal */
void __wrap_host_stop(int sig, uint32_t grace_ms)
{
	(void)sig;
	(void)grace_ms;
}

/** __wrap_tree_signal - there is no target */
void __wrap_tree_signal(int sig)
{
	(void)sig;
}

/** __wrap_engine_start - nor a seccomp listener */
int __wrap_engine_start(void)
{
	return 0;
}

/** __wrap_target_release - CTL_GO's path has the length that it says */
int __wrap_target_release(const char *resolv, uint32_t resolv_len)
{
	return memchr(resolv, '!', resolv_len) ? -EINVAL : 0;
}

/** clients_init - with a target that is always there */
void clients_init(void)
{
	ctl_ops = &host_ctl_ops;
	log_event = ctl_event;
	stack_panicked = host_panicked;
	host.target_pid = 4000000;	/* PID_MAX_LIMIT is 4194304 */
}

/** clients_add - a connection whose other end the fuzzer has */
int clients_add(int fd, bool launcher)
{
	return client_add(fd, launcher);
}

/** clients_dropped - close those that are left */
void clients_dropped(void)
{
	while (!list_empty(&ctl_clients))
		client_free(container_of(ctl_clients.next, struct client, link));
}
