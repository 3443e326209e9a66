// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes the view with requests that the host's kernel sends when the target
 * uses its files. Names, flags, offsets and data are arbitrary. Nodes and
 * handles are those that the view returned, with the correct number of
 * references.
 */
#include "engine/carrier/carrier.h"
#include "engine/carrier/space.h"
#include "view/serve.c"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "fuzz.h"

#define NODES	16
#define OPEN	16
#define NAME	255	/* NAME_MAX */
#define TEXT	4096

/** struct kernel_node - a node as the host's kernel knows it */
static struct kernel_node {
	uint64_t id, lookups;
} known[NODES];

static uint64_t opened_fh[OPEN];	/* 0: free */
static int kernel = -1;			/* the kernel's end of /dev/fuse */

/* Contents of the stack's files and folders. */
static uint8_t text_of[TEXT];
static size_t text_len;
static struct input names;

/** entry_put - write one entry as getdents64(2) does; 0: no room, or no more entries */
static size_t entry_put(char *buf, size_t room, int64_t next)
{
	uint8_t type = get8(&names), want = get8(&names) % 64;
	size_t got, len = (19 + (size_t)want + 1 + 7) & ~(size_t)7;
	const uint8_t *name;

	if (!left(&names) || len > room)
		return 0;
	name = next_bytes(&names, want, &got);
	memset(buf, 0, len);
	buf[0] = 1;
	memcpy(buf + 8, &next, sizeof(next));
	memcpy(buf + 16, &(uint16_t){ (uint16_t)len }, 2);
	buf[18] = (char)(type % 13);
	memcpy(buf + 19, name, got);
	return len;
}

/** entries - getdents64(2) */
static long entries(char *buf, size_t room)
{
	static int64_t next;
	size_t at = 0, len;

	while ((len = entry_put(buf + at, room - at, ++next)))
		at += len;
	return (long)at;
}

/** text - pread64(2) */
static long text(char *buf, size_t len, uint64_t at)
{
	if (at >= text_len)
		return 0;
	if (len > text_len - at)
		len = text_len - at;
	memcpy(buf, text_of + at, len);
	return (long)len;
}

/** stat_of - newfstatat(2); mostly succeeds */
static long stat_of(struct stat *st)
{
	static const mode_t modes[] = { S_IFREG | 0644, S_IFDIR | 0555,
					S_IFLNK | 0777, S_IFCHR | 0600 };
	long ret = fake_result();

	if (ret < 0)
		return ret;
	memset(st, 0, sizeof(*st));
	st->st_mode = modes[ret % 4];
	st->st_size = ret;
	return 0;
}

/** files - the stack's calls on files */
static long files(long nr, const long *a)
{
	switch (nr) {
	case SYS_getdents64:
		return entries((char *)a[1], (size_t)a[2]);
	case SYS_pread64:
		return text((char *)a[1], (size_t)a[2], (uint64_t)a[3]);
	case SYS_pwrite64:
		return (long)memchr((void *)a[1], '!', (size_t)a[2]) ?
		       -EINVAL : a[2];
	case SYS_newfstatat:
		return stat_of((struct stat *)a[2]);
	case SYS_readlinkat:
		return text((char *)a[2], (size_t)a[3], 0);
	}
	return FAKE_NEXT;
}

/** ask - send a request; returns the length of its answer; 0: no answer, or an error */
static size_t ask(uint32_t opcode, uint64_t node, const void *body, size_t len,
		  void *answer, size_t room)
{
	static _Alignas(8) uint8_t rq[HEAD_MAX + VIEW_DATA_MAX];
	static uint8_t rep[sizeof(struct fuse_out_header) + VIEW_DATA_MAX];
	struct fuse_in_header h = { .opcode = opcode, .unique = 2,
				    .nodeid = node };
	struct fuse_out_header oh = { 0 };
	ssize_t n;

	h.len = (uint32_t)(sizeof(h) + len);
	memcpy(rq, &h, sizeof(h));
	memcpy(rq + sizeof(h), body, len);
	if (send(kernel, rq, h.len, MSG_NOSIGNAL) < 0)
		return 0;
	requests(&dev, 0);
	n = recv(kernel, rep, sizeof(rep), MSG_DONTWAIT);
	if (n < (ssize_t)sizeof(oh))
		return 0;
	memcpy(&oh, rep, sizeof(oh));
	if (oh.len != n || oh.unique != h.unique)
		abort();	/* the host's kernel would end the connection */
	n -= (ssize_t)sizeof(oh);
	memcpy(answer, rep + sizeof(oh), (size_t)n < room ? (size_t)n : room);
	return oh.error ? 0 : (size_t)n;
}

/** node_at - return a known node; the root is always known */
static struct kernel_node *node_at(uint8_t n)
{
	return known[n % NODES].id ? &known[n % NODES] : &known[0];
}

/** keep - record a node that was looked up, or forget it */
static void keep(uint64_t id)
{
	struct fuse_forget_in one = { .nlookup = 1 };
	size_t i, slot = NODES;

	for (i = NODES; i-- > 1;) {
		if (known[i].id == id)
			break;
		if (!known[i].id)
			slot = i;
	}
	if (!i)
		i = slot;
	if (i == NODES) {
		ask(FUSE_FORGET, id, &one, sizeof(one), &one, 0);
		return;
	}
	known[i].id = id;
	known[i].lookups++;
}

/** lookup - look up a name below a node */
static void lookup(struct input *in, struct kernel_node *n)
{
	char name[NAME + 1] = "";
	struct fuse_entry_out e = { 0 };
	size_t got, len;
	const uint8_t *p = next_bytes(in, get8(in), &got);

	memcpy(name, p, got);
	name[got] = '\0';
	len = strcspn(name, "/");
	name[len] = '\0';
	if (strlen(name) && strcmp(name, ".") && strcmp(name, "..") &&
	    ask(FUSE_LOOKUP, n->id, name, strlen(name) + 1, &e, sizeof(e)))
		keep(e.nodeid);
}

/** forget - drop @lookups lookups of a node */
static void forget(struct kernel_node *n, uint64_t lookups)
{
	struct fuse_forget_in one = { .nlookup = lookups };

	if (n == known || lookups > n->lookups)
		return;
	ask(FUSE_FORGET, n->id, &one, sizeof(one), &one, 0);
	n->lookups -= lookups;
	if (!n->lookups)
		n->id = 0;
}

/** forget_each - forget all nodes at once */
static void forget_each(void)
{
	struct {
		struct fuse_batch_forget_in head;
		struct fuse_forget_one one[NODES];
	} all = { 0 };
	size_t i, n = 0;

	for (i = 1; i < NODES; i++) {
		if (!known[i].id)
			continue;
		all.one[n].nodeid = known[i].id;
		all.one[n++].nlookup = known[i].lookups;
		known[i].id = known[i].lookups = 0;
	}
	all.head.count = (uint32_t)n;
	ask(FUSE_BATCH_FORGET, 0, &all,
	    sizeof(all.head) + n * sizeof(all.one[0]), &all, 0);
}

/** open_node - OPEN and OPENDIR */
static void open_node(struct input *in, struct kernel_node *n)
{
	struct fuse_open_in rq = { .flags = get16(in) };
	struct fuse_open_out rep = { 0 };
	size_t i;

	for (i = 0; i < OPEN && opened_fh[i]; i++)
		;
	if (i < OPEN && ask(rq.flags & 0x8000 ? FUSE_OPENDIR : FUSE_OPEN, n->id,
			    &rq, sizeof(rq), &rep, sizeof(rep)))
		opened_fh[i] = rep.fh;
}

/** use - READ, READDIR, WRITE and RELEASE of an open file */
static void use(struct input *in, uint8_t step)
{
	static struct {
		struct fuse_write_in head;
		uint8_t data[VIEW_DATA_MAX];
	} w;
	static uint8_t data[VIEW_DATA_MAX];
	uint64_t *fh = &opened_fh[get8(in) % OPEN];
	struct fuse_read_in r = { .fh = *fh };
	struct fuse_release_in end = { .fh = *fh };

	if (!*fh)
		return;
	r.offset = step & 16 ? get16(in) : 0;
	r.size = step & 32 ? get32(in) : 4096;
	r.read_flags = step & 64 ? 0 : FUSE_READ_LOCKOWNER;
	w.head.fh = *fh;
	w.head.offset = r.offset;
	w.head.size = r.size % sizeof(w.data);
	switch (step & 3) {
	case 0:
		ask(FUSE_READ, 1, &r, sizeof(r), data, sizeof(data));
		break;
	case 1:
		ask(FUSE_READDIR, 1, &r, sizeof(r), data, sizeof(data));
		break;
	case 2:
		fill(in, w.data, w.head.size % 256);
		ask(FUSE_WRITE, 1, &w, sizeof(w.head) + w.head.size, data, 8);
		break;
	case 3:
		ask(FUSE_RELEASE, 1, &end, sizeof(end), data, 0);
		*fh = 0;
		break;
	}
}

/** other - GETATTR and all refused requests, with an arbitrary body */
static void other(struct input *in, struct kernel_node *n)
{
	static const uint8_t mine[] = { FUSE_LOOKUP, FUSE_FORGET, FUSE_OPEN,
		FUSE_OPENDIR, FUSE_READ, FUSE_READDIR, FUSE_WRITE, FUSE_RELEASE,
		FUSE_RELEASEDIR, FUSE_BATCH_FORGET };
	uint8_t opcode = get8(in) % 64, body[256];
	static uint8_t data[VIEW_DATA_MAX];

	if (memchr(mine, opcode, sizeof(mine)))
		return;
	fill(in, body, sizeof(body));
	ask(opcode, n->id, body, get8(in), data, sizeof(data));
}

/** step - send one request, or change the stack */
static void step(struct input *in, uint8_t what)
{
	struct kernel_node *n = node_at(what >> 4);
	size_t got;
	const uint8_t *p;

	switch (what & 15) {
	case 0: case 1: case 2: case 3:
		lookup(in, n);
		break;
	case 4:
		forget(n, 1 + get8(in));
		break;
	case 5:
		forget_each();
		break;
	case 6: case 7:
		open_node(in, n);
		break;
	case 8: case 9: case 10: case 11:
		use(in, what & 0xf3);
		break;
	case 12:
		other(in, n);
		break;
	case 13:
		p = next_bytes(in, get16(in) % TEXT, &got);
		memcpy(text_of, p, got);
		text_len = got;
		break;
	case 14:
		p = next_bytes(in, get16(in) % TEXT, &got);
		names = (struct input){ p, p + got };
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	static const struct view_ops ops = {
		.enter = space_enter_of,
		.leave = space_leave,
	};
	static bool started;
	unsigned int n;
	int sv[2];

	if (!started) {
		fuzz_loop_start();
		table_inodes(conn_carrier_ino);
		view_ops = &ops;
	}
	started = true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC,
		       0, sv))
		abort();
	kernel = sv[0];
	dev.fd = sv[1];
	fake_more = files;
	fake_start(&in);
	known[0].id = FUSE_ROOT_ID;
	for (n = 0; left(&in) && n < 200; n++)
		step(&in, get8(&in));
	fake_end();
	forget_each();
	view_stop();
	close(kernel);
	memset(opened_fh, 0, sizeof(opened_fh));
	text_len = 0;
	names = (struct input){ data, data };
	return 0;
}
