/* SPDX-License-Identifier: GPL-2.0-only */
/* The control server: declarations shared by its files. */
#ifndef LKLHOST_CONTROL_INTERNAL_H
#define LKLHOST_CONTROL_INTERNAL_H

#include "control/control.h"

/* clients.c */
extern struct list ctl_clients;

/* ctl_out.c */
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

/* ctl_peer.c */
bool ctl_peer_allowed(int sock);

/* ask.c */
void ask_client_gone(struct client *cl);
void ask_panicked(void);

/* ctl_calls.c */
#define CALL_FD		0x1	/* argument 0 is a descriptor */
#define CALL_OPENS	0x2	/* the result is a descriptor */
#define CALL_AT		0x4	/* argument 0 is a directory or AT_FDCWD */
#define CALL_NETNS	0x8	/* the descriptor belongs to a network namespace */

int ctl_call_flags(uint32_t nr);

#endif
