// SPDX-License-Identifier: Apache-2.0
/*
 * put ADDRESS PATH SIZE: so many bytes of standard input to a web server's port 80, in
 * large pieces. The tests link it in several ways.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char buf[64 << 10];

/** all - send all of @len bytes */
static int all(int fd, const char *from, size_t len)
{
	while (len) {
		ssize_t n = send(fd, from, len, MSG_NOSIGNAL);

		if (n < 0) {
			perror("send");
			return -1;
		}
		from += n;
		len -= (size_t)n;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(80) };
	size_t n, left;
	ssize_t got;
	int fd;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fputs("usage: put ADDRESS PATH SIZE\n", stderr);
		return 2;
	}
	left = strtoul(argv[3], NULL, 10);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		perror("connect");
		return 1;
	}
	snprintf(buf, sizeof(buf),
		 "PUT %s HTTP/1.0\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", argv[2], left);
	if (all(fd, buf, strlen(buf)))
		return 1;
	while (left && (n = fread(buf, 1, sizeof(buf), stdin)) > 0) {
		if (all(fd, buf, n))
			return 1;
		left -= n;
	}
	got = recv(fd, buf, sizeof(buf) - 1, 0);
	if (left || got < 0) {
		perror("recv");
		return 1;
	}
	buf[got] = 0;
	if (!strstr(buf, " 201 ") && !strstr(buf, " 204 ")) {
		fputs(buf, stderr);
		return 1;
	}
	return 0;
}
