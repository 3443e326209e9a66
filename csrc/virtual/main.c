// SPDX-License-Identifier: GPL-2.0-only
/*
 * lklvirtual: a node of a lab in virtual time, or a command on a stack.
 *
 * Theory of operation
 *
 * A node is a process with a stack and the programs that use it. lklrun is the
 * coordinator. It grants all nodes a span of virtual time that is not longer
 * than the least delay of a wire. No frame that is sent in this span arrives in
 * it, so the nodes need not know of each other. Then lklrun passes on the frames
 * and grants the next span, which begins at the earliest event of all nodes.
 *
 * The clock of a node stands still while its stack and its programs run. If all
 * of them wait, it advances to the next event: a timer of the stack, the end of
 * a wait, a frame, or the start of a program.
 *
 * The programs run unchanged. A seccomp filter stops all their system calls, and
 * calls.c decides about each of them: this process makes it in the stack,
 * or the host's kernel executes it, or it ends the lab, because it might depend on
 * the host's time. The objects that programs wait for (sockets, pipes, timers,
 * epolls) are those of the stack's kernel. Of all threads of a node, one runs at
 * a time, in the order in which they have started.
 *
 * Calls take no time, so a program that polls a clock would never end. Therefore
 * 64 calls without a wait take 64 microseconds. For clocks see clock.c.
 *
 * With -a, a node is alone: it has no coordinator, and runs one command for at
 * most so many seconds of virtual time. The status of the command is its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "virtual/virtual.h"

/* Frames and programs that arrive later, in order of time */
struct event {
	struct event *next;
	struct msg m;
	char data[];
};

static struct event *events;
static void add_event(const struct msg *m)
{
	struct event *e = malloc(sizeof(*e) + m->len), **at = &events;

	if (!e || !coordinator_read(e->data, m->len))
		exit(1);
	e->m = *m;
	/* The coordinator sends events of the same time in a fixed order. */
	while (*at && (*at)->m.time <= m->time)
		at = &(*at)->next;
	e->next = *at;
	*at = e;
}

/** next_event - the time of the next event */
static uint64_t next_event(void)
{
	uint64_t t = stack_next();
	int i;

	for (i = 0; i < thread_count; i++)
		if (threads[i].live && threads[i].held && threads[i].wake < t)
			t = threads[i].wake;
	if (timers_first() < t)
		t = timers_first();
	return events && events->m.time < t ? events->m.time : t;
}

/** lose_frames - drop the frames in flight to an interface */
static void lose_frames(int iface)
{
	struct event **at = &events, *e;

	while ((e = *at)) {
		if (e->m.type != MSG_FRAME || e->m.id != iface) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		free(e);
	}
}

/** run - run the node until @until, exclusively */
static uint64_t run(uint64_t until)
{
	for (;;) {
		uint64_t next;

		do {
			stack_settle();
			fds_async();
		} while (programs_settle());
		next = next_event();
		if (next >= until)
			return next;
		if (next > now)
			now = next;
		timers_expire();
		while (events && events->m.time <= now) {
			struct event *e = events;

			events = e->next;
			if (e->m.type == MSG_FRAME)
				stack_frame(e->m.id, e->data, e->m.len);
			else
				program_start(e->m.id, e->data, e->m.len);
			free(e);
		}
	}
}

/** run_alone - run a command until it ends, at the latest at @limit; returns its status */
static int run_alone(char **argv, uint64_t limit)
{
	uint64_t next;

	now = BEGIN_NS;
	program_execute(0, NULL, argv);
	for (next = now; last_status < 0; next = run(next + 1))
		if (next > limit)
			fail("%s has not ended after %llu s of virtual time", argv[0],
			     (limit - BEGIN_NS) / 1000000000);
	programs_kill();
	return WIFEXITED(last_status) ? WEXITSTATUS(last_status) : 128 + WTERMSIG(last_status);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail("%s: %s", path, strerror(errno));
	close(fd);
}

/** isolate - leave the host's network, and number the processes from 1 */
static void isolate(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	char text[64];

	if (unshare((uid ? CLONE_NEWUSER : 0) | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC))
		fail("creating namespaces: %s", strerror(errno));
	if (!uid)
		return;
	write_text("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	write_text("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	write_text("/proc/self/gid_map", text);
}

int main(int argc, char **argv)
{
	const char *lib = NULL, *mem = "64M";
	uint64_t seed = 0;
	uint64_t limit = NEVER, next;
	struct msg m;
	int o, first;

	/* The kernel's hash tables, and those of programs, depend on addresses. */
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE) &&
	    personality(ADDR_NO_RANDOMIZE) >= 0)
		execv("/proc/self/exe", argv);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	/* First what the boot depends on, then the rest in order */
	while ((o = getopt(argc, argv, "+a:S:l:m:Mh:")) != -1) {
		switch (o) {
		case 'a': alone = true; limit = BEGIN_NS + strtoull(optarg, NULL, 10) * 1000000000; break;
		case 'S': seed = strtoull(optarg, NULL, 10); break;
		case 'l': lib = optarg; break;
		case 'm': mem = optarg; break;
		case 'M': mptcp = true; break;
		case 'h': hosts_file = optarg; break;
		default: return 2;
		}
	}
	if (!alone && !coordinator_open()) {
		fprintf(stderr, "lklvirtual is a part of lklrun; see lklrun lab run --help\n");
		return 2;
	}
	random_seed(seed);
	isolate();
	programs_begin();
	stack_begin(lib, mem, random_next());
	first = optind;
	for (; first + 1 < argc && strcmp(argv[first], "run"); first += 2) {
		if (!strcmp(argv[first], "sysctl"))
			stack_sysctl(argv[first + 1]);
		else
			stack_interface(argv[first + 1]);
	}
	stack_settle();
	if (!alone)
		serve_calls();
	if (now >= BEGIN_NS)
		fail("the stack took until %llu ns to boot", now);
	if (alone && first + 1 < argc)
		return run_alone(argv + first + 1, limit);
	coordinator_done(now, served_event());
	while (coordinator_read(&m, sizeof(m))) {
		switch (m.type) {
		case MSG_GRANT:
			next = run(m.time);
			coordinator_done(next, served_event());
			break;
		case MSG_SERVE:
			if (m.time > now)
				now = m.time;
			serve_calls();
			/* Programs and the stack may go on at once. */
			coordinator_done(now, served_event());
			break;
		case MSG_LOST:
			lose_frames(m.id);
			break;
		default:
			add_event(&m);
		}
	}
	programs_kill();
	return 0;
}
