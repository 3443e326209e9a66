// SPDX-License-Identifier: GPL-2.0-only
/* The requests of control clients. ctl_proto.h describes each request. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "control/control.h"
#include "engine/carrier/space.h"
#include "engine/link/link.h"
#include "engine/sock/sock.h"
#include "engine/supervise/supervise.h"
#include "host/host.h"
#include "process/process.h"
#include "stack/stack.h"
#include "target/target.h"

#define TEXT_MAX	(256 * 1024)
#define STATS_OWN	128	/* for the lines below */
#define CMDLINE_MAX	4096
#define SERVED_GRACE_MS	5000
#define EV_ALL		(CTL_EV_EXIT | CTL_EV_PANIC | CTL_EV_PROC | \
			 CTL_EV_SOCKET | CTL_EV_WARN | CTL_EV_NOTE | \
			 CTL_EV_START | CTL_EV_SIGNAL | CTL_EV_REFUSED | \
			 CTL_EV_LISTEN)

#if defined(__x86_64__)
#define ARCH	"amd64"
#elif defined(__aarch64__)
#define ARCH	"arm64"
#elif defined(__arm__)
#define ARCH	"arm"
#endif

/** hello - report versions, pids and state */
static int hello(struct client *cl, const struct ctl_hdr *h, const uint8_t *body)
{
	struct ctl_hello_req req;
	struct {
		struct ctl_hello_rep rep;
		char text[1024];
	} out;
	const char *name = host.stack_path ? host.stack_path : "host";
	size_t n;

	memcpy(&req, body, sizeof(req));
	if (req.magic != CTL_MAGIC || !req.version) {
		ctl_reply(cl, h, -EPROTO, NULL, 0);
		return -EPROTO;
	}
	memset(&out, 0, sizeof(out));
	n = (size_t)snprintf(out.text, sizeof(out.text) / 2, "%s", name) + 1;
	if (n > sizeof(out.text) / 2)
		n = sizeof(out.text) / 2;
	n += (size_t)snprintf(out.text + n, sizeof(out.text) - n, "%s%c%s",
			      stack_release(), '\0', ARCH) + 1;
	out.rep.version = req.version < CTL_VERSION ? req.version : CTL_VERSION;
	out.rep.state = host.state;
	out.rep.host_pid = (uint32_t)getpid();
	out.rep.target_pid = (uint32_t)host.target_pid;
	out.rep.abi = stack->abi;
	out.rep.strings_len = (uint32_t)n;
	out.rep.start_ns = host.start_ns;
	cl->greeted = true;
	ctl_reply(cl, h, 0, &out, sizeof(out.rep) + n);
	return 0;
}

/** link_add - add a device that uses the descriptor received with the frame */
static int link_add(struct client *cl, const struct ctl_hdr *h,
		    const uint8_t *body)
{
	struct ctl_link_add req;
	struct ctl_link_rep rep;
	int fd = ctl_claim_fd(cl), ret;

	memcpy(&req, body, sizeof(req));
	if (fd < 0) {
		ctl_reply(cl, h, -EBADF, NULL, 0);
		return 0;
	}
	ret = -EINVAL;
	if (host.state == CTL_STATE_PANICKED || host.state == CTL_STATE_ENDING)
		ret = -ESHUTDOWN;
	else if (req.kind >= CTL_LINK_TAP && req.kind <= CTL_LINK_WIRE)
		ret = stack->link_add(fd, req.kind, req.flags, req.mac, req.mtu);
	if (ret < 0) {
		close(fd);
		ctl_reply(cl, h, ret, NULL, 0);
		return 0;
	}
	rep.dev = ret;
	rep.ifindex = stack_alive() ? stack->ifindex(ret) : 0;
	ctl_reply(cl, h, 0, &rep, sizeof(rep));
	return 0;
}

/** link_join - join a device to another one on its wire */
static int link_join(struct client *cl, const struct ctl_hdr *h,
		     const uint8_t *body)
{
	struct ctl_link_join req;
	int fd = ctl_claim_fd(cl), ret = -EBADF;

	memcpy(&req, body, sizeof(req));
	if (fd >= 0) {
		ret = stack->link_join ? stack->link_join(req.dev, fd) : -EOPNOTSUPP;
		if (ret)
			close(fd);
	}
	ctl_reply(cl, h, ret, NULL, 0);
	return 0;
}

/** link_del - remove a device */
static int link_del(struct client *cl, const struct ctl_hdr *h,
		    const uint8_t *body)
{
	struct ctl_link_del req;

	memcpy(&req, body, sizeof(req));
	ctl_reply(cl, h, stack_alive() ? stack->link_del(req.dev) : -EIO, NULL,
		  0);
	return 0;
}

/** boot - start the kernel */
static int boot(struct client *cl, const struct ctl_hdr *h, const uint8_t *body,
		size_t len)
{
	char cmdline[CMDLINE_MAX + 1];
	struct ctl_boot req;
	int ret;

	memcpy(&req, body, sizeof(req));
	if (req.cmdline_len > CMDLINE_MAX ||
	    req.cmdline_len != len - sizeof(req)) {
		ctl_reply(cl, h, -EBADMSG, NULL, 0);
		return -EBADMSG;
	}
	memcpy(cmdline, body + sizeof(req), req.cmdline_len);
	cmdline[req.cmdline_len] = '\0';
	if (host.state != CTL_STATE_NEW) {
		ctl_reply(cl, h, -EALREADY, NULL, 0);
		return 0;
	}
	ret = stack_boot(req.mem, cmdline);
	if (!ret)
		host.state = CTL_STATE_BOOTED;
	if (!ret && stack->abi != CTL_ABI_HOST)
		sock_keep_ports();
	ctl_reply(cl, h, ret, stack_release(),
		  ret ? 0 : strlen(stack_release()));
	return 0;
}

/** go - release the target */
static int go(struct client *cl, const struct ctl_hdr *h, const uint8_t *body,
	      size_t len)
{
	struct ctl_go req;
	uint32_t pid;
	int ret;

	memcpy(&req, body, sizeof(req));
	if (req.resolv_len != len - sizeof(req)) {
		ctl_reply(cl, h, -EBADMSG, NULL, 0);
		return -EBADMSG;
	}
	if (host.state != CTL_STATE_BOOTED) {
		ctl_reply(cl, h, host.state == CTL_STATE_NEW ? -EAGAIN :
			  -EALREADY, NULL, 0);
		return 0;
	}
	host.mptcp = req.flags & CTL_GOF_MPTCP;
	host.wait_tree = req.flags & CTL_GOF_TREE;
	host.ask_end = req.flags & CTL_GOF_ASK_END;
	loop_set_spin(req.spin_us);
	stack_coalesce(req.coalesce_us);
	ret = engine_start();
	if (!ret)
		ret = target_release((const char *)body + sizeof(req),
				     req.resolv_len);
	if (!ret)
		host.state = CTL_STATE_RUNNING;
	if (!ret)
		netns_warn();
	if (!ret && host.shared_user_ns)
		warn_user("--user: the command shares a user namespace with the user's other processes (%s) and can access them; allow user namespaces (sysctl user.max_user_namespaces)",
			  strerror(host.shared_user_ns));
	pid = (uint32_t)host.target_pid;
	ctl_reply(cl, h, ret, &pid, ret ? 0 : sizeof(pid));
	return 0;
}

/** text - answer STATS and LOG */
static int text(struct client *cl, const struct ctl_hdr *h)
{
	char *buf = malloc(TEXT_MAX);
	size_t n;

	if (!buf) {
		ctl_reply(cl, h, -ENOMEM, NULL, 0);
		return 0;
	}
	link_log();
	if (h->type == CTL_STATS) {
		n = engine_stats(buf, TEXT_MAX - STATS_OWN);
		n += (size_t)snprintf(buf + n, STATS_OWN,
				      "control.watchers %u\n"
				      "control.shared_netns %d\n",
				      ctl_wants(CTL_EV_EXIT),
				      host.shared_netns != 0);
	} else {
		n = log_ring(buf, TEXT_MAX);
	}
	ctl_reply(cl, h, 0, buf, n);
	free(buf);
	return 0;
}

/** served_over - end the run, because all served processes have ended */
static void served_over(void)
{
	host_stop(SIGTERM, SERVED_GRACE_MS);
}

/** serve - serve processes whose listeners arrive on a received socket */
static int serve(struct client *cl, const struct ctl_hdr *h,
		 const uint8_t *body)
{
	int fd = ctl_claim_fd(cl), netns = ctl_claim_fd(cl), ret = -EBADF;
	struct ctl_serve req;

	memcpy(&req, body, sizeof(req));
	if (fd >= 0 && netns >= 0)
		ret = host.preload || host.trace ? -EOPNOTSUPP :
		      req.flags & ~CTL_SERVE_STAY ? -EINVAL :
		      host.state != CTL_STATE_RUNNING ? -EAGAIN :
		      engine_serve(fd, netns, req.flags & CTL_SERVE_STAY ?
						      NULL : served_over);
	if (ret && fd >= 0)
		close(fd);
	if (netns >= 0)
		close(netns);
	ctl_reply(cl, h, ret, NULL, 0);
	return 0;
}

/** owners - answer OWNERS */
static int owners(struct client *cl, const struct ctl_hdr *h)
{
	size_t room = CTL_FRAME_MAX - sizeof(*h);
	void *buf = malloc(room);

	if (!buf) {
		ctl_reply(cl, h, -ENOMEM, NULL, 0);
		return 0;
	}
	ctl_reply(cl, h, 0, buf, engine_owners(buf, room));
	free(buf);
	return 0;
}

/** netns - choose a network namespace for the later calls of a connection */
static int netns(struct client *cl, const struct ctl_hdr *h, const uint8_t *body)
{
	size_t room = CTL_FRAME_MAX - sizeof(*h);
	struct ctl_netns req;
	uint64_t *inos;
	int number;

	memcpy(&req, body, sizeof(req));
	number = req.ino ? space_number(req.ino) : cl->netns;
	inos = number < 0 ? NULL : malloc(room);
	if (!inos) {
		ctl_reply(cl, h, number < 0 ? number : -ENOMEM, NULL, 0);
		return 0;
	}
	cl->netns = number;
	ctl_reply(cl, h, 0, inos,
		  sizeof(*inos) * space_list(inos, room / sizeof(*inos)));
	free(inos);
	return 0;
}

/** stop - end the target, then the stack */
static int stop(struct client *cl, const struct ctl_hdr *h, const uint8_t *body)
{
	struct ctl_stop req;

	memcpy(&req, body, sizeof(req));
	if (req.signal > 64) {
		ctl_reply(cl, h, -EINVAL, NULL, 0);
		return 0;
	}
	ctl_reply(cl, h, 0, NULL, 0);
	host_stop((int)req.signal, req.grace_ms);
	return 0;
}

/** events - subscribe to events; a later request replaces the mask */
static int events(struct client *cl, const struct ctl_hdr *h,
		  const uint8_t *body)
{
	struct ctl_events req;

	memcpy(&req, body, sizeof(req));
	if (req.mask & ~(uint32_t)EV_ALL) {
		ctl_reply(cl, h, -EINVAL, NULL, 0);
		return 0;
	}
	ctl_reply(cl, h, 0, NULL, 0);
	cl->mask = req.mask;
	cl->events_id = h->id;
	return 0;
}

/** cancel - cancel a waiting call */
static int cancel(struct client *cl, const struct ctl_hdr *h,
		  const uint8_t *body)
{
	struct ctl_cancel req;

	memcpy(&req, body, sizeof(req));
	ctl_reply(cl, h, ctl_call_cancel(cl, req.id), NULL, 0);
	return 0;
}

/**
 * length_ok - whether the body has a valid length for its request type
 *
 * Unknown types may have any length.
 */
static bool length_ok(uint16_t type, size_t len)
{
	switch (type) {
	case CTL_HELLO:
		return len == sizeof(struct ctl_hello_req);
	case CTL_LINK_ADD:
		return len == sizeof(struct ctl_link_add);
	case CTL_LINK_DEL:
		return len == sizeof(struct ctl_link_del);
	case CTL_LINK_JOIN:
		return len == sizeof(struct ctl_link_join);
	case CTL_BOOT:
		return len >= sizeof(struct ctl_boot);
	case CTL_GO:
		return len >= sizeof(struct ctl_go);
	case CTL_SYSCALL:
		return len >= sizeof(struct ctl_syscall);
	case CTL_CANCEL:
		return len == sizeof(struct ctl_cancel);
	case CTL_NETNS:
		return len == sizeof(struct ctl_netns);
	case CTL_EVENTS:
		return len == sizeof(struct ctl_events);
	case CTL_STOP:
		return len == sizeof(struct ctl_stop);
	case CTL_SERVE:
		return len == sizeof(struct ctl_serve);
	case CTL_EXEC:
		return len > sizeof(struct ctl_exec);
	case CTL_EXEC_SIGNAL:
		return len == sizeof(struct ctl_exec_signal);
	case CTL_ASK:
		return len >= sizeof(struct ctl_ask);
	case CTL_ANSWER:
		return len >= sizeof(struct ctl_answer);
	case CTL_STATS:
	case CTL_OWNERS:
	case CTL_LOG:
		return len == 0;
	}
	return true;
}

/** dead_allows - whether a request is answered after a panic */
static bool dead_allows(uint16_t type)
{
	return type == CTL_HELLO || type == CTL_LOG || type == CTL_STATS ||
	       type == CTL_STOP || type == CTL_EVENTS;
}

/** request - handle one request, see struct ctl_ops */
static int request(struct client *cl, const struct ctl_hdr *h,
		   const uint8_t *body, size_t len)
{
	if (!length_ok(h->type, len)) {
		ctl_reply(cl, h, -EBADMSG, NULL, 0);
		return -EBADMSG;
	}
	if (!cl->greeted && h->type != CTL_HELLO) {
		ctl_reply(cl, h, -EPROTO, NULL, 0);
		return -EPROTO;
	}
	if (host.state == CTL_STATE_PANICKED && !dead_allows(h->type)) {
		ctl_reply(cl, h, -EIO, NULL, 0);
		return 0;
	}
	if (host.preload && link_takes(h->type))
		return link_request(cl, h, body, len);
	switch (h->type) {
	case CTL_HELLO:
		return hello(cl, h, body);
	case CTL_LINK_ADD:
		return link_add(cl, h, body);
	case CTL_LINK_DEL:
		return link_del(cl, h, body);
	case CTL_LINK_JOIN:
		return link_join(cl, h, body);
	case CTL_BOOT:
		return boot(cl, h, body, len);
	case CTL_GO:
		return go(cl, h, body, len);
	case CTL_SYSCALL:
		return ctl_call(cl, h, body, len);
	case CTL_CANCEL:
		return cancel(cl, h, body);
	case CTL_NETNS:
		if (host.preload)	/* its library makes the calls */
			break;
		return netns(cl, h, body);
	case CTL_STATS:
	case CTL_LOG:
		return text(cl, h);
	case CTL_OWNERS:
		return owners(cl, h);
	case CTL_SERVE:
		return serve(cl, h, body);
	case CTL_EVENTS:
		return events(cl, h, body);
	case CTL_STOP:
		return stop(cl, h, body);
	case CTL_EXEC:
		if (host.preload)	/* its kernel serves only one process */
			break;
		return exec_request(cl, h, body, len);
	case CTL_EXEC_SIGNAL:
		return exec_signal(cl, h, body);
	case CTL_ASK:
		return ask_request(cl, h, body, len);
	case CTL_ANSWER:
		return ask_answer(cl, h, body, len);
	}
	ctl_reply(cl, h, -EOPNOTSUPP, NULL, 0);
	return 0;
}

/** gone - end the programs and requests of a client that disconnected */
static void gone(struct client *cl)
{
	exec_client_gone(cl);
	link_client_gone(cl);
}

const struct ctl_ops host_ctl_ops = {
	.request = request,
	.gone = gone,
	.launcher_gone = host_launcher_gone,
	.farewell = host_farewell_done,
	.engine_has_fd = engine_has_stack_fd,
	.netns_enter = space_enter_number,
	.netns_leave = space_leave,
};
