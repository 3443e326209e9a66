// SPDX-License-Identifier: GPL-2.0-only
/*
 * lklhost as a gateway: a stack without a target, which ends the connections of
 * another stack (csrc/gateway).
 *
 * Theory of operation
 *
 * lklrun starts it, boots its kernel and configures it by requests on the control
 * connection, as with any stack. CTL_GO seals it. From then on it makes no call that
 * could reach a destination that lklrun has not connected to, and only then lklrun
 * joins it to the other stack (CTL_LINK_JOIN), so that it sees frames.
 *
 * It has no helpers, no socket for other clients and no rights. It ends with the
 * control connection, or when lklrun says that the other stack has ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "control/control.h"
#include "gateway/gateway.h"
#include "host/host.h"
#include "process/process.h"
#include "stack/stack.h"

/** gateway_go - seal this process and serve */
static int gateway_go(struct client *cl, const struct ctl_hdr *h, const uint8_t *body)
{
	struct ctl_go req;
	uint32_t pid = (uint32_t)getpid();
	int ret = -EAGAIN;

	memcpy(&req, body, sizeof(req));
	loop_set_spin(req.spin_us);
	if (host.state == CTL_STATE_BOOTED)
		ret = gateway_serve(host.gateway_fd);
	if (!ret)
		host.state = CTL_STATE_RUNNING;
	ctl_reply(cl, h, ret, &pid, ret ? 0 : sizeof(pid));
	return 0;
}

/** request - the requests that a gateway answers; see struct ctl_ops */
static int request(struct client *cl, const struct ctl_hdr *h, const uint8_t *body,
		   size_t len)
{
	bool sealed = host.state != CTL_STATE_NEW && host.state != CTL_STATE_BOOTED;

	switch (h->type) {
	case CTL_GO:
		if (len < sizeof(struct ctl_go) || sealed)
			break;
		return gateway_go(cl, h, body);
	case CTL_LINK_ADD:
	case CTL_BOOT:
	case CTL_SYSCALL:
		if (sealed)
			break;
		return host_ctl_ops.request(cl, h, body, len);
	case CTL_HELLO:
	case CTL_LINK_JOIN:
	case CTL_CANCEL:
	case CTL_EVENTS:
		return host_ctl_ops.request(cl, h, body, len);
	}
	ctl_reply(cl, h, -EOPNOTSUPP, NULL, 0);
	return 0;
}

static void gone(struct client *cl)
{
	(void)cl;
}

static void launcher_gone(void)
{
	_exit(HOST_EXIT_OK);
}

static void farewell(void)
{
}

static bool has_fd(int fd)
{
	(void)fd;
	return false;
}

static const struct ctl_ops gateway_ctl_ops = {
	.request = request,
	.gone = gone,
	.launcher_gone = launcher_gone,
	.farewell = farewell,
	.engine_has_fd = has_fd,
};

/** panicked - lklrun reports the end of this process */
static void panicked(void)
{
	log_line("gateway: its kernel has panicked");
	_exit(HOST_EXIT_PANIC);
}

int gateway_start(char *err, size_t errlen)
{
	static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE,
				       SIGTSTP, SIGTTIN, SIGTTOU };
	struct rlimit files;
	size_t i;
	int ret;

	/* The terminal's signals are lklrun's. */
	for (i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	stack_panicked = panicked;
	ctl_ops = &gateway_ctl_ops;
	ret = netns_private();
	if (ret)
		return ret;
	isolate_descriptors();
	ret = loop_init();
	if (ret)
		return ret;
	log_take_stdio();
	ret = stack_open(host.stack_path, host.abi, err, errlen);
	if (ret)
		return ret;
	ret = ctl_init(host.ctl_fd);
	if (ret)
		return ret;
	isolate();
	return 0;
}
