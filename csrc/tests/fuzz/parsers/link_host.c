// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes lklhost's end of the link to a preloaded library: the program holds
 * the other end, maps the shared memory, and may write anything to both.
 */
#include "engine/link/link.c"

#include "engine/link/link_start.c"

#include "clients.h"

static int program = -1;	/* the library's end */

/** first_word - send the first frame of the library, usually LINK_READY */
static void first_word(struct input *in)
{
	struct ctl_hdr h = { .len = sizeof(h), .type = LINK_READY };
	uint8_t how = get8(in), text[64];

	if (how & 1)		/* otherwise the status is 0 */
		fill(in, &h, sizeof(h));
	send(program, &h, how & 2 ? how >> 4 : sizeof(h), MSG_NOSIGNAL);
	if (!(how & 3))
		return;
	/* lklhost does not wait for more. */
	fill(in, text, sizeof(text));
	send(program, text, how >> 2, MSG_NOSIGNAL);
	shutdown(program, SHUT_WR);
}

/** link_begin - do what lklhost does before its loop; false if no library reported */
static bool link_begin(struct input *in)
{
	char err[512];

	if (link_init(err, sizeof(err)))
		return false;
	program = dup(theirs);
	first_word(in);
	memset(err, 'x', sizeof(err));
	if (link_ready(err, sizeof(err))) {
		/* lklhost passes the text to the user. */
		if (strnlen(err, sizeof(err)) == sizeof(err))
			abort();
		return false;
	}
	return !link_watch();
}

/** link_over - restore the state before link_init() */
static void link_over(void)
{
	lost(-ESHUTDOWN);
	timer_cancel(&lost_timer);
	free(library.in);
	memset(&library, 0, sizeof(library));
	library.src.fd = -1;
	if (sock >= 0 && fcntl(sock, F_GETFD) >= 0)
		close(sock);
	sock = -1;
	if (shared)
		munmap(shared, sizeof(*shared));
	shared = NULL;
	log_seen = 0;
	if (program >= 0)
		close(program);
	program = -1;
}

/** answer_frame - send a reply, or a frame without a request */
static void answer_frame(struct input *in)
{
	uint8_t frame[sizeof(struct ctl_hdr) + 4096];
	struct ctl_hdr h = { .type = get8(in) };
	size_t got;
	const uint8_t *body;

	h.type |= h.type & 0x40 ? 0x4000 : CTL_REPLY;
	h.type &= (uint16_t)~0x40;
	h.id = get8(in);
	h.status = -(int32_t)get8(in);
	body = next_bytes(in, get16(in) % 4096, &got);
	h.len = (uint32_t)(sizeof(h) + got);
	memcpy(frame, &h, sizeof(h));
	memcpy(frame + sizeof(h), body, got);
	send(program, frame, h.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/** raw - send arbitrary bytes */
static void raw(struct input *in)
{
	size_t got;
	const uint8_t *bytes = next_bytes(in, get8(in), &got);

	send(program, bytes, got, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/** scribble - write to the memory that both map */
static void scribble(struct input *in)
{
	size_t at;

	switch (get8(in) % 4) {
	case 0:
		shared->ring_end = get8(in) & 1 ? get32(in) :
				   shared->ring_end + get16(in);
		break;
	case 1:
		shared->account_len = get32(in);
		break;
	case 2:
		at = get32(in);
		fill(in, shared->ring + at % (LINK_RING - 64), 64);
		break;
	case 3:
		at = get32(in);
		fill(in, (char *)shared + at % (sizeof(*shared) - 64), 64);
		break;
	}
}

/** program_step - carry out one action of the program */
static void program_step(struct input *in, uint8_t step)
{
	static char buf[65536], account[4096];

	switch (step & 7) {
	case 0:
		answer_frame(in);
		break;
	case 1:
		raw(in);
		break;
	case 2:
		scribble(in);
		break;
	case 3:
		recv(program, buf, sizeof(buf), MSG_DONTWAIT);
		break;
	case 4:
		shutdown(program, SHUT_WR);
		break;
	case 5:
		link_account(account, step & 8 ? 100 : sizeof(account));
		break;
	case 6:
		link_ended((step & 8) << 5);
		break;
	}
}

/** steps - carry out steps of the program and of clients, as the input says */
static void steps(struct input *in)
{
	unsigned int n;

	for (n = 0; left(in) && n < 200; n++) {
		uint8_t step = get8(in);

		if (step & 0x80)
			program_step(in, step);
		else
			clients_step(in, step);
		fuzz_turn();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	static bool started;

	if (!started)
		fuzz_loop_start();
	started = true;
	host.preload = "liblklpreload.so";
	host.state = CTL_STATE_NEW;
	if (link_begin(&in)) {
		clients_start();
		steps(&in);
		clients_end();
	}
	link_over();
	fuzz_settle();
	return 0;
}
