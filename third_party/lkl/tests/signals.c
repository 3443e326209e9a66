// SPDX-License-Identifier: GPL-2.0-only
/* Signals, calls from signal handlers, fork, and halt under blocked threads. */
#include "tap.h"

static long handler_result;
static volatile int handled;

static void on_usr1(int sig)
{
	(void)sig;
	handled++;
}

static void on_usr2(int sig)
{
	(void)sig;
	handler_result = L0(getpid);
	handled++;
}

static void handle(int sig, void (*fn)(int), int flags)
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = flags };

	sigaction(sig, &sa, NULL);
}

static long pipe_fd[2], read_result;
static volatile int reading;

static void *reader(void *arg)
{
	char c;

	(void)arg;
	reading = 1;
	read_result = L3(read, pipe_fd[0], &c, 1);
	reading = 2;
	return NULL;
}

/* Waits until the thread sleeps in the stack's read(). */
static void wait_blocked(void)
{
	uint64_t t = now_ns();
	char buf[256], path[64];
	long n;

	while (reading != 1)
		;
	/* a second thread shows up in /proc/1/task as sleeping soon after */
	for (n = 3; n < 200 && now_ns() - t < 1e9; n++) {
		snprintf(path, sizeof(path), "/proc/1/task/%ld/stat", n);
		if (lread_file(path, buf, sizeof(buf)) > 0 && strstr(buf, ") S"))
			return;
		if (n == 199)
			n = 2;
	}
}

static void start_reader(pthread_t *th)
{
	reading = 0;
	pthread_create(th, NULL, reader, NULL);
	wait_blocked();
}

static int join_in(pthread_t th, int ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += ms / 1000;
	return pthread_timedjoin_np(th, NULL, &ts) == 0;
}

static void *caller(void *arg)
{
	volatile int *stop = arg;
	long s = L3(socket, AF_INET, SOCK_DGRAM, 0);

	while (!*stop)
		L3(getsockopt, s, SOL_SOCKET, SO_TYPE);
	return NULL;
}

int main(void)
{
	static volatile int stop;
	int fds[2], status, i;
	uint64_t t;
	pthread_t th;
	pid_t pid;
	char c = 1;

	start(60);
	boot("mem=64M loglevel=0");
	lkl_mount_fs("proc");
	L2(pipe2, fds, 0);
	pipe_fd[0] = fds[0];
	pipe_fd[1] = fds[1];

	handle(SIGUSR1, on_usr1, 0);
	start_reader(&th);
	for (t = now_ns(); reading != 2 && now_ns() - t < 2e9; sched_yield())
		pthread_kill(th, SIGUSR1);
	ok(join_in(th, 2000) && read_result == -EINTR,
	   "a signal ends a blocked read: %s", lkl_strerror(read_result));

	/* the next call is not affected */
	L3(write, pipe_fd[1], &c, 1);
	ok(L3(read, pipe_fd[0], &c, 1) == 1, "the next read is whole");

	handle(SIGUSR2, on_usr2, SA_RESTART);
	start_reader(&th);
	handled = 0;
	pthread_kill(th, SIGUSR2);
	for (t = now_ns(); !handled && now_ns() - t < 2e9;)
		;
	ok(handled && (handler_result == 1 || handler_result == -EDEADLK),
	   "a call from the handler of a blocked thread says %ld", handler_result);
	L3(write, pipe_fd[1], &c, 1);
	ok(join_in(th, 2000) && (read_result == 1 || read_result == -EINTR),
	   "and the blocked call goes on: %ld", read_result);
	if (read_result == -EINTR)
		L3(read, pipe_fd[0], &c, 1);

	pthread_create(&th, NULL, caller, (void *)&stop);
	handled = 0;
	for (i = 0, t = now_ns(); i < 20000 && now_ns() - t < 5e9; i++) {
		int old = handled;

		pthread_kill(th, SIGUSR2);
		while (handled == old && now_ns() - t < 5e9)
			;
		if (handler_result != 1 && handler_result != -EDEADLK)
			break;
	}
	ok(i > 100 && (handler_result == 1 || handler_result == -EDEADLK),
	   "%d calls out of a handler that may interrupt the library: no deadlock", i);
	stop = 1;
	ok(join_in(th, 2000), "the interrupted thread ends");

	ok(L2(kill, 1, SIGTERM) == 0 && L0(getpid) == 1, "a signal inside the stack ends nobody");
	L1(close, pipe_fd[0]);
	ok(L3(write, pipe_fd[1], &c, 1) == -EPIPE && L0(getpid) == 1,
	   "EPIPE without a signal");
	L2(pipe2, fds, 0);
	pipe_fd[0] = fds[0];

	pid = fork();
	if (!pid) {
		alarm(5);
		_exit(L0(getpid) == -ENODEV && lkl_sys_halt() == -ENODEV &&
		      !lkl_is_running() ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	ok(status == 0, "a child after fork gets ENODEV, and no hang");
	ok(L0(getpid) == 1, "the parent goes on");

	start_reader(&th);
	ok(lkl_sys_halt() == 0, "halt while a thread is blocked");
	ok(join_in(th, 2000) && read_result == -ENODEV, "its call says %s",
	   lkl_strerror(read_result));
	return finish();
}
