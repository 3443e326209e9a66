// SPDX-License-Identifier: GPL-2.0-only
/* Urgent data of TCP: pass single bytes between a carrier and the stack. */
#define _GNU_SOURCE
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "engine/carrier/conn.h"
#include "engine/stream/pump.h"
#include "stack/stack.h"

/**
 * urgent_out - pass on a byte that the target has sent with MSG_OOB
 *
 * With SO_OOBINLINE, the byte remains in its place in the carrier, and a read
 * stops before it. At the mark, this sends only this byte, as urgent data too.
 * Returns true if the byte was passed on.
 */
bool urgent_out(struct stream *s)
{
	struct conn *conn = &s->conn;
	int one = 1, mark = 0;
	char byte;

	setsockopt(conn->csrc.fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	if (ioctl(conn->csrc.fd, SIOCATMARK, &mark) || !mark)
		return false;
	conn->carrier &= ~C_PRI;
	if (recv(conn->csrc.fd, &byte, 1, MSG_DONTWAIT) != 1)
		return false;
	st_sendto(conn->sfd, &byte, 1,
		  MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	return true;
}

/**
 * urgent_in - pass on an urgent byte of the peer
 *
 * The byte keeps its place in the stream: a read from the stack stops before
 * it, and the byte is sent when that point is reached. If the target is slow,
 * the byte is sent at once, because it is urgent. With SO_OOBINLINE, which is
 * also set on the carrier, the byte is part of the data (MSG_OOB returns
 * EINVAL) and can only be read in its place. Returns true if the byte was
 * passed on.
 */
bool urgent_in(struct stream *s)
{
	struct conn *conn = &s->conn;
	int mark = 0;
	char byte;

	conn->stack |= S_URGENT | S_IN;	/* the read stopped at the mark */
	if (st_ioctl(conn->sfd, SIOCATMARK, &mark))
		mark = 1;
	if (!mark && !conn->to_target.len && (conn->carrier & C_OUT))
		return false;
	conn->stack &= ~S_PRI;
	if (st_recvfrom(conn->sfd, &byte, 1, MSG_OOB | MSG_DONTWAIT, NULL,
			NULL) != 1 &&
	    (!mark || st_recvfrom(conn->sfd, &byte, 1, MSG_DONTWAIT, NULL,
				  NULL) != 1))
		return false;
	if (send(conn->csrc.fd, &byte, 1,
		 MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		conn->bytes_in++;
	return true;
}
