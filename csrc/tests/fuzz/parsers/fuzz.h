/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fuzzers of the parsers. Each runs under libFuzzer or, with replay.c, replays
 * a corpus.
 *
 * Theory of operation
 *
 * A fuzzer is one file here. It is linked with the real object files of the
 * tested code. If the static state of a file must be reset between inputs, the
 * fuzzer includes that file instead. An input is a list of steps (a frame of a
 * client, a descriptor with it, an event). Each input is thus a conversation,
 * not a single frame.
 *
 * fake.c replaces the stack and takes its results from the input, too. loop.c
 * contains lklhost's loop, which never sleeps here. clock.c provides the time.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** struct input - the rest of an input */
struct input {
	const uint8_t *at, *end;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/** left - number of bytes left */
static inline size_t left(const struct input *in)
{
	return (size_t)(in->end - in->at);
}

/** next_bytes - return the next @len bytes, or all that are left; @got: their number */
static inline const uint8_t *next_bytes(struct input *in, size_t len,
					size_t *got)
{
	const uint8_t *p = in->at;

	*got = len < left(in) ? len : left(in);
	in->at += *got;
	return p;
}

/** fill - copy the next @len bytes to @to; zeros after the end */
static inline void fill(struct input *in, void *to, size_t len)
{
	size_t got;
	const uint8_t *p = next_bytes(in, len, &got);

	memset(to, 0, len);
	if (got)
		memcpy(to, p, got);
}

/** get8 - return the next byte, 0 after the end */
static inline uint8_t get8(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/** get16 - return the next two bytes as a little-endian number */
static inline uint16_t get16(struct input *in)
{
	uint16_t low = get8(in);

	return (uint16_t)(low | get8(in) << 8);
}

/** get32 - return the next four bytes as a little-endian number */
static inline uint32_t get32(struct input *in)
{
	uint32_t low = get16(in);

	return low | (uint32_t)get16(in) << 16;
}

/* loop.c */
void fuzz_loop_start(void);
void fuzz_turn(void);
void fuzz_settle(void);

/* clock.c */
void fuzz_clock_add(uint32_t ms);

/*
 * fake.c: fake_more() handles a call first; if it returns FAKE_NEXT, the fake
 * handles the call. NULL: the fake handles all calls.
 */
#define FAKE_NEXT	(-4096)

extern long (*fake_more)(long nr, const long *args);

void fake_start(struct input *in);
void fake_end(void);
void fake_ready(unsigned int n);
void fake_panic(void);
long fake_result(void);

#endif
