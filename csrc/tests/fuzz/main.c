// SPDX-License-Identifier: GPL-2.0-only
/*
 * A target that makes every socket system call with random arguments.
 *
 *	fuzz SEED SECONDS
 *
 * Theory of operation
 *
 * WORKERS processes of THREADS threads each make the calls that ops.c picks.
 * The threads of one process share their descriptors and close each other's. A
 * process lives for about a second, and another one replaces it. It ends with
 * open descriptors, or is killed in the middle of a call. Its seed is computed
 * from SEED, its slot and its generation. A run with the same seed thus makes
 * the same calls, as far as scheduling allows.
 *
 * No call may wait for ever: every few milliseconds, each thread gets a signal
 * whose handler does not restart calls. A watchdog checks each thread. If a
 * thread makes no call for HANG_S, its current call hangs: the watchdog prints
 * that call, and the fuzzer ends with 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define HANG_S		20
#define LIFE_MS		1200
#define TICK_NS		4000000

struct shared *shared;

static struct {
	pid_t pid;
	uint64_t turn;
	uint64_t end;			/* time at which it is killed if it has not ended */
	uint64_t calls[THREADS];
	uint64_t since[THREADS];	/* time of the last change */
} workers[WORKERS];

static int place;

/** now_ms - CLOCK_MONOTONIC */
static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/** nothing - signal handler that does nothing, so that calls are interrupted */
static void nothing(int sig)
{
	(void)sig;
}

/** tick - interrupt the calling thread regularly from now on */
static void tick(void)
{
	struct itimerspec its = { { 0, TICK_NS }, { 0, TICK_NS } };
	struct sigevent sev = { .sigev_notify = SIGEV_THREAD_ID,
				.sigev_signo = SIGUSR1 };
	timer_t timer;

	sev._sigev_un._tid = (int)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &sev, &timer) ||
	    timer_settime(timer, 0, &its, NULL))
		_exit(3);
}

/** thread - make calls until the process ends */
static void *thread(void *arg)
{
	int i = (int)(intptr_t)arg;
	struct slot *slot = &shared->slot[place][i];

	rnd_seed((workers[place].turn * WORKERS + (uint64_t)place) * THREADS +
		 (uint64_t)i);
	ops_forking(!i);
	tick();
	atomic_store(&slot->tid, (pid_t)syscall(SYS_gettid));
	for (;;)
		op_random(slot);
	return NULL;
}

/** worker - one process; does not return */
static void worker(uint64_t life)
{
	static const int quiet[] = { SIGPIPE, SIGIO, SIGXFSZ, SIGURG, SIGHUP };
	struct rlimit files = { FD_LIMIT, FD_LIMIT }, size = { 1 << 20, 1 << 20 };
	struct sigaction sa = { .sa_handler = nothing };
	struct sigaction again = { .sa_handler = nothing,
				   .sa_flags = SA_RESTART };
	struct timespec ts = { (time_t)(life / 1000),
			       (long)(life % 1000) * 1000000 };
	pthread_t t;
	size_t i;
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < sizeof(quiet) / sizeof(quiet[0]); i++)
		signal(quiet[i], SIG_IGN);
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGALRM, &sa, NULL);
	sigaction(SIGUSR2, &again, NULL);
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_FSIZE, &size);
	fd = open("/dev/null", O_RDWR);
	for (i = 0; i < 3; i++)
		dup2(fd, (int)i);
	if (args_init())
		_exit(3);
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&t, NULL, thread, (void *)i))
			_exit(3);
	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
	_exit(0);
}

/** start - start worker @i */
static void start(int i, uint64_t seed)
{
	uint64_t life, now = now_ms();
	pid_t pid;
	int t;

	workers[i].turn++;
	rnd_seed(seed * 1000003 + workers[i].turn * WORKERS + (uint64_t)i);
	life = LIFE_MS / 2 + below(LIFE_MS);
	for (t = 0; t < THREADS; t++) {
		shared->slot[i][t].tid = 0;
		workers[i].since[t] = now;
		workers[i].calls[t] = shared->slot[i][t].calls;
	}
	/* One in two is killed before it ends by itself. */
	workers[i].end = now + (one_in(2) ? below(life) : 4 * HANG_S * 1000);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		place = i;
		workers[i].turn += seed * 1000003;
		worker(life);
	}
	workers[i].pid = pid;
}

/** hangs - whether a thread of a worker has made no call for too long */
static bool hangs(int i)
{
	uint64_t now = now_ms();
	int t, k;

	for (t = 0; t < THREADS; t++) {
		struct slot *s = &shared->slot[i][t];

		if (workers[i].calls[t] != s->calls) {
			workers[i].calls[t] = s->calls;
			workers[i].since[t] = now;
		}
		if (now - workers[i].since[t] < HANG_S * 1000)
			continue;
		printf("hangs: pid %d, thread %d: call %ld (", workers[i].pid,
		       s->tid, s->nr);
		for (k = 0; k < 6; k++)
			printf("%s%#lx", k ? ", " : "", s->args[k]);
		printf(")\n");
		return true;
	}
	return false;
}

/** tend - reap, replace and kill workers; false if one hangs or cannot be forked */
static bool tend(uint64_t seed)
{
	int i, status;

	for (i = 0; i < WORKERS; i++) {
		if (now_ms() >= workers[i].end) {
			kill(workers[i].pid, SIGKILL);
			workers[i].end = UINT64_MAX;
			shared->killed++;
		}
		if (waitpid(workers[i].pid, &status, WNOHANG) ==
		    workers[i].pid) {
			if (!WIFSIGNALED(status) && WEXITSTATUS(status)) {
				printf("a worker ended with status %d\n",
				       WEXITSTATUS(status));
				return false;
			}
			if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
				printf("a worker was killed by signal %d\n",
				       WTERMSIG(status));
				return false;
			}
			start(i, seed);
		} else if (hangs(i)) {
			return false;
		}
	}
	return true;
}

/** report - print how often each call was made */
static void report(void)
{
	uint64_t made = 0, good = 0;
	int i;

	for (i = 0; i < op_count(); i++) {
		printf("%-12s %8llu calls, %8llu of them succeeded\n",
		       op_name(i), (unsigned long long)shared->made[i],
		       (unsigned long long)shared->good[i]);
		made += shared->made[i];
		good += shared->good[i];
	}
	printf("%-12s %8llu calls, %8llu of them succeeded; %llu processes killed\n",
	       "all", (unsigned long long)made, (unsigned long long)good,
	       (unsigned long long)shared->killed);
}

/** inherited - after an exec: query and close the inherited descriptors */
static int inherited(void)
{
	char buf[256];
	socklen_t len;
	int fd;

	for (fd = 3; fd < FD_LIMIT; fd++) {
		len = sizeof(buf);
		getsockname(fd, (struct sockaddr *)buf, &len);
		len = sizeof(buf);
		getsockopt(fd, SOL_SOCKET, SO_ERROR, buf, &len);
		if (fd & 1)
			close(fd);
	}
	return 0;
}

/** main - see above */
int main(int argc, char **argv)
{
	uint64_t seed, end;
	bool ok = true;
	int i;

	if (argc == 2 && !strcmp(argv[1], "inherited"))
		return inherited();
	if (argc != 3) {
		fprintf(stderr, "fuzz SEED SECONDS\n");
		return 2;
	}
	seed = strtoull(argv[1], NULL, 0);
	end = now_ms() + strtoull(argv[2], NULL, 0) * 1000;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	for (i = 0; i < WORKERS; i++)
		start(i, seed);
	while (ok && now_ms() < end) {
		struct timespec ts = { 0, 10000000 };

		nanosleep(&ts, NULL);
		ok = tend(seed);
	}
	for (i = 0; i < WORKERS; i++)
		kill(workers[i].pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	report();
	return !ok;
}
