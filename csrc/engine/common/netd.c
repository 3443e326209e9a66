// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sockets of netd, Android's network daemon.
 *
 * Theory of operation
 *
 * Before connect() and after accept(), Android's C library passes the socket to
 * netd (libnetd_client), which sets the mark that selects a network of the
 * phone. Our sockets are unix sockets for netd. It refuses them with
 * EAFNOSUPPORT, and the program's call then fails.
 *
 * Marks of the host's routing have no meaning in the stack, and netd must not
 * receive our sockets. Both engines therefore refuse to connect to netd with
 * ENOENT. The C library then continues without a mark, as on a system without
 * netd.
 *
 * The C library also asks netd for names (dnsproxyd), and netd would query the
 * name servers of the phone's own network. This connection is refused too. The
 * C library then queries port 53 of the loopback address, where lklrun answers
 * (internal/stack/resolver).
 */
#include <string.h>

#include "engine/common/netd.h"

/** netd_marks - whether a path is that of the socket for marks */
bool netd_marks(const char *path)
{
	return !strcmp(path, "/dev/socket/fwmarkd");
}

/** netd_names - whether a path is that of the socket for names */
bool netd_names(const char *path)
{
	return !strcmp(path, "/dev/socket/dnsproxyd");
}
