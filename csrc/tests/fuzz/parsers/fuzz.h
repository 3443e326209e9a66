/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fuzzers of the parsers, each for libFuzzer or, with replay.c, for a corpus.
 *
 * Theory of operation
 *
 * A fuzzer is one file here. It is linked with the real object files of what it
 * tests; a file whose static state must be reset between two inputs is included
 * instead. An input is a list of steps (a frame of a client, a descriptor beside
 * it, an event), so that each input is a conversation and not one frame only.
 *
 * fake.c stands for the stack: its results are taken from the input, too. loop.c
 * is lklhost's loop, which never sleeps here, and clock.c its time.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** struct input - what is left of an input */
struct input {
	const uint8_t *at, *end;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/** left - bytes that are left */
static inline size_t left(const struct input *in)
{
	return (size_t)(in->end - in->at);
}

/** next_bytes - the next @len bytes, or as many as are left; the number in @got */
static inline const uint8_t *next_bytes(struct input *in, size_t len,
					size_t *got)
{
	const uint8_t *p = in->at;

	*got = len < left(in) ? len : left(in);
	in->at += *got;
	return p;
}

/** fill - the next @len bytes into @to, zeros behind the end */
static inline void fill(struct input *in, void *to, size_t len)
{
	size_t got;
	const uint8_t *p = next_bytes(in, len, &got);

	memset(to, 0, len);
	if (got)
		memcpy(to, p, got);
}

/** get8 - the next byte, 0 behind the end */
static inline uint8_t get8(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/** get16 - the next two, little-endian */
static inline uint16_t get16(struct input *in)
{
	uint16_t low = get8(in);

	return (uint16_t)(low | get8(in) << 8);
}

/** get32 - the next four */
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
 * fake.c: fake_more() answers a call before the fake does, unless it returns
 * FAKE_NEXT; NULL: the fake answers all.
 */
#define FAKE_NEXT	(-4096)

extern long (*fake_more)(long nr, const long *args);

void fake_start(struct input *in);
void fake_end(void);
void fake_ready(unsigned int n);
void fake_panic(void);
long fake_result(void);

#endif
