/* SPDX-License-Identifier: GPL-2.0-only */
/* Rights of served processes: what they may do with the stack. */
#ifndef LKLHOST_RIGHTS_H
#define LKLHOST_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#define RIGHTS_ALL	(~0ull)

struct call;

int rights_init(int netns);
int rights_get(struct call *c);
int rights_set(uint64_t caps, uint64_t *had);

/** rights_include - whether the capability @cap is among @caps */
static inline bool rights_include(uint64_t caps, int cap)
{
	return caps >> cap & 1;
}

#endif
