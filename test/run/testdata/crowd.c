// SPDX-License-Identifier: Apache-2.0
/*
 * Ends processes whose first thread makes sockets at that moment: a process ends
 * itself, is killed, or executes another program. Each has further threads.
 * Prints how many of them ended as they should.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

static void crowd(void)
{
	pthread_t thread;
	int i;

	for (i = 0; i < 3; i++)
		pthread_create(&thread, NULL, idle, NULL);
	pthread_create(&thread, NULL, end, NULL);
	for (;;)
		close(socket(AF_INET, SOCK_STREAM, 0));
}

/* expected - whether a process has ended as it should */
static int expected(int status)
{
	return way == IS_KILLED ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL :
				  WIFEXITED(status) && WEXITSTATUS(status) == STATUS;
}

int main(int argc, char **argv)
{
	int i, status, good[WAYS] = { 0 };
	pid_t pid;

	(void)argc;
	if (argv[1])
		return STATUS;
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
	printf("%d %d %d of %d\n", good[ENDS], good[IS_KILLED], good[EXECUTES], ROUNDS);
	return 0;
}
