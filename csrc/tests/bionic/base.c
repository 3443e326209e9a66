// SPDX-License-Identifier: GPL-2.0-only
/*
 * A stand-in for bionic's functions, based on glibc: those with other names or other
 * structures than in glibc and musl. libc.so (stubs.S) names this library.
 *
 * Like bionic, it has an environment only after its constructor has run. The
 * constructor also makes the code of libc.so unreadable. CPUs that support
 * execute-only memory do that for the code of Android 10, but few CPUs do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RESERVED	38	/* the first signal that programs may use */

struct bionic_action {
	int flags;
	void (*handler)(int sig, siginfo_t *si, void *ctx);
	uint64_t mask;
	void (*restorer)(void);
};

int *__errno(void);
long set_errno(int err);
int __libc_current_sigrtmin(void);
int bionic_sigaction(int sig, const struct bionic_action *act,
		     struct bionic_action *old) __asm__("sigaction");

static int *(*errno_of_glibc)(void);
static int (*sigaction_of_glibc)(int sig, const struct sigaction *act,
				 struct sigaction *old);
static char *(*getenv_of_glibc)(const char *name);

int *__errno(void)
{
	return errno_of_glibc();
}

/** set_errno - called by the stubs */
long set_errno(int err)
{
	*__errno() = err;
	return -1;
}

int __libc_current_sigrtmin(void)
{
	return RESERVED;
}

char *getenv(const char *name)
{
	return getenv_of_glibc ? getenv_of_glibc(name) : NULL;
}

int bionic_sigaction(int sig, const struct bionic_action *act,
		     struct bionic_action *old)
{
	struct sigaction new, was;
	int ret;

	memset(&new, 0, sizeof(new));
	if (act) {
		new.sa_flags = act->flags;
		new.sa_sigaction = act->handler;
		memcpy(&new.sa_mask, &act->mask, sizeof(act->mask));
	}
	ret = sigaction_of_glibc(sig, act ? &new : NULL, &was);
	if (!ret && old) {
		*old = (struct bionic_action){ .flags = was.sa_flags,
					       .handler = was.sa_sigaction };
		memcpy(&old->mask, &was.sa_mask, sizeof(old->mask));
	}
	return ret;
}

__attribute__((constructor)) static void start(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *glibc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	uintptr_t code = (uintptr_t)dlsym(RTLD_DEFAULT, "recvfrom") & ~(page - 1);

	*(void **)&errno_of_glibc = dlsym(glibc, "__errno_location");
	*(void **)&sigaction_of_glibc = dlsym(glibc, "sigaction");
	*(void **)&getenv_of_glibc = dlsym(glibc, "getenv");
	if (mprotect((void *)code, page, PROT_NONE))
		abort();
}
