/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The gateway: lklhost ends the TCP connections of another stack, and continues
 * each with a connected socket of the host that lklrun passes to it.
 */
#ifndef LKLHOST_GATEWAY_H
#define LKLHOST_GATEWAY_H

/*
 * gateway.c: serve connections from now on, with lklrun at the other end of @fd.
 * Returns a negative errno.
 */
int gateway_serve(int fd);

/* seal.c: permit only what the gateway needs from now on; returns a negative errno */
int gateway_seal(void);

#endif
