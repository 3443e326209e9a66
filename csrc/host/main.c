// SPDX-License-Identifier: GPL-2.0-only
/*
 * lklhost: the process that hosts the stack.
 *
 *	lklhost --run DIR --name NAME --stack LIB
 *		[--abi auto|native|new|old|host] [--preload LIB | --trace]
 *		[--ctl-fd N] [--lock-fd N] [--cleanup-fd N]
 *		[--no-userns] [--hide] [--host-net ADDRESS/BITS[,PORT]]...
 *		[--user UID:GID[:GROUP,GROUP...]]
 *		-- CMD [ARG...]
 *	lklhost --run DIR --name NAME --stack LIB --ctl-fd N --gateway N
 *
 * Theory of operation
 *
 * lklhost starts in this order:
 *
 * 1. Parse the command line.
 * 2. Fork the helpers (helper.c).
 * 3. Move into a private network namespace.
 * 4. Fork the target, which waits.
 * 5. Load the stack.
 * 6. Start the control server.
 * 7. Drop the privileges that are no longer needed (isolation.c).
 * 8. Run the loop.
 *
 * All further steps (devices, boot, configuration, GO) are requests on the
 * control connection, --ctl-fd.
 *
 * With --preload, the target executes its program at once, with LIB loaded into
 * it. LIB loads the stack there and waits before main() (engine/link).
 *
 * With --gateway, there is no target: gateway_mode.c.
 *
 * The descriptors named by the options belong to lklhost. The target inherits
 * all other open descriptors: the process that started lklrun passed them for
 * the target.
 *
 * An error before the loop runs is reported in one line: a CTL_EV_WARN frame
 * with id 0 on --ctl-fd, or a line on standard error if there is no --ctl-fd.
 * The exit status is then 2, and the target has not run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/trap.h"
#include "control/control.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/hostnet.h"
#include "engine/carrier/space.h"
#include "engine/link/link.h"
#include "engine/supervise/supervise.h"
#include "host/host.h"
#include "mirror/mirror.h"
#include "process/process.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"
#include "target/target.h"
#include "view/view.h"

static const struct view_ops view_calls = {
	.carrier_ino = conn_carrier_ino,
	.enter = space_enter_of,
	.leave = space_leave,
};

/** fatal - report an error, kill the target if there is one, and exit */
__attribute__((noreturn, format(printf, 1, 2)))
static void fatal(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (host.run_dir)
		log_line("%s", text);
	if (ctl_fatal(host.ctl_fd, text))
		fprintf(stderr, "lklhost: %s\n", text);
	if (host.target_pid > 0) {
		kill(host.target_pid, SIGKILL);
		waitpid(host.target_pid, NULL, 0);
	}
	exit(HOST_EXIT_USAGE);
}

static const struct option options[] = {
	{ "run", required_argument, NULL, 'r' },
	{ "name", required_argument, NULL, 'n' },
	{ "stack", required_argument, NULL, 's' },
	{ "abi", required_argument, NULL, 'a' },
	{ "ctl-fd", required_argument, NULL, 'f' },
	{ "lock-fd", required_argument, NULL, 'l' },
	{ "cleanup-fd", required_argument, NULL, 'c' },
	{ "no-userns", no_argument, NULL, 'u' },
	{ "hide", no_argument, NULL, 'H' },
	{ "host-net", required_argument, NULL, 'h' },
	{ "gateway", required_argument, NULL, 'g' },
	{ "preload", required_argument, NULL, 'p' },
	{ "trace", no_argument, NULL, 't' },
	{ "user", required_argument, NULL, 'U' },
	{ "version", no_argument, NULL, 'v' },
	{ 0 },
};

/**
 * parse_fd - parse the number of an open descriptor; returns -1 if it is
 * invalid
 */
static int parse_fd(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (!*text || *end || n < 0 || n > 1 << 20 || fcntl((int)n, F_GETFD) < 0)
		return -1;
	return (int)n;
}

/** own_fd - parse a descriptor of lklhost, which the target must not inherit */
static int own_fd(const char *option, const char *text)
{
	int fd = parse_fd(text);

	if (fd < 0)
		fatal("%s %s: not an open descriptor", option, text);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

/** abi_known - whether @abi is a valid value of --abi */
static bool abi_known(const char *abi)
{
	static const char *const known[] = { "auto", "native", "new", "old",
					     "host" };
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(abi, known[i]))
			return true;
	return false;
}

/**
 * parse - parse the command line into struct lklhost; returns the target's argv
 */
static char **parse(int argc, char **argv)
{
	struct stat st;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:", options, NULL)) != -1) {
		switch (c) {
		case 'r':
			host.run_dir = optarg;
			break;
		case 'n':
			host.name = optarg;
			break;
		case 's':
			host.stack_path = optarg;
			break;
		case 'a':
			host.abi = optarg;
			break;
		case 'f':
			host.ctl_fd = own_fd("--ctl-fd", optarg);
			break;
		case 'l':
			host.lock_fd = own_fd("--lock-fd", optarg);
			break;
		case 'c':
			host.cleanup_fd = own_fd("--cleanup-fd", optarg);
			break;
		case 'g':
			host.gateway_fd = own_fd("--gateway", optarg);
			break;
		case 'p':
			host.preload = optarg;
			break;
		case 't':
			host.trace = true;
			break;
		case 'u':
			host.no_userns = true;
			break;
		case 'H':
			host.hide = true;
			break;
		case 'h':
			if (hostnet_add(optarg))
				fatal("--host-net %s: expected ADDRESS/BITS[,PORT], 64 times at most",
				      optarg);
			break;
		case 'U':
			if (!user_set(optarg))
				fatal("--user %s: expected UID:GID[:GROUP,GROUP...]",
				      optarg);
			break;
		case 'v':
			printf("lklhost, control protocol %d\n", CTL_VERSION);
			exit(HOST_EXIT_OK);
		case ':':
			fatal("%s: needs a value", argv[optind - 1]);
		default:
			fatal("%s: unknown option", argv[optind - 1]);
		}
	}
	if (!abi_known(host.abi))
		fatal("--abi %s: is auto, native, new, old or host", host.abi);
	if (!host.run_dir || !host.name)
		fatal("--run DIR and --name NAME are required: lklhost is started by lklrun");
	if (!host.stack_path && strcmp(host.abi, "host"))
		fatal("--stack LIB is required, except with --abi host");
	if (stat(host.run_dir, &st) || !S_ISDIR(st.st_mode))
		fatal("--run %s: not a directory", host.run_dir);
	if (host.preload && host.trace)
		fatal("--preload and --trace: use one of them");
	if (host.preload && strcmp(host.abi, "auto") &&
	    strcmp(host.abi, "native"))
		fatal("--preload: not with --abi %s: a program loads a stack of our own only",
		      host.abi);
	if (host.gateway_fd >= 0 && (host.preload || host.trace || optind < argc))
		fatal("--gateway: a gateway has no command");
	if (host.gateway_fd < 0 && optind >= argc)
		fatal("no command: give one after --");
	return argv + optind;
}

/** host_call - make a system call for trap_answer() */
static long host_call(long nr, const long *a)
{
	long ret = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	return ret < 0 ? -errno : ret;
}

/** main - start lklhost, see the top of this file */
int main(int argc, char **argv)
{
	char err[512] = "";
	char **command;
	int ret;

	trap_init(host_call);
	host.start_ns = now_ns();
	stack_panicked = host_panicked;
	ctl_ops = &host_ctl_ops;
	command = parse(argc, argv);
	if (fcntl(host.ctl_fd, F_SETFD, FD_CLOEXEC) < 0)
		fatal("descriptor %d is not open: lklhost is started by lklrun",
		      host.ctl_fd);
	ret = log_open(host.run_dir);
	if (ret)
		fatal("opening %s/log: %s", host.run_dir, strerror(-ret));
	if (getrandom(&host.instance, sizeof(host.instance), 0) !=
	    (ssize_t)sizeof(host.instance))
		fatal("getrandom: %s", strerror(errno));

	if (host.gateway_fd >= 0) {
		ret = gateway_start(err, sizeof(err));
		if (ret)
			fatal("starting a gateway: %s", *err ? err : strerror(-ret));
		loop_run();
		return HOST_EXIT_OK;
	}
	ret = user_rehearse();
	if (ret)
		fatal("--user: the command cannot become another user: %s",
		      strerror(-ret));
	if (hostnet_any()) {
		ret = home_start();
		if (ret)
			fatal("starting a helper in the host's network namespace: %s",
			      strerror(-ret));
	}
	ret = keeper_start();
	if (ret)
		fatal("starting a keeper of the rights on the host: %s",
		      strerror(-ret));
	ret = netns_private();
	if (ret)
		fatal("making a user namespace: its map of ids: %s: run as root",
		      strerror(-ret));
	if (!host.preload && host.private_netns) {
		ret = maker_start();
		if (ret)
			fatal("starting a helper for packet sockets: %s",
			      strerror(-ret));
	}
	if (host.preload && link_init(err, sizeof(err)))
		fatal("%s", err);
	if (!host.preload && strcmp(host.abi, "host"))
		view_open(&view_calls);
	if (target_fork(command, err, sizeof(err)))
		fatal("%s", err);
	isolate_descriptors();
	ret = loop_init();
	log_take_stdio();	/* the target has already inherited them */
	if (!host.preload &&
	    stack_open(host.stack_path, host.abi, err, sizeof(err)))
		fatal("%s", err);
	if (!ret)
		ret = target_watch(&host_target_ops);
	if (!ret && host.preload)
		ret = link_watch();
	if (!ret)
		ret = engine_init(target_listener());
	if (ret)
		fatal("setting up the event loop: %s", strerror(-ret));
	ret = ctl_init(host.ctl_fd);
	if (ret)
		fatal("creating %s/ctl.sock: %s", host.run_dir, strerror(-ret));
	isolate();
	loop_run();
	ctl_close_all();
	return HOST_EXIT_OK;
}
