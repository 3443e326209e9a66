// SPDX-License-Identifier: GPL-2.0-only
/*
 * Actions of control clients in the fuzzer, as steps of an input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clients.h"
#include "base/fd_pass.h"
#include "control/control.h"

#define PEERS	4
#define BODY	(PEERS * 4096)

/** struct peer - the other end of a client; @fds: descriptors to send with its next bytes */
static struct peer {
	int fd;
	unsigned int fds;
} peers[PEERS] = { { -1, 0 }, { -1, 0 }, { -1, 0 }, { -1, 0 } };

/* Calls that lklhost handles differently. The input chooses the number of any other call. */
static const uint16_t calls[] = {
	SYS_socket, SYS_close, SYS_read, SYS_sendmsg, SYS_recvmmsg, SYS_openat,
	SYS_fcntl, SYS_accept4, SYS_getsockname, SYS_ioctl, SYS_bind, SYS_dup,
	SYS_recvfrom, SYS_mount, SYS_readlinkat, SYS_uname,
};

/** peer - return a connected client; the first is lklrun's */
static struct peer *peer(uint8_t n)
{
	struct peer *p = &peers[n % PEERS];
	int sv[2];

	if (p->fd >= 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC |
				     SOCK_NONBLOCK, 0, sv))
		return p;
	p->fd = sv[0];
	p->fds = 0;
	clients_add(sv[1], p == peers && !ctl_launcher());
	return p;
}

/** say - send bytes, with the descriptors queued for them */
static void say(struct peer *p, const void *buf, size_t len)
{
	int fds[FD_PASS_MAX];
	unsigned int i;

	if (p->fd < 0 || !len)
		return;
	for (i = 0; i < p->fds; i++)
		fds[i] = STDIN_FILENO;
	fd_pass_send(p->fd, buf, len, fds, p->fds, MSG_DONTWAIT);
	p->fds = 0;
}

/** say_frame - send a frame with a valid header and @len bytes of body */
static void say_frame(struct peer *p, uint16_t type, uint8_t id, uint8_t *frame,
		      size_t len)
{
	struct ctl_hdr h = { .len = (uint32_t)(sizeof(h) + len), .type = type,
			     .id = id };

	memcpy(frame, &h, sizeof(h));
	say(p, frame, h.len);
}

/** hear - read the data sent to a client; closes descriptors */
static void hear(struct peer *p)
{
	static char buf[65536];
	int fds[FD_PASS_MAX];
	unsigned int n;

	if (p->fd < 0 || fd_pass_recv(p->fd, buf, sizeof(buf), fds, &n) < 0)
		return;
	while (n)
		close(fds[--n]);
}

/** frame - send a frame of valid length */
static void frame(struct input *in, struct peer *p)
{
	static uint8_t buf[sizeof(struct ctl_hdr) + BODY];
	uint8_t type = get8(in), id = get8(in);
	size_t got;
	const uint8_t *body = next_bytes(in, get16(in) % BODY, &got);

	memcpy(buf + sizeof(struct ctl_hdr), body, got);
	say_frame(p, type == 255 ? 0x8001 : type, id & 15, buf, got);
}

/** call - send a CTL_SYSCALL with complete buffers */
static void call(struct input *in, struct peer *p)
{
	static uint8_t frame[sizeof(struct ctl_hdr) + BODY];
	uint8_t *at = frame + sizeof(struct ctl_hdr), nr = get8(in), id = get8(in);
	struct ctl_syscall rq = { 0 };
	size_t data = 0, i;

	rq.nr = nr < 240 ? calls[nr % 16] : get16(in);
	rq.nbuf = get8(in) % 8;
	rq.timeout_ms = get8(in);
	rq.wait_events = 1;
	for (i = 0; i < 6; i++)
		rq.args[i] = get8(in);
	memcpy(at, &rq, sizeof(rq));
	at += sizeof(rq);
	for (i = 0; i < rq.nbuf; i++) {
		struct ctl_buf b = { .place = get8(in), .flags = get8(in) & 15,
				     .offset = get8(in), .len = get8(in) };

		if (b.flags == CTL_BUF_USED)
			b.len = 0;
		data += b.flags & CTL_BUF_IN ? b.len : 0;
		memcpy(at, &b, sizeof(b));
		at += sizeof(b);
	}
	fill(in, at, data);
	say_frame(p, CTL_SYSCALL, id & 15, frame, (size_t)(at - frame) + data -
		  sizeof(struct ctl_hdr));
}

/** greet - send the first frame of every client */
static void greet(struct peer *p)
{
	uint8_t frame[sizeof(struct ctl_hdr) + sizeof(struct ctl_hello_req)];
	struct ctl_hello_req rq = { CTL_MAGIC, CTL_VERSION };

	memcpy(frame + sizeof(struct ctl_hdr), &rq, sizeof(rq));
	say_frame(p, CTL_HELLO, 0, frame, sizeof(rq));
}

/** raw - send arbitrary bytes */
static void raw(struct input *in, struct peer *p)
{
	size_t got;
	const uint8_t *bytes = next_bytes(in, get8(in), &got);

	say(p, bytes, got);
}

/**
 * clients_step - carry out one action of a client, or one event
 *
 * The low bits of @step select the action, the high bits the client.
 */
void clients_step(struct input *in, uint8_t step)
{
	struct peer *p = peer(step >> 4);

	switch (step & 15) {
	case 0:
		frame(in, p);
		break;
	case 1:
		call(in, p);
		break;
	case 2:
		greet(p);
		break;
	case 3:
		raw(in, p);
		break;
	case 4:
		p->fds = 1 + get8(in) % FD_PASS_MAX;
		break;
	case 5:
		hear(p);
		break;
	case 6:
		close(p->fd);
		p->fd = -1;
		break;
	case 7:
		fake_ready(get8(in));
		break;
	case 8:
		fuzz_clock_add(get16(in));
		break;
	case 9:
		fake_panic();
		break;
	case 10:
		zygote_says(in);
		break;
	case 11:
		ctl_event(get16(in), 1, get8(in), "text");
		break;
	case 12:
		shutdown(p->fd, SHUT_WR);
		break;
	case 13:
		ask_end();
		break;
	}
}

/** clients_start - prepare the clients for an input */
void clients_start(void)
{
	clients_init();
	zygote_start();
	peer(0);
}

/** clients_end - close the clients after an input */
void clients_end(void)
{
	size_t i;

	for (i = 0; i < PEERS; i++) {
		if (peers[i].fd >= 0)
			close(peers[i].fd);
		peers[i].fd = -1;
	}
	clients_dropped();
	zygote_end();
}
