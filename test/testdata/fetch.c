// SPDX-License-Identifier: Apache-2.0
/*
 * fetch ADDRESS PATH: a file of a web server's port 80 in large pieces, to
 * standard output. The tests link it in several ways.
 */
#define _GNU_SOURCE /* memmem() */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char buf[64 << 10];

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(80) };
	char *body = NULL;
	ssize_t n;
	int fd;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fputs("usage: fetch ADDRESS PATH\n", stderr);
		return 2;
	}
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		perror("connect");
		return 1;
	}
	snprintf(buf, sizeof(buf), "GET %s HTTP/1.0\r\n\r\n", argv[2]);
	if (send(fd, buf, strlen(buf), MSG_NOSIGNAL) != (ssize_t)strlen(buf)) {
		perror("send");
		return 1;
	}
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		char *from = buf;

		/* nginx sends all of the head before the body. */
		if (!body) {
			body = memmem(buf, (size_t)n, "\r\n\r\n", 4);
			if (!body) {
				fputs("fetch: no end of the head\n", stderr);
				return 1;
			}
			from = body + 4;
		}
		if (fwrite(from, 1, (size_t)(buf + n - from), stdout) != (size_t)(buf + n - from)) {
			perror("fwrite");
			return 1;
		}
	}
	if (n < 0) {
		perror("recv");
		return 1;
	}
	return fflush(stdout) ? 1 : 0;
}
