/* SPDX-License-Identifier: GPL-2.0-only */
/* Messages between lklhost and the zygote, one packet each. */
#ifndef LKLHOST_ZYGOTE_H
#define LKLHOST_ZYGOTE_H

#include <stdint.h>

/* Standard input, output, error and the request; at most FD_PASS_MAX. */
#define ZYGOTE_FDS	4

/* lklhost to zygote, with ZYGOTE_FDS descriptors in SCM_RIGHTS. */
struct zygote_request {
	uint32_t id;
};

enum zygote_what {
	ZYGOTE_READY,	/* value: the zygote's pid; id 0 */
	ZYGOTE_STARTED,	/* value: the program's pid; before anything can fail */
	ZYGOTE_FORK,	/* cannot fork; value: a negative errno */
	ZYGOTE_CWD,	/* cannot enter its directory: a negative errno */
	ZYGOTE_COMMAND,	/* cannot execute it: a negative errno */
};

/* zygote and its children to lklhost */
struct zygote_report {
	uint32_t id;
	int32_t what;
	int32_t value;
};

void zygote_fork(int sock);

#endif
