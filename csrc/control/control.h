/* SPDX-License-Identifier: GPL-2.0-only */
/* The control server: clients, frames, requests. */
#ifndef LKLHOST_CONTROL_H
#define LKLHOST_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/loop.h"
#include "shared/ctl_proto.h"

#define CTL_CLIENTS	64		/* further connections are closed at once */
#define CTL_FDS		4		/* received and not claimed yet */
#define CTL_OUT_FDS	CTL_ASKS_MAX	/* queued for sending */
#define CTL_OUT_HIGH	(1 << 20)	/* above, no more requests are read */
#define CTL_OUT_EVENTS	(512 << 10)	/* above, losable events are dropped */
#define CTL_OUT_MAX	(8 << 20)	/* above, the client is dropped */
/* Wait at the end for a client that does not read. */
#define CTL_FLUSH_MS	1000
#define CTL_WAITERS	256		/* waiting calls of one client */
#define CTL_STACK_FDS	4096		/* stack descriptors of one client */

/**
 * struct client - a control connection
 * @src: its descriptor in the loop
 * @link: in the list of all clients
 * @work: processes frames that were left because the output was full
 * @launcher: its connection is descriptor 3; lklhost ends when that closes
 * @greeted: HELLO was answered
 * @closing: close once the output is sent
 * @mask, @events_id: subscribed events and their id
 * @lost: events dropped since the last report of lost events
 * @in, @in_off, @in_len, @in_room: input buffer; bytes from @in_off on wait for
 *	the rest of their frame, or for their turn
 * @out, @out_off, @out_len: bytes to send
 * @out_sent: bytes sent since the connection began
 * @out_fds, @n_out_fds: descriptors to send; each is sent with byte number `at`
 * @fds, @n_fds: received in SCM_RIGHTS
 * @stack_fds, @n_stack_fds: descriptors of the stack that its calls opened
 * @waiters, @n_waiters: waiting calls
 * @netns: number of the namespace that its calls open descriptors in; 0: the run's
 * @link_id, @n_linked: its number on the link to a preloaded library, 0: none;
 *	number of requests sent there and not answered yet
 */
struct client {
	struct source src;
	struct list link;
	struct work work;
	bool launcher, greeted, closing, dead, want_out;
	uint32_t mask, events_id, lost;
	uint8_t *in;
	size_t in_off, in_len, in_room;
	uint8_t *out;
	size_t out_off, out_len, out_room;
	uint64_t out_sent;
	struct {
		uint64_t at;
		int fd;
	} out_fds[CTL_OUT_FDS];
	unsigned int n_out_fds;
	int fds[CTL_FDS];
	unsigned int n_fds;
	int *stack_fds;
	size_t n_stack_fds, stack_fds_room;
	struct list waiters;
	unsigned int n_waiters;
	int netns;
	uint16_t link_id;
	unsigned int n_linked;
};

/**
 * struct ctl_ops - functions of higher layers that the control server calls;
 * set by main
 * @request: handle one request of @len bytes; returns a negative errno if the
 *	connection must be closed
 * @gone: a client has disconnected
 * @launcher_gone: lklrun has disconnected, which ends the run
 * @farewell: lklrun has answered ask_end(): it does not need the stack any more
 * @engine_has_fd: whether a descriptor of the stack is the engine's
 * @netns_enter, @netns_leave: make the calls between them in a namespace of the
 *	target; a negative errno if it has ended
 *
 * The preload library only makes calls (CTL_SYSCALL), which use only
 * @engine_has_fd.
 */
struct ctl_ops {
	int (*request)(struct client *cl, const struct ctl_hdr *hdr,
		       const uint8_t *body, size_t len);
	void (*gone)(struct client *cl);
	void (*launcher_gone)(void);
	void (*farewell)(void);
	bool (*engine_has_fd)(int fd);
	int (*netns_enter)(int netns);
	void (*netns_leave)(void);
};

extern const struct ctl_ops *ctl_ops;

/* ctl_server.c */
int ctl_init(int launcher_fd);
void ctl_panicked(void);
void ctl_close_all(void);

/* clients.c */
struct client *ctl_launcher(void);
int ctl_claim_fd(struct client *cl);
unsigned int ctl_wants(uint32_t kind);
void ctl_event(uint32_t kind, uint32_t pid, int64_t arg, const char *text);

/* ctl_out.c; in the preload library, ctl_reply() is link_out.c's */
void ctl_reply(struct client *cl, const struct ctl_hdr *req, int32_t status,
	       const void *body, size_t len);
int ctl_fatal(int fd, const char *text);

/* ask.c */
int ask_request(struct client *cl, const struct ctl_hdr *hdr,
		const uint8_t *body, size_t len);
int ask_answer(struct client *cl, const struct ctl_hdr *hdr,
	       const uint8_t *body, size_t len);
void ask_end(void);
bool ask_end_pending(void);

/* ctl_call.c */
int ctl_call(struct client *cl, const struct ctl_hdr *hdr, const uint8_t *body,
	     size_t len);
int ctl_call_cancel(struct client *cl, uint32_t id);
void ctl_calls_end(struct client *cl);
void ctl_calls_panic(struct client *cl);

#endif
