/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions of our own stack library that lklhost calls, without "lkl_". */
#ifndef LKLHOST_STACK_FUNCTIONS_H
#define LKLHOST_STACK_FUNCTIONS_H

#define STACK_FUNCTIONS(X) \
	X(init) \
	X(start_kernel) \
	X(syscall) \
	X(sys_halt) \
	X(cleanup) \
	X(loop_init) \
	X(loop_event) \
	X(loop_step) \
	X(loop_rest) \
	X(loop_watch) \
	X(loop_refs) \
	X(loop_load) \
	X(loop_blocked) \
	X(set_coalesce) \
	X(holding) \
	X(holds) \
	X(netdev_prepare) \
	X(netdev_fd_create) \
	X(netdev_add) \
	X(netdev_wire_join) \
	X(netdev_remove) \
	X(netdev_free) \
	X(netdev_get_ifindex) \
	X(if_set_mtu)

#endif
