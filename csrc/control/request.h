/* SPDX-License-Identifier: GPL-2.0-only */
/* CTL_SYSCALL: conversion between frames and calls. */
#ifndef LKLHOST_CTL_REQUEST_H
#define LKLHOST_CTL_REQUEST_H

#include "control/control.h"

/* Space for all buffers of a call. */
#define REQUEST_ROOM	(3 * (size_t)CTL_FRAME_MAX)

/**
 * struct request_buf - a buffer, or the used length of the buffer before it
 * @at: its offset; for a counted buffer, set once it was received
 */
struct request_buf {
	struct ctl_buf b;
	size_t at;
};

/**
 * struct request - a call with its buffers
 * @size: total size of all buffers except the counted ones
 * @counted: space after these for the counted buffers; 0: there are none
 * @in: received bytes of the IN and INOUT buffers, in order
 */
struct request {
	struct ctl_hdr hdr;
	struct ctl_syscall call;
	uint64_t args[6];
	size_t size, counted;
	uint8_t *in;
	struct request_buf buf[];
};

int request_parse(const struct ctl_hdr *h, const uint8_t *body, size_t len,
		  struct request **out);
void request_fill(struct request *rq, uint8_t *base);
int64_t request_receive(struct request *rq, uint8_t *base);
void request_reply(struct client *cl, struct request *rq, int64_t ret,
		   const uint8_t *base);
void request_free(struct request *rq);

#endif
