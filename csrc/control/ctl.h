/* SPDX-License-Identifier: GPL-2.0-only */
/* The control server: clients, frames, requests. */
#ifndef LKLHOST_CTL_H
#define LKLHOST_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/loop.h"
#include "shared/ctl_proto.h"

#define CTL_CLIENTS	64		/* others are closed at once */
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
 * @launcher: descriptor 3; lklhost ends if it closes
 * @greeted: HELLO was answered
 * @closing: close once the output is sent
 * @mask, @events_id: subscribed events and their id
 * @lost: events dropped since the last report of lost events
 * @in, @in_off, @in_len, @in_room: input buffer; bytes from @in_off on wait for
 *	the rest of their frame, or for their turn
 * @out, @out_off, @out_len: bytes to send
 * @out_sent: bytes sent since the connection began
 * @out_fds, @n_out_fds: descriptors to send; each goes with byte number at
 * @fds, @n_fds: received in SCM_RIGHTS
 * @stack_fds, @n_stack_fds: descriptors of the stack that its calls opened
 * @waiters, @n_waiters: waiting calls
 * @remote, @n_remote: its number on the link to a preloaded library, 0: none;
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
	uint16_t remote;
	unsigned int n_remote;
};

bool ctl_out_send(struct client *cl);
void ctl_out_free(struct client *cl);
void ctl_out_event(struct client *cl, const struct ctl_event *ev,
		   const char *text);
void ctl_out_flush(struct client *cl, uint64_t *end, uint64_t last);
void ctl_interest(struct client *cl);
void ctl_frame(struct client *cl, const struct ctl_hdr *hdr, const void *a,
	       size_t alen, const void *b, size_t blen);
void ctl_frame_fd(struct client *cl, const struct ctl_hdr *hdr, const void *a,
		  size_t alen, const void *b, size_t blen, int fd);
void ctl_reply(struct client *cl, const struct ctl_hdr *req, int32_t status,
	       const void *body, size_t len);
int ctl_claim_fd(struct client *cl);
bool ctl_peer_allowed(int sock);
struct client *ctl_launcher(void);

int ctl_request(struct client *cl, const struct ctl_hdr *hdr,
		const uint8_t *body, size_t len);

int exec_request(struct client *cl, const struct ctl_hdr *hdr,
		 const uint8_t *body, size_t len);
int exec_signal(struct client *cl, const struct ctl_hdr *hdr,
		const uint8_t *body);
void exec_client_gone(struct client *cl);

int ask_request(struct client *cl, const struct ctl_hdr *hdr,
		const uint8_t *body, size_t len);
int ask_answer(struct client *cl, const struct ctl_hdr *hdr,
	       const uint8_t *body, size_t len);
void ask_client_gone(struct client *cl);
void ask_panicked(void);

int ctl_call(struct client *cl, const struct ctl_hdr *hdr, const uint8_t *body,
	     size_t len);
int ctl_call_cancel(struct client *cl, uint32_t id);
void ctl_calls_end(struct client *cl);
void ctl_calls_panic(struct client *cl);

#define CALL_FD		0x1	/* argument 0 is a descriptor */
#define CALL_OPENS	0x2	/* the result is a descriptor */
#define CALL_AT		0x4	/* argument 0 is a directory or AT_FDCWD */

int ctl_call_flags(uint32_t nr);

#endif
