# SPDX-License-Identifier: Apache-2.0
"""The target of TestFinding08HostSocket: somebody outside the run sends it sockets.

Argument: a unix socket where that one listens. It sends a pipe, a socket of the
host's network and a pipe in one message, then a pipe, then the same three with one
descriptor a message for recvmmsg(), and then its pid.
"""

import array
import ctypes
import os
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])


def kinds(fds):
    return ",".join(os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in fds)


for _ in range(2):
    text, fds, flags, _ = socket.recv_fds(s, 100, 10)
    print(text.decode(), kinds(fds), flags & socket.MSG_CTRUNC, flush=True)


class Iov(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("len", ctypes.c_size_t))


class Mmsg(ctypes.Structure):
    _fields_ = (("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Iov)),
                ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("pad", ctypes.c_int), ("len", ctypes.c_uint), ("pad2", ctypes.c_int))


data, control = [ctypes.create_string_buffer(10) for _ in range(3)], [ctypes.create_string_buffer(64) for _ in range(3)]
iov = [Iov(ctypes.addressof(d), 10) for d in data]
m = (Mmsg * 3)(*[Mmsg(None, 0, ctypes.pointer(iov[i]), 1, ctypes.addressof(control[i]), 64, 0, 0, 0, 0) for i in range(3)])
n = libc.recvmmsg(s.fileno(), m, 3, 0, None)
for i in range(n):
    fds = array.array("i", control[i].raw[16:20]) if m[i].controllen else []
    print("several", data[i].value.decode(), kinds(fds), m[i].flags & socket.MSG_CTRUNC, flush=True)

pid = int(s.recv(100))
fd = os.pidfd_open(pid)
for n in range(3, 64):
    got = libc.syscall(438, fd, n, 0)
    if got >= 0:
        print("taken:", kinds([got]), flush=True)
print("taking:", os.strerror(ctypes.get_errno()), flush=True)
# The program may copy descriptors from a process of its own run.
r, w = os.pipe()
child = os.fork()
if not child:
    os.read(r, 1)
    os._exit(0)
got = libc.syscall(438, os.pidfd_open(child), r, 0)
print("own child:", kinds([got]), flush=True)
os.write(w, b"x")
