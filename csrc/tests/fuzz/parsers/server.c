// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control server for a fuzzer. Clients connect by socketpair(). Neither the
 * end of lklrun's connection nor a CTL_STOP ends the process.
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

/** __wrap_host_launcher_gone - do not end the run */
void __wrap_host_launcher_gone(void)
{
}

/** __wrap_host_stop - send no signal */
void __wrap_host_stop(int sig, uint32_t grace_ms)
{
	(void)sig;
	(void)grace_ms;
}

/** __wrap_tree_signal - do nothing: there is no target */
void __wrap_tree_signal(int sig)
{
	(void)sig;
}

/** __wrap_engine_start - succeed: there is no seccomp listener */
int __wrap_engine_start(void)
{
	return 0;
}

/** __wrap_target_release - read the whole path of CTL_GO; a "!" in it is an error */
int __wrap_target_release(const char *resolv, uint32_t resolv_len)
{
	return memchr(resolv, '!', resolv_len) ? -EINVAL : 0;
}

/** clients_init - initialize, with a target that always exists */
void clients_init(void)
{
	ctl_ops = &host_ctl_ops;
	log_event = ctl_event;
	stack_panicked = host_panicked;
	host.target_pid = 4000000;	/* PID_MAX_LIMIT is 4194304 */
}

/** clients_add - add a connection whose other end the fuzzer holds */
int clients_add(int fd, bool launcher)
{
	return client_add(fd, launcher);
}

/** clients_dropped - close the remaining connections */
void clients_dropped(void)
{
	while (!list_empty(&ctl_clients))
		client_free(container_of(ctl_clients.next, struct client, link));
}
