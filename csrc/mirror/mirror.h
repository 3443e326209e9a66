/* SPDX-License-Identifier: GPL-2.0-only */
/* Packet sockets of the target: real ones, in a mirror of the stack's devices. */
#ifndef LKLHOST_MIRROR_H
#define LKLHOST_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

int maker_start(void);
int maker_watch(int ns, int id);
int mirror_socket(int type, int proto, int flags);
bool mirror_has_stack_fd(int fd);
void mirror_stop(void);

/**
 * struct mirror_stats - counters
 * @sockets: sockets created for the target
 * @shown: frames of the stack passed to these sockets
 * @sent: frames from these sockets that the stack accepted for sending
 * @lost: dropped frames
 */
struct mirror_stats {
	uint64_t sockets, shown, sent, lost;
};

extern struct mirror_stats mirror_stats;

#endif
