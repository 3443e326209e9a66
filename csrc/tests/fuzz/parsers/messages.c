// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes messages in the target's memory: struct msghdr, vectors and ancillary
 * data of sendmsg() and similar calls. A part of our own memory, the arena,
 * replaces the target's memory. These functions replace
 * engine/call/target_mem.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/call/catch.h"
#include "engine/call/msg.h"
#include "fuzz.h"

#define ARENA	8192

static uint8_t *arena;

/** in_arena - like process_vm_readv(2): the whole range must be mapped, otherwise EFAULT */
static bool in_arena(uint64_t addr, size_t len)
{
	uint64_t at = addr - (uint64_t)(uintptr_t)arena;

	return at <= ARENA && len <= ARENA - at;
}

/** mem_read - see call.h */
int64_t mem_read(const struct call *c, uint64_t addr, void *buf, size_t len)
{
	(void)c;
	if (!len)
		return 0;
	if (!in_arena(addr, len))
		return -EFAULT;
	memcpy(buf, (void *)(uintptr_t)addr, len);
	return 0;
}

/** no_descriptor - the target has no descriptors */
static int no_descriptor(const struct call *c, int fd)
{
	(void)c;
	(void)fd;
	return -EBADF;
}

static const struct catch_ops nothing = { .getfd = no_descriptor };

/** mem_write - see call.h */
int64_t mem_write(const struct call *c, uint64_t addr, const void *buf,
		  size_t len)
{
	(void)c;
	if (!len)
		return 0;
	if (!in_arena(addr, len))
		return -EFAULT;
	memcpy((void *)(uintptr_t)addr, buf, len);
	return 0;
}

/** mem_readv - see call.h; the pieces have at least @len bytes in total */
int64_t mem_readv(const struct call *c, const struct iovec *from, size_t n,
		  void *buf, size_t len)
{
	char *to = buf;
	int64_t ret = 0;
	size_t i;

	for (i = 0; i < n && len && !ret; i++) {
		size_t part = from[i].iov_len < len ? from[i].iov_len : len;

		ret = mem_read(c, (uintptr_t)from[i].iov_base, to, part);
		to += part;
		len -= part;
	}
	return ret ? ret : len ? -EFAULT : 0;
}

/** mem_writev - see call.h */
int64_t mem_writev(const struct call *c, const struct iovec *to, size_t n,
		   const void *buf, size_t len)
{
	const char *from = buf;
	int64_t ret = 0;
	size_t i;

	for (i = 0; i < n && len && !ret; i++) {
		size_t part = to[i].iov_len < len ? to[i].iov_len : len;

		ret = mem_write(c, (uintptr_t)to[i].iov_base, from, part);
		from += part;
		len -= part;
	}
	return ret;
}

/** mem_close - nothing is open */
void mem_close(void)
{
}

/** address - choose an address in the target, mostly in the arena */
static uint64_t address(struct input *in)
{
	uint16_t at = get16(in);

	return at & 0x8000 ? at & 7 : (uint64_t)(uintptr_t)arena + at % ARENA;
}

/** length - choose a length: small, up to 4 GiB, or near the maximum */
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

/** controls - write ancillary data with valid lengths, as a kernel does */
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

/** result - write the result of a receive to memory that ends with the buffer */
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

/** message - make one call */
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
	if (off > um.total || len > um.total - off)	/* callers ensure this */
		len = 0;
	buf = calloc(1, len + !len);
	msg_get_data(&c, &um, off, buf, len);
	msg_put_data(&c, &um, off, buf, len);
	free(buf);
	result(in, &c, &um);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	unsigned int n;

	call_set_way(&nothing);
	arena = calloc(1, ARENA);
	for (n = 0; left(&in) && n < 64; n++) {
		if (get8(&in) & 1)
			words(&in);
		else
			message(&in);
	}
	free(arena);
	return 0;
}
