// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frames that gather: they do not wake the process, none is lost, and the first
 * data in the other direction end the wait.
 */
#include "onloop.h"

#define IN_PORT		7575
#define SIZE		1400
#define PACE_NS		(MS / 2)	/* 22 Mbit/s */
#define LIMIT_US	20000

static int host;
static long ours;
static unsigned int sent, got;

static void to_stack(void)
{
	static char buf[SIZE];

	sent += send(host, buf, sizeof(buf), 0) == sizeof(buf);
}

static long from_stack(int size)
{
	static char buf[SIZE];

	return L3(write, ours, buf, size);
}

static void drain(void)
{
	static char buf[SIZE];

	while (L3(read, ours, buf, sizeof(buf)) == sizeof(buf))
		got++;
}

static int sockets(void)
{
	struct sockaddr_in here = addr4(OURS, IN_PORT), there = addr4(HOST, IN_PORT);

	host = socket(AF_INET, SOCK_DGRAM, 0);
	ours = L3(socket, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	if (bind(host, (struct sockaddr *)&there, sizeof(there)) ||
	    L3(bind, ours, &here, sizeof(here)) ||
	    L3(connect, ours, &there, sizeof(there)))
		return 1;
	/* makes the host's kernel ask for our address, which only turns answer */
	return connect(host, (struct sockaddr *)&here, sizeof(here)) ? 1 : 0;
}

/*
 * Sends to the stack, and with @both to the host, until @ms have passed or, if
 * @hold, until frames gather. Returns whether they do.
 */
static int flow(unsigned int ms, int both, int hold)
{
	uint64_t end = now_ns() + (uint64_t)slow(ms) * MS, next = now_ns();

	while (now_ns() < end && !(hold && lkl_holding())) {
		if (now_ns() >= next) {
			to_stack();
			if (both)
				from_stack(SIZE);
			next += PACE_NS;
		}
		turn(PACE_NS / 4);
		drain();
	}
	return lkl_holding();
}

static int nothing_ready(void)
{
	struct epoll_event ev;

	return epoll_wait(ep, &ev, 1, 0) == 0;
}

/* Whether frames wait unnoticed until a deadline */
static int unnoticed(void)
{
	long long ns;
	int i, quiet;

	/* Again if this process was too slow, and the time is over. */
	for (i = 0; i < 20; i++) {
		if (!flow(4000, 0, 1))
			return 0;
		to_stack();
		quiet = nothing_ready();
		ns = lkl_loop_step();
		if (lkl_holding())
			return quiet && ns > 0 && ns <= LIMIT_US * 1000LL;
	}
	return 0;
}

/* Whether frames still gather after a small datagram of the stack */
static int small_ignored(void)
{
	int i;

	for (i = 0; i < 20; i++) {
		if (!flow(4000, 0, 1) || from_stack(40) != 40)
			return 0;
		if (lkl_holding())
			return 1;
	}
	return 0;
}

static int all_arrived(void)
{
	uint64_t end = now_ns() + (uint64_t)slow(4e9);

	while (got < sent && now_ns() < end) {
		turn(MS);
		drain();
	}
	return got == sent;
}

static int gather(void)
{
	unsigned long n;

	if (sockets() || !echo(1))
		return 11;
	flow(300, 0, 1);
	ok(lkl_holds() == 0, "without a limit, frames do not gather");

	lkl_set_coalesce(LIMIT_US);
	ok(unnoticed(), "frames of a transfer do not wake the loop for a while");
	ok(all_arrived(), "they all arrive");

	if (!flow(4000, 0, 1))
		return 12;
	ok(from_stack(SIZE) == SIZE && !lkl_holding(),
	   "data in the other direction end the wait");
	to_stack();
	ok(!nothing_ready(), "the next frame wakes the loop");

	n = lkl_holds();
	flow(300, 1, 0);
	ok(lkl_holds() == n, "frames of a dialogue do not gather");
	ok(small_ignored(), "a small datagram, maybe an acknowledgement, does not end the wait");
	ok(all_arrived(), "all frames have arrived");

	if (!flow(4000, 0, 1))
		return 13;
	lkl_netdev_remove(dev_id);
	turns(50);
	ok(!lkl_holding(), "a device can be removed meanwhile");
	return tap_failed ? 1 : 0;
}

int main(void)
{
	pid_t pids[2];
	int i, ret;

	start(120);
	peer_ip = HOST;
	if (own_netns() || sh("ip tuntap add " DEV " mode tap vnet_hdr && "
			      "ip addr add " HOST "/24 dev " DEV " && ip link set " DEV " up")) {
		skip("no namespace or no tap");
		return finish();
	}
	host_server(pids);
	ret = with_loop(LKL_OFFLOAD_ALL, gather, 0);
	ok(ret == 0, "frames gather only in a transfer: %d", ret);
	for (i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return finish();
}
