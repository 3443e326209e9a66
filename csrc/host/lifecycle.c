// SPDX-License-Identifier: GPL-2.0-only
/*
 * The end of the run: its causes and the order of its steps.
 *
 * Theory of operation
 *
 *	the target ended	(with CTL_GOF_TREE: its whole tree ended) send
 *				an EXIT event, kill the rest, drain, halt, quit
 *	STOP, SIGTERM		signal the tree, SIGKILL after the grace period;
 *				then as above
 *	the launcher is gone	kill the tree, halt, make the keeper execute
 *				`lklrun cleanup`
 *	panic			send a PANIC event, kill the tree; then answer
 *				HELLO, LOG and STATS until STOP arrives or the
 *				launcher is gone
 *
 * Draining: the data that the target wrote before it ended must still reach the
 * peer, as with a kernel that outlives the process. The loop continues until
 * one of these conditions is true:
 *
 * - All sent data have left.
 * - The peers have accepted nothing for DRAIN_MS.
 * - DRAIN_MAX_MS have passed.
 *
 * If lklrun asked for this, the loop also waits until lklrun has signed off
 * from the network, for FAREWELL_MS at most. STOP and SIGTERM end the draining.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/link/link.h"
#include "engine/supervise/supervise.h"
#include "host/host.h"
#include "process/process.h"
#include "process/zygote_link.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"
#include "target/target.h"
#include "view/view.h"

#define DRAIN_MS	3000	/* maximum time without progress */
#define DRAIN_MAX_MS	60000
#define DRAIN_POLL_MS	5
#define DRAIN_SLOW_MS	50	/* interval if draining takes long */
#define FAREWELL_MS	2000
#define KILL_MS		5000
#define MS		1000000ull

static void grace_over(struct timer *t);
static void drain_poll(struct timer *t);
static struct timer grace_timer = TIMER_INIT(grace_timer, grace_over);
static struct timer drain_timer = TIMER_INIT(drain_timer, drain_poll);
static uint64_t drain_start, drain_end, drain_mark;

/** halt_and_quit - stop engine and stack, and leave the loop */
static void halt_and_quit(void)
{
	engine_stop();
	if (stack_alive()) {
		stack_dead();
		stack->halt();
	}
	zygote_reap();
	loop_quit();
}

/** drain_poll - stop if all sent data have left or a time limit has passed */
static void drain_poll(struct timer *t)
{
	uint64_t now = now_ns(), mark, pause = DRAIN_POLL_MS;

	if (stack_alive() && ask_end_pending() &&
	    now < drain_start + FAREWELL_MS * MS) {
		timer_arm(t, now + pause * MS);
		return;
	}
	if (!stack_alive() || engine_drain(&mark)) {
		halt_and_quit();
		return;
	}
	if (mark != drain_mark)
		drain_end = now + DRAIN_MS * MS;
	drain_mark = mark;
	if (now >= drain_end || now >= drain_start + DRAIN_MAX_MS * MS) {
		warn_user("the last data of the command was not fully delivered within %llu s after its end",
			  (unsigned long long)((now - drain_start) / (1000 * MS)));
		halt_and_quit();
		return;
	}
	if (now > drain_start + DRAIN_MS * MS / 10)
		pause = DRAIN_SLOW_MS;
	timer_arm(t, now + pause * MS);
}

/** ending - kill the rest of the tree, then drain */
static void ending(void)
{
	if (host.state == CTL_STATE_ENDING)
		return;
	timer_cancel(&grace_timer);
	view_stop();	/* while we wait for a process, it must not wait for us */
	if (!tree_kill(KILL_MS))
		log_line("processes of the target still exist after SIGKILL");
	else
		target_uncover();
	exec_run_ended();
	if (host.state == CTL_STATE_PANICKED)
		return;
	host.state = CTL_STATE_ENDING;
	drain_start = now_ns();
	drain_end = drain_start + DRAIN_MS * MS;
	if (host.ask_end)
		ask_end();
	timer_arm(&drain_timer, 0);
}

/**
 * host_farewell_done - continue the end: lklrun does not need the stack any
 * more
 */
void host_farewell_done(void)
{
	if (host.preload)
		link_farewell();
	else if (host.state == CTL_STATE_ENDING)
		timer_arm(&drain_timer, 0);
}

/**
 * target_ended - handle the end of the target or its tree
 * @pid: pid of the target
 * @status: status of the target, as from waitpid(2)
 */
static void target_ended(pid_t pid, int status)
{
	/* Sent with the event: lklhost ends soon and cannot be queried. */
	static char account[64 << 10];

	if (host.preload)
		link_ended(status);
	account[host.preload ? link_account(account, sizeof(account) - 1) :
		engine_account(account, sizeof(account) - 1)] = '\0';
	ctl_event(CTL_EV_EXIT, (uint32_t)pid, status, account);
	ending();
}

/** grace_over - kill the processes that the signal did not end */
static void grace_over(struct timer *t)
{
	(void)t;
	tree_signal(SIGKILL);
}

/**
 * host_stop - end the target, then the stack
 * @sig: signal for each process of the target's tree
 * @grace_ms: time until SIGKILL
 */
void host_stop(int sig, uint32_t grace_ms)
{
	if (host.state == CTL_STATE_PANICKED ||
	    (!host.target_pid && !target_lingers())) {
		view_stop();
		tree_kill(KILL_MS);
		halt_and_quit();
		return;
	}
	/*
	 * Before GO, the target still executes lklhost's code, which does not
	 * react to signals.
	 */
	tree_signal(host.state < CTL_STATE_RUNNING ? SIGKILL : sig);
	tree_signal(SIGCONT);
	timer_arm(&grace_timer, now_ns() + grace_ms * MS);
}

/**
 * last_line - find the line of the panic in @buf, or else its last line with
 * text
 */
static const char *last_line(char *buf, size_t len)
{
	char *p;

	while (len && (buf[len - 1] == '\n' || buf[len - 1] == '\0'))
		len--;
	buf[len] = '\0';
	p = strstr(buf, "Kernel panic");
	if (p)
		p[strcspn(p, "\n")] = '\0';
	else
		p = strrchr(buf, '\n') ? strrchr(buf, '\n') + 1 : buf;
	return p;
}

/** host_panicked - handle a panic of the stack's kernel */
void host_panicked(void)
{
	char buf[8193];
	size_t len;

	if (host.state == CTL_STATE_PANICKED)
		return;
	stack_dead();
	len = log_ring(buf, sizeof(buf) - 1);
	buf[len] = '\0';
	host.state = CTL_STATE_PANICKED;
	ctl_event(CTL_EV_PANIC, 0, 0, last_line(buf, len));
	view_stop();
	exec_panicked();
	ctl_panicked();
	tree_signal(SIGKILL);	/* before its calls fail with misleading errors */
	engine_stop();
}

/**
 * host_launcher_gone - end the run, because the launcher's connection was
 * closed
 */
void host_launcher_gone(void)
{
	log_line("lklrun has ended; ending the run");
	view_stop();
	tree_kill(KILL_MS);
	exec_run_ended();
	engine_stop();
	if (stack_alive()) {
		stack_dead();
		stack->halt();
	}
	ctl_close_all();
	if (!keeper_cleanup())
		log_line("there is no keeper; run `lklrun cleanup` to undo the remaining changes to the host");
	_exit(HOST_EXIT_OK);
}

const struct target_ops host_target_ops = { .ended = target_ended,
					    .stop = host_stop };
