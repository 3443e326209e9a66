// SPDX-License-Identifier: GPL-2.0-only
/* Dispatches intercepted system calls. */
#define _GNU_SOURCE
#include "engine/preload/internal.h"
#include "engine/preload/signal.h"

static call_fn handlers[ENTRY_CALLS];
static bool installed;

/*
 * For each call: how entry.S classifies it, and the function that handles it.
 */
static const struct {
	short nr;
	unsigned char class;
	call_fn fn;
} table[] = {
	{ SYS_read, CLASS_FD, call_read },
	{ SYS_readv, CLASS_FD, call_read },
	{ SYS_preadv2, CLASS_FD, call_read },
	{ SYS_recvfrom, CLASS_FD, call_read },
	{ SYS_recvmsg, CLASS_LOOK, call_recvmsg },
	{ SYS_recvmmsg, CLASS_FD, call_pass },
	{ SYS_write, CLASS_FD, call_write },
	{ SYS_writev, CLASS_FD, call_write },
	{ SYS_pwritev2, CLASS_FD, call_write },
	{ SYS_sendto, CLASS_FD, call_write },
	{ SYS_sendmsg, CLASS_LOOK, call_sendmsg },
	{ SYS_sendmmsg, CLASS_FD, call_write },
	{ SYS_bind, CLASS_FD, call_pass },
	{ SYS_getsockname, CLASS_FD, call_pass },
	{ SYS_getpeername, CLASS_FD, call_pass },
	{ SYS_shutdown, CLASS_FD, call_pass },
	{ SYS_socket, CLASS_LOOK, call_socket },
	{ SYS_accept, CLASS_LOOK, call_accept },
	{ SYS_accept4, CLASS_LOOK, call_accept },
	{ SYS_connect, CLASS_LOOK, call_connect },
	{ SYS_listen, CLASS_FD, call_listen },
	{ SYS_getsockopt, CLASS_FD, call_getsockopt },
	{ SYS_setsockopt, CLASS_FD, call_setsockopt },
	{ SYS_close, CLASS_LOOK, call_close },
	{ SYS_close_range, CLASS_LOOK, call_close_range },
	{ SYS_dup, CLASS_LOOK, call_dup },
	{ SYS_dup3, CLASS_LOOK, call_dup2 },
	{ SYS_fcntl, CLASS_LOOK, call_fcntl },
	{ SYS_ioctl, CLASS_LOOK, call_ioctl },
	{ SYS_sendfile, CLASS_LOOK, call_sendfile },
	{ SYS_splice, CLASS_LOOK, call_splice },
	{ SYS_ppoll, CLASS_LOOK, call_poll },
	{ SYS_pselect6, CLASS_LOOK, call_select },
	{ SYS_epoll_create1, CLASS_LOOK, call_epoll_create },
	{ SYS_epoll_ctl, CLASS_LOOK, call_epoll_ctl },
	{ SYS_epoll_pwait, CLASS_FD, call_epoll_wait },
	{ SYS_epoll_pwait2, CLASS_FD, call_epoll_wait },
	{ SYS_rt_sigaction, CLASS_LOOK, call_sigaction },
	{ SYS_exit_group, CLASS_LOOK, call_exit },
	{ SYS_io_uring_setup, CLASS_LOOK, call_nosys },
	{ SYS_openat, CLASS_LOOK, call_open },
	{ SYS_lseek, CLASS_FD, call_file },
	{ SYS_pread64, CLASS_FD, call_file },
	{ SYS_fstat, CLASS_FD, call_file },
	{ SYS_newfstatat, CLASS_FD, call_file },
	/* Newer architectures lack these calls. */
#ifdef SYS_open
	{ SYS_dup2, CLASS_LOOK, call_dup2 },
	{ SYS_poll, CLASS_LOOK, call_poll },
	{ SYS_select, CLASS_LOOK, call_select },
	{ SYS_epoll_create, CLASS_LOOK, call_epoll_create },
	{ SYS_epoll_wait, CLASS_FD, call_epoll_wait },
	{ SYS_open, CLASS_LOOK, call_open },
#endif
	/*
	 * Listed only because the library itself makes descriptors with them
	 * (lib_fds.c).
	 */
	{ SYS_eventfd2, CLASS_LOOK, native },
	{ SYS_timerfd_create, CLASS_LOOK, native },
	{ SYS_memfd_create, CLASS_LOOK, native },
};

/** dispatch_init - fill the tables of intercepted calls */
void dispatch_init(void)
{
	size_t i;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		preload_class[table[i].nr] = table[i].class;
		handlers[table[i].nr] = table[i].fn;
	}
}

/** dispatch_on - from here on the program's sockets belong to the stack */
void dispatch_on(void)
{
	installed = true;
}

/** preload_dispatch - handle a patched call; returns what the kernel would */
long preload_dispatch(long nr, const long *a)
{
	if (unlikely(me.own || me.depth))
		return own_call(nr, a);
	if (unlikely(!installed))
		return native(nr, a);
	if (unlikely(!*alive))
		return child_call(nr, a);
	if (unlikely(!handlers[nr]))
		return native(nr, a);
	/*
	 * The library's own thread must not park: it still receives from the
	 * peers.
	 */
	if (unlikely(parked_by && parked_by != &me && me.top))
		park();
	return handlers[nr](nr, a);
}
