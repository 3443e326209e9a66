// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stack library of a statically linked lklhost. Such a build is for
 * machines with an unknown C library: it contains one stack library and cannot
 * load another.
 *
 * Theory of operation
 *
 * In this build, too, --stack names a file, which the engine preload loads into
 * programs. The build id of that file (ld(1), --build-id) must match that of
 * the stack linked in, which is known at compile time.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stack/backend.h"
#include "stack/stack_functions.h"

#ifndef STACK_BUILD_ID
#error "STACK_BUILD_ID: the build id of the library that is linked in, in hexadecimal"
#endif

#define DECLARE(name)	extern void lkl_##name(void);
STACK_FUNCTIONS(DECLARE)

#define ENTRY(name)	{ "lkl_" #name, lkl_##name },
static const struct {
	const char *name;
	void (*fn)(void);
} functions[] = { STACK_FUNCTIONS(ENTRY) };

/** hex_is - whether @len bytes have the hexadecimal form @text */
static bool hex_is(const uint8_t *bytes, size_t len, const char *text)
{
	char digits[3];
	size_t i;

	if (strlen(text) != 2 * len)
		return false;
	for (i = 0; i < len; i++) {
		snprintf(digits, sizeof(digits), "%02x", bytes[i]);
		if (memcmp(digits, text + 2 * i, 2))
			return false;
	}
	return true;
}

/** notes_have_id - whether one of the notes at @p has our build id, elf(5) */
static bool notes_have_id(const uint8_t *p, size_t len)
{
	while (len >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) n;
		size_t name, desc;

		memcpy(&n, p, sizeof(n));
		name = ((size_t)n.n_namesz + 3) & ~(size_t)3;
		desc = ((size_t)n.n_descsz + 3) & ~(size_t)3;
		p += sizeof(n);
		len -= sizeof(n);
		if (name > len || desc > len - name)
			return false;
		if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 &&
		    !memcmp(p, "GNU", 4))
			return hex_is(p + name, n.n_descsz, STACK_BUILD_ID);
		p += name + desc;
		len -= name + desc;
	}
	return false;
}

/** is_ours - whether the file of @size bytes at @p is the linked library */
static bool is_ours(const uint8_t *p, size_t size)
{
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph;
	size_t i;

	if (size < sizeof(eh))
		return false;
	memcpy(&eh, p, sizeof(eh));
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_phentsize != sizeof(ph) || eh.e_phoff > size ||
	    (size - eh.e_phoff) / sizeof(ph) < eh.e_phnum)
		return false;
	for (i = 0; i < eh.e_phnum; i++) {
		memcpy(&ph, p + eh.e_phoff + i * sizeof(ph), sizeof(ph));
		if (ph.p_type == PT_NOTE && ph.p_offset <= size &&
		    ph.p_filesz <= size - ph.p_offset &&
		    notes_have_id(p + ph.p_offset, ph.p_filesz))
			return true;
	}
	return false;
}

/** stack_lib_open - see stack.h */
void *stack_lib_open(const char *path, char *err, size_t errlen)
{
	static char linked;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	bool ours;
	void *p;

	if (fd < 0 || fstat(fd, &st)) {
		snprintf(err, errlen, "stack library %s: %s", path,
			 strerror(errno));
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	ours = p != MAP_FAILED && is_ours(p, (size_t)st.st_size);
	if (p != MAP_FAILED)
		munmap(p, (size_t)st.st_size);
	if (ours)
		return &linked;
	snprintf(err, errlen, "stack library %s: this lklhost can only use its built-in library; use a stack of its bundle",
		 path);
	return NULL;
}

/** stack_lib_find - see stack.h */
void *stack_lib_find(void *lib, const char *name)
{
	size_t i;

	(void)lib;
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name))
			return (void *)(uintptr_t)functions[i].fn;
	return NULL;
}
