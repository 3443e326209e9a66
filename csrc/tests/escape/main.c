// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attempts to leave a run, made by the command of a run.
 *
 *	escape list			print the names of all attempts
 *	escape [wait] NAME...		make them; print one line for each: NAME OUTCOME
 *	escape bare NAME		make one, print only its outcome
 *	escape outside			run the accomplice on the host (outside.c)
 *
 * With "wait" it first prints "ready" and continues when it reads a line from
 * standard input. The environment contains the targets of the attempts
 * (ESCAPE_*, setting()).
 *
 * The outcome is the name of the error that refused the attempt, or a word:
 *
 *	reached		it got what it should not get
 *	allowed		the host's kernel allows it, and it does not lead to the network
 *	stack		it got the run's own stack
 *	own		it got something new in the run's own empty namespace
 *	withheld	a descriptor did not arrive
 *	tried		only the host can see the result
 *	refused		one of lklrun's programs ended with an error
 *	closed		the other side hung up
 *	absent		this kernel does not have the feature
 *	SIG...		the signal that ended it
 *
 * Each attempt runs in its own process, for ten seconds at most. If ESCAPE_HERE
 * is set, the first process itself makes the attempts on sockets and
 * descriptors. Under a preloaded library, only this process has the stack.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

#define SECONDS	10

const char *self;

static const struct attempt *const tables[] = {
	socket_attempts, door_attempts, process_attempts, space_attempts,
	fd_attempts, name_attempts, hostnet_attempts, exchange_attempts,
};

/** failure - return the name of an error */
const char *failure(int err)
{
	const char *name = strerrorname_np(err);

	return name ? name : "unknown";
}

/** word - format an outcome; valid until the next call */
const char *word(const char *format, ...)
{
	static char text[200];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return text;
}

/** setting - return the setting @name of the test, from ESCAPE_@name */
const char *setting(const char *name)
{
	char key[64];
	const char *value;

	snprintf(key, sizeof(key), "ESCAPE_%s", name);
	value = getenv(key);
	return value ? value : "";
}

/** number - return a numeric setting */
long number(const char *name)
{
	return strtol(setting(name), NULL, 0);
}

/** mark - send bytes that reveal the attempt to any receiver */
void mark(int fd, const char *name)
{
	char text[100];
	int n = snprintf(text, sizeof(text), "lklrun-escape %s\n", name);

	if (write(fd, text, (size_t)n) < 0)
		return;		/* then no receiver exists */
}

/** first_word - return what a child has written, or how it ended */
static const char *first_word(int fd, pid_t pid)
{
	char text[200];
	ssize_t n = 0, more;
	int status;

	while (n < (ssize_t)sizeof(text) - 1 &&
	       (more = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
		n += more;
	close(fd);
	if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		return word("SIG%s", sigabbrev_np(WTERMSIG(status)));
	if (!n)
		return "silent";
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return word("%s", text);
}

/** child - fork a process with a pipe to us; returns 0 in it, where @fd is the end to write to */
static pid_t child(int *fd)
{
	int p[2];
	pid_t pid;

	if (pipe(p))
		return -1;
	pid = fork();
	*fd = p[pid == 0];
	close(p[pid != 0]);
	return pid;
}

/** in_child - return the outcome of @run in a process of its own */
const char *in_child(const char *(*run)(const struct attempt *at),
		     const struct attempt *at)
{
	int fd;
	pid_t pid = child(&fd);

	if (pid < 0)
		return failure(errno);
	if (!pid) {
		alarm(SECONDS);
		dprintf(fd, "%s\n", run(at));
		_exit(0);
	}
	return first_word(fd, pid);
}

/**
 * by_exec - return the outcome of the attempt @name in another program of these
 * tests, @path
 * @bare: without LD_PRELOAD
 */
const char *by_exec(const char *path, const char *name, bool bare)
{
	int fd;
	pid_t pid = child(&fd);

	if (pid < 0)
		return failure(errno);
	if (!pid) {
		dup2(fd, 1);
		if (bare)
			unsetenv("LD_PRELOAD");
		execl(path, path, "bare", name, (char *)NULL);
		dprintf(fd, "%s\n", failure(errno));
		_exit(0);
	}
	return first_word(fd, pid);
}

/** tool_status - run a program of lklrun; returns "status N" */
const char *tool_status(const char *tool, const char *const args[])
{
	char path[4096];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/%s", setting("BIN"), tool);
	pid = fork();
	if (!pid) {
		if (dup2(2, 1) < 0)
			_exit(126);
		execv(path, (char *const *)args);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return failure(errno);
	return WIFEXITED(status) ? word("status %d", WEXITSTATUS(status)) :
				   word("SIG%s", sigabbrev_np(WTERMSIG(status)));
}

/** find - find an attempt by its name */
static const struct attempt *find(const char *name)
{
	const struct attempt *at;
	size_t i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (at = tables[i]; at->name; at++)
			if (!strcmp(at->name, name))
				return at;
	return NULL;
}

/** here - whether the first process itself makes the attempt */
static bool here(const struct attempt *at)
{
	const struct attempt *const in[] = { socket_attempts, fd_attempts };
	const struct attempt *s;
	size_t i;

	for (i = 0; i < 2 && *setting("HERE"); i++)
		for (s = in[i]; s->name; s++)
			if (s == at)
				return true;
	return false;
}

/** list - print all names */
static int list(void)
{
	const struct attempt *at;
	size_t i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (at = tables[i]; at->name; at++)
			puts(at->name);
	return 0;
}

/** make - make one attempt and print its line */
static void make(const char *name)
{
	const struct attempt *at = find(name);
	const char *outcome = "unknown";

	if (at)
		outcome = here(at) ? at->run(at) : in_child(at->run, at);
	printf("%s %s\n", name, outcome);
	fflush(stdout);
}

/** wait_for_line - print "ready" and wait for a line */
static void wait_for_line(void)
{
	char c = 0;

	printf("ready %d\n", getpid());
	fflush(stdout);
	while (c != '\n' && read(0, &c, 1) == 1)
		;
}

/** main - see above */
int main(int argc, char **argv)
{
	int i = 1;

	self = argv[0];
	signal(SIGPIPE, SIG_IGN);
	/* As the interpreter of a program, we get its name first. */
	if (argc == 4 && !strcmp(argv[2], "bare")) {
		argc--;
		argv++;
	}
	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "list"))
		return list();
	if (!strcmp(argv[1], "outside"))
		return outside();
	if (!strcmp(argv[1], "bare") && argc == 3) {
		const struct attempt *at = find(argv[2]);

		alarm(SECONDS);
		puts(at ? at->run(at) : "unknown");
		return 0;
	}
	if (!strcmp(argv[1], "wait")) {
		wait_for_line();
		i++;
	}
	for (; i < argc; i++)
		make(argv[i]);
	return 0;
}
