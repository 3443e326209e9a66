// SPDX-License-Identifier: GPL-2.0-only
/*
 * Capabilities of this process, capabilities(7).
 */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process/process.h"

/** caps_get - get our own capabilities */
static bool caps_get(struct __user_cap_header_struct *hdr,
		     struct __user_cap_data_struct *data)
{
	*hdr = (struct __user_cap_header_struct){
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	return !syscall(SYS_capget, hdr, data);
}

/** caps_have - whether a capability is effective */
bool caps_have(int cap)
{
	struct __user_cap_header_struct hdr;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	return caps_get(&hdr, data) &&
	       (data[CAP_TO_INDEX(cap)].effective & CAP_TO_MASK(cap));
}

/**
 * caps_drop - drop capabilities, and do not pass them on
 *
 * Dropping permitted capabilities also drops the ambient ones. With the next
 * exec, user 0 regains those in the bounding set, unless it has no_new_privs.
 */
void caps_drop(uint64_t caps)
{
	struct __user_cap_header_struct hdr;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	int i;

	if (!caps_get(&hdr, data))
		return;
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		uint32_t keep = ~(uint32_t)(caps >> 32 * i);

		data[i].effective &= keep;
		data[i].permitted &= keep;
		data[i].inheritable &= keep;
	}
	syscall(SYS_capset, &hdr, data);
}

/** bounding_drop - limit the bounding set to @keep; needs CAP_SETPCAP */
static void bounding_drop(uint64_t keep)
{
	int cap;

	for (cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(keep >> cap & 1))
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

/** caps_limit - drop all but @keep, also after an exec */
void caps_limit(uint64_t keep)
{
	bounding_drop(keep);
	caps_drop(~keep);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/** effective - make @caps the effective ones; returns the previous ones */
static uint64_t effective(uint64_t caps)
{
	struct __user_cap_header_struct hdr;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	uint64_t had = 0;
	int i;

	if (!caps_get(&hdr, data))
		return 0;
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		had |= (uint64_t)data[i].effective << 32 * i;
		data[i].effective = (uint32_t)(caps >> 32 * i);
	}
	if (had != caps)
		syscall(SYS_capset, &hdr, data);
	return had;
}

/** caps_suspend - disable all for a moment; returns those for caps_resume() */
uint64_t caps_suspend(void)
{
	return effective(0);
}

/** caps_resume - enable those again that caps_suspend() returned */
void caps_resume(uint64_t had)
{
	effective(had);
}
