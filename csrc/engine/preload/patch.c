// SPDX-License-Identifier: GPL-2.0-only
/*
 * Patches the system calls of the C library.
 *
 * Theory of operation
 *
 * The engine replaces system-call instructions, not functions. So it also sees
 * calls that the C library makes for itself: the resolver's sockets, the
 * close() inside getifaddrs(), stdio, posix_spawn. errno, cancellation and
 * restarts remain the C library's, and one table by call number serves all
 * calls (dispatch.c).
 *
 * It patches a copy of the library's code in anonymous memory, which then
 * replaces the original. So no page is ever writable and executable at the same
 * time. Nor is a page of a file modified and executed: SELinux calls that
 * execmod and allows it to fewer programs than execmem.
 *
 * The instructions to patch and their replacements depend on the CPU:
 * arch_patch().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "engine/preload/internal.h"
#include "engine/preload/libc.h"
#include "engine/preload/patch.h"

/** find_text - dl_iterate_phdr() callback */
static int find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct text *t = arg;
	int i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_LOAD && (ph->p_flags & PF_X) &&
		    t->fn >= start && t->fn < start + ph->p_memsz) {
			t->start = (unsigned char *)start;
			t->end = t->start + ph->p_memsz;
			t->readable = ph->p_flags & PF_R;
			return 1;
		}
	}
	return 0;
}

/** text_copy - copy the pages of the text, to patch the copy */
static int text_copy(struct text *t)
{
	uintptr_t psize = getauxval(AT_PAGESZ), end;
	void *p;

	t->page = (unsigned char *)((uintptr_t)t->start & ~(psize - 1));
	end = ((uintptr_t)t->end + psize - 1) & ~(psize - 1);
	t->len = end - (uintptr_t)t->page;
	/* The text of Android 10 on arm64 is execute-only. */
	if (!t->readable &&
	    mprotect(t->page, t->len, PROT_READ | PROT_EXEC))
		return -errno;
	p = mmap(NULL, t->len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	t->copy = p;
	memcpy(t->copy, t->page, t->len);
	return 0;
}

/** text_replace - replace the text by the copy */
static int text_replace(const struct text *t)
{
	long ret;

	if (pool_seal() || mprotect(t->copy, t->len, PROT_READ | PROT_EXEC))
		return -errno;
	/*
	 * Not the C library's mremap(): it would return to code that is
	 * unmapped.
	 */
	ret = RAW5(mremap, t->copy, t->len, t->len,
		   MREMAP_MAYMOVE | MREMAP_FIXED, t->page);
	if (ret < 0 && ret > -4096)
		return (int)ret;
	__builtin___clear_cache((char *)t->page, (char *)t->page + t->len);
	return 0;
}

/** say - format an error for the caller of preload_prepare() */
static int say(char *err, size_t errlen, int ret, const char *what)
{
	snprintf(err, errlen, "%s: %s", what, strerror(-ret));
	return ret;
}

/**
 * patch_libc - patch every system call of interest
 *
 * The caller must be the only thread.
 */
int patch_libc(char *err, size_t errlen)
{
	struct text t = { .fn = (uintptr_t)dlsym(RTLD_DEFAULT, "recvfrom") };
	int ret, n;

	if (!t.fn || !dl_iterate_phdr(find_text, &t))
		return say(err, errlen, -ENOEXEC,
			   "finding the code of the C library");
	ret = pool_make(&t, arch_reach);
	if (ret)
		return say(err, errlen, ret,
			   "finding room near the C library");
	ret = text_copy(&t);
	if (ret)
		return say(err, errlen, ret, "copying the C library's code");
	n = arch_patch(&t);
	if (n < 0)
		return say(err, errlen, n, "patching the C library");
	if (n < libc_calls)	/* statically linked, or an unknown C library */
		return say(err, errlen, -ENOEXEC,
			   "finding the system calls of the C library");
	ret = text_replace(&t);
	return ret ? say(err, errlen, ret,
			 "having the patched code of the C library executed") : 0;
}
