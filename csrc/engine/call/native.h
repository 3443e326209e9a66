/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls that the host's kernel executes: why each of them is safe.
 *
 * Theory of operation
 *
 * lklhost looks at a caught call and then may let the host's kernel execute it.
 * In between, other threads of the target can exchange everything that the
 * call refers to: a descriptor by dup2(2), a byte of memory, a name. A call is
 * therefore native only if it is harmless for every descriptor that the target
 * can have and for every content of its memory. lklhost answers all other calls
 * itself, or carries them out on its own duplicate.
 *
 * The registers cannot change: the calling thread sleeps in the kernel until
 * the answer. With the engine trace, trace/step.c compares them.
 *
 * Only call_native() continues a call. tests/rooms.py checks this, and that
 * each use gives a reason from this list.
 *
 * The reasons rely on one invariant: the target has no foreign socket (foreign_sock.c),
 * which is a socket of a network that is not the stack's. Its sockets are
 * carriers, unix sockets, AF_ALG, netlink of the host's local protocols, packet
 * sockets of the mirror, and the standard streams that the user has given to
 * it. Four calls could break the invariant, and none of them is ever native:
 * recvmsg(2), recvmmsg(2), pidfd_getfd(2), and socket(2) of other families. This
 * also applies to the zygote, which the target can control by ptrace(2) if
 * neither has a user namespace.
 *
 * The filter (target/filter.c) does not catch calls that are harmless in the
 * same sense: read(2), write(2), send(2) and recv(2) without an address,
 * splice(2) and sendfile(2) move bytes, but no descriptors. dup(2), fcntl(2) and
 * close(2) change only descriptors that the target has. open(2) of a socket
 * fails (ENXIO). socketpair(2) has no family but AF_UNIX.
 */
#ifndef LKLHOST_NATIVE_H
#define LKLHOST_NATIVE_H

#include <stdint.h>

/**
 * enum native_reason - why the host's kernel may execute a call
 * @NATIVE_ZYGOTE: recvmsg(2) of the zygote (target/zygote.c), if the kernel does
 *	not let lklhost access it. It is not dumpable then, so no process of the
 *	target can control it or access its memory and descriptors.
 * @NATIVE_SAME_STACK: The run has --stack host. The host's stack is the run's stack.
 * @NATIVE_LOCAL_NETLINK: socket(2) of a netlink protocol that concerns the host
 *	and no network. The registers contain all arguments.
 * @NATIVE_OTHER_NAMESPACE: setns(2) with the type of another namespace than the
 *	network. The type is in a register, and the kernel refuses a descriptor
 *	of another type.
 * @NATIVE_NAMESPACE: setns(2) into a network namespace, and unshare(2) of one.
 *	setns(2): the thread stops before it returns to its program, and its
 *	process is killed if its namespace does not belong to the run
 *	(carrier/space.c). unshare(2): all arguments are in registers.
 * @NATIVE_MOUNT: mount(2) and umount2(2) return no descriptor. The filter catches
 *	few of them (target/filter.c), for programs that mount sysfs. All others
 *	are native in any case.
 * @NATIVE_OWN_FILE: ioctl(2) whose number, a register, concerns the descriptor
 *	alone: its owner, mark, timestamp or unsent bytes. No descriptor gives
 *	access to a device by such a request.
 * @NATIVE_LOCAL_SOCKET: A call on a socket that is not a carrier, except
 *	recvmsg(2), recvmmsg(2), and setsockopt(2) of a timeout. The only descriptor that it can return is that of
 *	accept(2), whose listener the target has already, so the invariant
 *	holds. A name in memory selects a unix socket, which belongs to the host:
 *	mounts hide the name services (target/hide_services.c), and without them
 *	--allow is refused. On a carrier, the call changes what the caller itself
 *	receives or sends. A datagram carrier can also send to the name of
 *	another one, so a process can forge a datagram for an unconnected socket
 *	of another process of the run, but of no other run.
 * @NATIVE_SEND: sendmsg(2) without a name or ancillary data on a stream's
 *	carrier: NATIVE_LOCAL_SOCKET applies to all other descriptors.
 */
enum native_reason {
	NATIVE_ZYGOTE,
	NATIVE_SAME_STACK,
	NATIVE_LOCAL_NETLINK,
	NATIVE_OTHER_NAMESPACE,
	NATIVE_NAMESPACE,
	NATIVE_MOUNT,
	NATIVE_OWN_FILE,
	NATIVE_LOCAL_SOCKET,
	NATIVE_SEND,
};

int64_t call_native(enum native_reason reason);

#endif
