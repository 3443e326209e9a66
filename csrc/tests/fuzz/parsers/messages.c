// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes messages in the target's memory, which is our own here: struct msghdr,
 * vectors and ancillary data of sendmsg() and its like.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzz.h"
#include "msg.h"

#define ARENA	8192
#define GUARD	(8ull << 30)	/* what a length of 32 bits reaches, and more */

static uint8_t *arena;

/** address - of the target's: mostly in the arena */
static uint64_t address(struct input *in)
{
	uint16_t at = get16(in);

	return at & 0x8000 ? at & 7 : (uint64_t)(uintptr_t)arena + at % ARENA;
}

/** length - small, up to 4 GiB, or nearly all that there is */
static uint64_t length(struct input *in)
{
	switch (get8(in) % 8) {
	case 0:
		return get32(in);
	case 1:
		return UINT64_MAX - get16(in);
	case 2:
		return (uint64_t)INT64_MAX - get16(in);
	}
	return get8(in);
}

/** words - put 64-bit words into the arena: a header, or a vector */
static void words(struct input *in)
{
	size_t at = get16(in) % (ARENA - 8 * 16), n = get8(in) % 16;

	for (; n; n--, at += 8) {
		uint64_t v = get8(in) & 1 ? address(in) : length(in);

		memcpy(arena + at, &v, sizeof(v));
	}
}

/** controls - ancillary data as a kernel makes them: all lengths are right */
static size_t controls(struct input *in, char *ctl, size_t room)
{
	size_t at = 0, n = get8(in) % 6;

	for (; n; n--) {
		size_t len = get8(in);
		struct cmsghdr cm = { .cmsg_len = CMSG_LEN(len),
				      .cmsg_level = get8(in),
				      .cmsg_type = get8(in) };

		if (at + CMSG_SPACE(len) > room)
			break;
		memset(ctl + at, 0, CMSG_SPACE(len));
		memcpy(ctl + at, &cm, sizeof(cm));
		fill(in, ctl + at + CMSG_LEN(0), len);
		at += CMSG_SPACE(len);
	}
	return at;
}

/** result - what a receive says, into memory that ends where the room does */
static void result(struct input *in, const struct call *c,
		   const struct user_msg *um)
{
	char ctl[1024], name[128];
	size_t len = controls(in, ctl, sizeof(ctl)), got;
	size_t room = um->controllen < 512 ? um->controllen : 512;
	char *out = malloc(room + 1);
	int flags = 0;

	fill(in, name, sizeof(name));
	got = msg_cut_control(out, room, ctl, len, &flags);
	if (got > room)
		abort();
	msg_put_result(c, um, name, get8(in) % sizeof(name), out, got, flags);
	free(out);
}

/** message - one call */
static void message(struct input *in)
{
	static const int calls[] = { SYS_sendto, SYS_recvfrom, SYS_sendmsg,
				     SYS_recvmsg };
	struct call c = { .pid = getpid(), .nr = calls[get8(in) % 4], .dup = -1 };
	static struct user_msg um;
	size_t off, len;
	uint8_t *buf;
	size_t i;

	for (i = 0; i < 6; i++)
		c.args[i] = i & 1 || i == 4 ? address(in) : length(in);
	if (msg_get(&c, &um))
		return;
	off = get16(in);
	len = get16(in) % 4096;
	if (off > um.total || len > um.total - off)	/* its callers see to that */
		len = 0;
	buf = calloc(1, len + !len);
	msg_get_data(&c, &um, off, buf, len);
	msg_put_data(&c, &um, buf, len);
	free(buf);
	result(in, &c, &um);
}

/** arena_make - with memory behind it that nobody can write to */
static void arena_make(void)
{
	arena = mmap(NULL, GUARD, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED ||
	    mprotect(arena, ARENA, PROT_READ | PROT_WRITE))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	unsigned int n;

	if (!arena)
		arena_make();
	memset(arena, 0, ARENA);
	for (n = 0; left(&in) && n < 64; n++) {
		if (get8(&in) & 1)
			words(&in);
		else
			message(&in);
	}
	return 0;
}
