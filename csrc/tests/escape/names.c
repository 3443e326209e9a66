// SPDX-License-Identifier: GPL-2.0-only
/*
 * Services of the host, such as name services that would ask the host's
 * network; and lklrun's own control sockets, run directories and programs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "escape.h"
#include "shared/ctl_proto.h"

/** connect_to - connect to a unix socket by its path; returns -1 with errno on failure */
static int connect_to(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	return connect(fd, (struct sockaddr *)&un, sizeof(un)) ? -1 : fd;
}

/** daemon_at - connect to a daemon of the host; @b: through another root */
static const char *daemon_at(const struct attempt *at)
{
	static const char *const paths[] = {
		"/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve",
		"/run/systemd/resolve/io.systemd.Resolve.Monitor",
		"/run/avahi-daemon/socket", "/run/systemd/userdb/io.systemd.Multiplexer",
		"/run/dbus/system_bus_socket",
	};
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s%s", at->b ? setting("ROOT") : "",
		 paths[at->a]);
	fd = connect_to(path);
	if (fd < 0)
		return failure(errno);
	mark(fd, at->name);
	return "reached";
}

/** daemon_outside - the same, through the root of a process outside */
static const char *daemon_outside(const struct attempt *at)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/root/run/nscd/socket",
		 number("PID"));
	fd = connect_to(path);
	if (fd < 0)
		return failure(errno);
	mark(fd, at->name);
	return "reached";
}

/** resolve - resolve a name with the C library, which may ask a service */
static const char *resolve(const struct attempt *at)
{
#ifdef ESCAPE_STATIC	/* this would need the dynamic C library */
	(void)at;
	return "absent";
#else
	struct addrinfo *res;

	(void)at;
	return getaddrinfo("escape.invalid", "80", NULL, &res) ? "unresolved" :
								 "reached";
#endif
}

/** ask_server - send a query to the address of the host's name server */
static const char *ask_server(const struct attempt *at)
{
	static const unsigned char query[] = {
		0x13, 0x37, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0,
		13, 'l', 'k', 'l', 'r', 'u', 'n', '-', 'e', 's', 'c', 'a', 'p', 'e',
		0, 0, 1, 0, 1,
	};
	struct sockaddr_in in = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	(void)at;
	if (fd < 0)
		return failure(errno);
	in.sin_port = htons((uint16_t)number("UDP"));
	inet_pton(AF_INET, setting("HOST4"), &in.sin_addr);
	return sendto(fd, query, sizeof(query), 0, (struct sockaddr *)&in,
		      sizeof(in)) < 0 ? failure(errno) : "reached";
}

/** hello - whether a control socket accepts us */
static const char *hello(const char *path)
{
	struct {
		struct ctl_hdr h;
		struct ctl_hello_req r;
	} req = { .h = { .len = sizeof(req), .type = CTL_HELLO, .id = 1 },
		  .r = { .magic = CTL_MAGIC, .version = CTL_VERSION } };
	struct timeval tv = { .tv_sec = 5 };
	char answer;
	int fd = connect_to(path);
	ssize_t n;

	if (fd < 0)
		return failure(errno);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	if (send(fd, &req, sizeof(req), MSG_NOSIGNAL) < 0)
		return errno == EPIPE ? "closed" : failure(errno);
	n = recv(fd, &answer, 1, 0);
	return n > 0 ? "reached" : !n || errno == ECONNRESET ? "closed" :
							       failure(errno);
}

/** control - use a control socket: the run's own, or that of another run if @a is set */
static const char *control(const struct attempt *at)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/ctl.sock",
		 setting(at->a ? "OTHER_RUN" : "RUN"));
	return hello(path);
}

/** folder - list a run directory and create a file in it */
static const char *folder(const struct attempt *at)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s%s", setting(at->a ? "OTHER_RUN" : "RUN"),
		 at->b ? "/escape" : "");
	fd = open(path, at->b ? O_CREAT | O_WRONLY : O_RDONLY, 0600);
	if (fd < 0)
		return failure(errno);
	if (at->b)
		unlink(path);
	return "reached";
}

/** state - read the state file of a run */
static const char *state(const struct attempt *at)
{
	static const char *const files[] = { "state.json", "journal", "log" };
	char path[200];
	int err = 0;
	size_t i;

	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s",
			 setting(at->a ? "OTHER_RUN" : "RUN"), files[i]);
		if (open(path, O_RDONLY) >= 0)
			return "reached";
		err = errno;
	}
	return failure(err);
}

/** verdict - outcome of a program of lklrun, which must not end with status 0 */
static const char *verdict(const char *status)
{
	return strcmp(status, "status 0") ? "refused" : "reached";
}

/** add_link - `lklctl link add user`: add an interface that leads to the host's network */
static const char *add_link(const struct attempt *at)
{
	const char *const args[] = { "lklctl", "-n", setting("NAME"), "link",
				     "add", "user", NULL };

	(void)at;
	return verdict(tool_status("lklctl", args));
}

/** exec_other - `lklctl exec`: run a program on another run's stack */
static const char *exec_other(const struct attempt *at)
{
	const char *const args[] = { "lklctl", "-n", setting("OTHER_NAME"),
				     "exec", "true", NULL };

	(void)at;
	return verdict(tool_status("lklctl", args));
}

/** nested - start a run inside the run, with a gateway to the host's network */
static const char *nested(const struct attempt *at)
{
	const char *const args[] = { "lklrun", "-q", "--name", "nested", "--",
				     "true", NULL };

	(void)at;
	return verdict(tool_status("lklrun", args));
}

/** clean_up - run `lklrun cleanup` inside; the test checks that the host is unchanged */
static const char *clean_up(const struct attempt *at)
{
	const char *const args[] = { "lklrun", "cleanup", NULL };
	const char *outcome = tool_status("lklrun", args);

	(void)at;
	return strncmp(outcome, "status", 6) ? outcome : "own";
}

const struct attempt name_attempts[] = {
	{ "nscd", daemon_at, 0, 0 },
	{ "resolved", daemon_at, 1, 0 },
	{ "resolved-late", daemon_at, 2, 0 },
	{ "avahi", daemon_at, 3, 0 },
	{ "userdb", daemon_at, 4, 0 },
	{ "d-bus", daemon_at, 5, 0 },
	{ "nscd-outside", daemon_outside, 0, 0 },
	{ "getaddrinfo", resolve, 0, 0 },
	{ "name-server", ask_server, 0, 0 },
	{ "control-socket", control, 0, 0 },
	{ "control-socket-other", control, 1, 0 },
	{ "run-directory", folder, 0, 0 },
	{ "run-directory-write", folder, 0, 1 },
	{ "run-directory-other", folder, 1, 0 },
	{ "run-state", state, 0, 0 },
	{ "run-state-other", state, 1, 0 },
	{ "lklctl-link-add", add_link, 0, 0 },
	{ "lklctl-exec-other", exec_other, 0, 0 },
	{ "lklrun-nested", nested, 0, 0 },
	{ "lklrun-cleanup", clean_up, 0, 0 },
	{ NULL, NULL, 0, 0 },
};
