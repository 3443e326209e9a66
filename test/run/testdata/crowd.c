// SPDX-License-Identifier: Apache-2.0
/*
 * Ends processes whose first thread makes sockets at that moment: a process ends
 * itself, is killed, or executes another program. Each has further threads.
 * Then, processes that share the descriptors of such a thread execute a program,
 * which makes a socket at once: it must be one of the stack.
 * Prints how many of them ended as they should.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS	300
#define STATUS	7

enum way { ENDS, IS_KILLED, EXECUTES, WAYS };

static enum way way;
static unsigned int delay;
static char *self;

static void *idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void *end(void *arg)
{
	(void)arg;
	usleep(delay);
	if (way == EXECUTES)
		execl(self, self, "executed", NULL);
	if (way == IS_KILLED)
		kill(getpid(), SIGKILL);
	_exit(STATUS);
}

static void *sockets(void *arg)
{
	for (;;)
		close(socket(AF_INET, SOCK_STREAM, 0));
	return arg;
}

static void crowd(void)
{
	pthread_t thread;
	int i;

	for (i = 0; i < 3; i++)
		pthread_create(&thread, NULL, idle, NULL);
	pthread_create(&thread, NULL, end, NULL);
	sockets(NULL);
}

/* executed - main function of an executed program */
static int executed(void)
{
	struct sockaddr_in lo = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	return bind(fd, (struct sockaddr *)&lo, sizeof(lo)) ? 1 : STATUS;
}

/* expected - whether a process has ended as it should */
static int expected(int status)
{
	return way == IS_KILLED ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL :
				  WIFEXITED(status) && WEXITSTATUS(status) == STATUS;
}

/* shared - count the good ones among processes that share our descriptors */
static int shared(void)
{
	int i, status, good = 0;
	pthread_t thread;
	pid_t pid;

	way = EXECUTES;
	pthread_create(&thread, NULL, sockets, NULL);
	pthread_create(&thread, NULL, sockets, NULL);
	for (i = 0; i < ROUNDS; i++) {
		delay = (unsigned int)i * 13 % 1500;
		pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
		if (!pid) {
			pthread_create(&thread, NULL, end, NULL);
			idle(NULL);
		}
		waitpid(pid, &status, 0);
		good += expected(status);
	}
	return good;
}

int main(int argc, char **argv)
{
	int i, status, good[WAYS] = { 0 };
	pid_t pid;

	(void)argc;
	if (argv[1])
		return executed();
	self = argv[0];
	for (i = 0; i < ROUNDS * WAYS; i++) {
		way = i % WAYS;
		delay = (unsigned int)i * 13 % 1500;
		pid = fork();
		if (!pid)
			crowd();
		waitpid(pid, &status, 0);
		good[way] += expected(status);
	}
	printf("%d %d %d %d of %d\n", good[ENDS], good[IS_KILLED], good[EXECUTES], shared(), ROUNDS);
	return 0;
}
