// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exchange what a call uses while it is made. This is the command of a run.
 *
 *	exchange SECONDS SEED KIND...	try to leave the run
 *	exchange outside		run the accomplice on the host
 *
 * Thread A of a worker process makes calls that lklhost handles. B, a thread or
 * a process with the same memory and files, exchanges, at random moments, what
 * these calls use: the descriptor, the memory, or the instruction (the kinds).
 * Or the thread leaves the call in another way: rseq(2), syscall user dispatch,
 * exec, signals.
 * A worker lives for a part of a second, because the engine trace kills it when
 * it exchanges an instruction.
 *
 * The accomplice passes a TCP socket of the host to each process that connects
 * to it, again and again. It and the listener know what has come out: each
 * descriptor that the worker gets, it writes to, and nothing may arrive.
 *
 * The environment names the accomplice's socket (EXCHANGE_OUTSIDE), the port of
 * the host's listener (EXCHANGE_PORT), and a device of the host with its
 * address (EXCHANGE_DEVICE, EXCHANGE_MAC), which no worker may learn.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exchange.h"

#define SLICE_MS	400
#define CLIENTS		64

__thread uint64_t rnd_state;
struct count *count;
static uint64_t turn;	/* count->ended when the worker began */

static const struct kind *const kinds[] = { &descriptors, &memory, &channel,
					    &instructions, &loop, &sections,
					    &dispatch, &execs, &shared_execs,
					    &vforks, &signals, &filters };

/** add - count something */
void add(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/** setting - get the setting EXCHANGE_@name of the test */
static const char *setting(const char *name)
{
	char key[64];
	const char *value;

	snprintf(key, sizeof(key), "EXCHANGE_%s", name);
	value = getenv(key);
	return value ? value : "";
}

/** tell - write what the listener hears if the descriptor is a socket of the host */
void tell(int fd)
{
	if (send(fd, "escaped\n", 8, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

/** escaped - report a success of the worker's own knowledge */
void escaped(const char *how)
{
	printf("escaped: %s\n", how);
	fflush(stdout);
}

/** local_address - set @addr, a struct sockaddr_in, to the host's listener */
void local_address(void *addr)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	in.sin_port = htons((uint16_t)atoi(setting("PORT")));
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(addr, &in, sizeof(in));
}

/** outside_path - get the path of the accomplice's socket; SOCK_SEQPACKET: with a "q" */
const char *outside_path(void)
{
	return setting("OUTSIDE");
}

/** outside_address - get the accomplice's address */
static struct sockaddr_un outside_address(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", outside_path());
	return un;
}

/** outside_connect - connect to the accomplice */
int outside_connect(void)
{
	struct sockaddr_un un = outside_address();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (connect(fd, (struct sockaddr *)&un, sizeof(un)))
		escaped("nothing: no accomplice");	/* the test is wrong */
	return fd;
}

/** send_socket - send the host's socket @fd */
static bool send_socket(int to, int fd)
{
	union {
		struct cmsghdr head;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
			    .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { "x", 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1,
			     .msg_control = &ctl, .msg_controllen = sizeof(ctl) };

	memcpy(CMSG_DATA(&ctl.head), &fd, sizeof(fd));
	return sendmsg(to, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

/** outside - be the accomplice, until standard input ends */
static int outside(void)
{
	struct sockaddr_un un = outside_address();
	struct pollfd fds[3 + CLIENTS] = { { .fd = 0, .events = POLLIN } };
	struct sockaddr_in in;
	int i, n = 1, tcp = socket(AF_INET, SOCK_STREAM, 0);

	local_address(&in);
	for (; n < 3; n++) {
		fds[n].fd = socket(AF_UNIX, n == 1 ? SOCK_STREAM : SOCK_SEQPACKET, 0);
		fds[n].events = POLLIN;
		if (bind(fds[n].fd, (struct sockaddr *)&un, sizeof(un)) ||
		    chmod(un.sun_path, 0666) || listen(fds[n].fd, CLIENTS))
			return 1;
		strcat(un.sun_path, "q");
	}
	if (connect(tcp, (struct sockaddr *)&in, sizeof(in)))
		return 1;
	puts("ready");
	fflush(stdout);
	while (poll(fds, (nfds_t)n, -1) > 0 && !fds[0].revents) {
		for (i = n - 1; i > 2; i--) {
			if (!fds[i].revents || send_socket(fds[i].fd, tcp))
				continue;
			close(fds[i].fd);
			fds[i] = fds[--n];
		}
		for (i = 1; i < 3; i++)
			if (fds[i].revents && n < 3 + CLIENTS)
				fds[n++] = (struct pollfd){ accept(fds[i].fd, NULL, NULL),
							    POLLOUT, 0 };
	}
	return 0;
}

/** arrived - handle the descriptors of a received message */
static void arrived(struct msghdr *mh)
{
	struct cmsghdr *cm;
	size_t i, n;
	int fd;

	add(&count->messages);
	for (cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		if (cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(cm) + i * sizeof(fd), sizeof(fd));
			add(&count->received);
			tell(fd);
			close(fd);
		}
	}
}

/** receive - receive one or @several messages, with descriptors */
void receive(int fd, bool several)
{
	char byte[2][64] = { 0 }, ctl[2][CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov[2];
	struct mmsghdr mm[2];
	int i, n;

	for (i = 0; i < 2; i++) {
		iov[i] = (struct iovec){ byte[i], 1 };
		mm[i].msg_hdr = (struct msghdr){
			.msg_iov = &iov[i], .msg_iovlen = 1,
			.msg_control = ctl[i], .msg_controllen = sizeof(ctl[i]) };
	}
	n = several ? recvmmsg(fd, mm, 2, MSG_DONTWAIT, NULL) :
	    recvmsg(fd, &mm[0].msg_hdr, MSG_DONTWAIT) >= 0;
	for (i = 0; i < n; i++)
		arrived(&mm[i].msg_hdr);
}

/**
 * exchanger - main function of B
 *
 * It ends with the worker. The worker can end before prctl(), and a B that stays takes the
 * CPU from all later workers.
 */
static int exchanger(void *arg)
{
	const struct kind *kind = arg;
	volatile uint64_t spin;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rnd_seed((uint64_t)getpid());
	while (__atomic_load_n(&count->ended, __ATOMIC_RELAXED) == turn) {
		for (spin = below(4000); spin; spin--)
			;
		kind->exchange();
		add(&count->exchanges);
	}
	return 0;
}

/** start - start B, untraced if possible */
static void start(const struct kind *kind)
{
	static char stack[64 * 1024] __attribute__((aligned(16)));
	int flags = CLONE_VM | CLONE_FS, untraced = CLONE_UNTRACED;

	flags |= kind->flags ? kind->flags : below(2) ? CLONE_FILES | SIGCHLD :
							CLONE_FILES | THREAD;
	if (clone(exchanger, stack + sizeof(stack), flags | untraced, (void *)kind) < 0 &&
	    clone(exchanger, stack + sizeof(stack), flags, (void *)kind) < 0)
		_exit(1);
}

/**
 * execute - execute the program again, which tries what it has inherited
 *
 * Half of the times it is the interpreter of a script, on a descriptor that B may exchange.
 */
void execute(void)
{
	static const char script[] = "#!/proc/self/exe executed\n";
	int fd = below(2) ? memfd_create("script", 0) : -1;
	char name[32];

	if (write(fd, script, sizeof(script) - 1) > 0) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		snprintf(name, sizeof(name), "/proc/self/fd/%d", open(name, O_RDONLY));
		close(fd);	/* a file that is open for writing cannot be executed */
		execl(name, name, NULL);
	}
	execl("/proc/self/exe", "exchange", "executed", NULL);
	_exit(1);
}

/** executed - main function after that */
static int executed(void)
{
	struct sockaddr_in in;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	local_address(&in);
	connect(fd, (struct sockaddr *)&in, sizeof(in));
	for (fd = 3; fd < 100; fd++) {
		tell(fd);
		receive(fd, false);
	}
	return EXECUTED;
}

/** now_ms - get the time */
static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/** work - main function of a worker */
static void work(const struct kind *kind)
{
	uint64_t end = now_ms() + SLICE_MS;

	alarm(10);
	kind->set_up();
	start(kind);
	while (now_ms() < end) {
		kind->call();
		add(&count->calls);
	}
	_exit(0);
}

/** fork_as - fork a process with the number @pid of one that has ended, if possible */
static pid_t fork_as(pid_t pid)
{
	struct clone_args args = { .exit_signal = SIGCHLD,
				   .set_tid = (uintptr_t)&pid, .set_tid_size = 1 };
	long ret = pid ? syscall(SYS_clone3, &args, sizeof(args)) : -1;

	return ret < 0 ? fork() : (pid_t)ret;
}

/** try - run one worker; false if it could not be started */
static bool try(const struct kind *kind, uint64_t seed)
{
	static pid_t pid;
	int status;

	turn = count->ended;
	pid = fork_as(pid);
	if (pid < 0)
		return false;
	if (!pid) {
		rnd_seed(seed);
		work(kind);
	}
	if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		add(&count->killed);
	else if (WIFEXITED(status) && WEXITSTATUS(status) == EXECUTED)
		add(&count->executed);
	add(&count->ended);
	while (waitpid(-1, NULL, WNOHANG) > 0)	/* made with CLONE_PARENT */
		;
	return true;
}

/** find - find a kind by its name */
static const struct kind *find(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i]->name, name))
			return kinds[i];
	fprintf(stderr, "no kind %s\n", name);
	exit(2);
}

/** main - see above */
int main(int argc, char **argv)
{
	uint64_t seed, end;

	if (argc == 2 && !strcmp(argv[1], "outside"))
		return outside();
	count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc >= 2 && !strcmp(argv[1], "executed"))
		return executed();
	if (argc < 4)
		return 2;
	end = now_ms() + strtoull(argv[1], NULL, 0) * 1000;
	seed = strtoull(argv[2], NULL, 0);
	for (rnd_seed(seed); now_ms() < end; seed++)
		if (!try(find(argv[3 + below((uint64_t)argc - 3)]), seed))
			return 1;
	printf("calls %llu exchanges %llu messages %llu descriptors %llu killed %llu executed %llu\n",
	       (unsigned long long)count->calls,
	       (unsigned long long)count->exchanges,
	       (unsigned long long)count->messages,
	       (unsigned long long)count->received,
	       (unsigned long long)count->killed,
	       (unsigned long long)count->executed);
	return 0;
}
