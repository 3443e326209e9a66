# SPDX-License-Identifier: Apache-2.0
"""The target of TestFinding14StalledPage: a process whose memory does not come, and
one that goes on.

Arguments: the way, a file system that stalls (kit.StallFS), an address and port with
an echo. The ways: fuse: a page of that file system; attributes: a file that cannot be
examined; userfaultfd; later: userfaultfd for a page that lklhost has touched before;
exec: for a page at an address that lklhost has touched before the process executed
another program (after); epoll: for the result of epoll_wait(), which keeps the epoll locked.
"""

import ctypes
import fcntl
import os
import signal
import socket
import select
import struct
import sys
import threading

how, where, server, port = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.getsockname.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
libc.epoll_wait.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
READ_WRITE, PRIVATE, ANONYMOUS = 3, 2, 0x20
shared = libc.mmap(1 << 32, 4096, READ_WRITE, PRIVATE | ANONYMOUS, -1, 0)  # one address for all


def watched(fd, page):
    fcntl.ioctl(fd, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
    fcntl.ioctl(fd, 0xC020AA00, bytearray(struct.pack("QQQQ", page, 4096, 1, 0)))


def block_epoll(s, page):
    ep, ready = select.epoll(), os.pipe()
    os.write(ready[1], b"x")
    ep.register(ready[0], select.EPOLLIN)
    ep.register(s)
    threading.Thread(target=libc.epoll_wait, args=(ep.fileno(), page, 1, -1)).start()
    globals()["kept"] = ep  # open


def ask():
    s = socket.create_connection((server, int(port)))
    page = stalled(s)
    buf = ctypes.create_string_buffer(128)
    print("asking", flush=True)
    if how == "epoll":
        libc.connect(s.fileno(), bytes(16), 16)  # AF_UNSPEC: replaces the socket in the epoll
    else:
        libc.getsockname(s.fileno(), buf, page)
    os._exit(0)


def before():
    """one process is killed; this one has a page at the address, and executes a program"""
    if not os.fork():
        ask()
    os.wait()
    child = os.fork()
    if child:
        return child
    libc.prctl(15, b"before", 0, 0, 0)
    ctypes.memmove(shared, struct.pack("I", 128), 4)
    s = socket.socket()
    libc.getsockname(s.fileno(), ctypes.create_string_buffer(128), shared)
    os.execv(sys.executable, [sys.executable, sys.argv[0], "after", where, server, port])


def stalled(s):
    if how == "fuse":
        return libc.mmap(None, 4096, READ_WRITE, PRIVATE, os.open(where + "/page", os.O_RDONLY), 0)
    fd = libc.syscall(323, 0)
    if fd < 0:
        sys.exit("userfaultfd: " + os.strerror(ctypes.get_errno()))
    page = shared
    if how == "epoll":
        watched(fd, page)
        block_epoll(s, page)
        select.select([fd], [], [])  # until the page is wanted
        return page
    if how == "later":
        ctypes.memmove(page, struct.pack("I", 128), 4)
        if libc.getsockname(s.fileno(), ctypes.create_string_buffer(128), page):
            sys.exit("getsockname: " + os.strerror(ctypes.get_errno()))
        libc.madvise(ctypes.c_void_p(page), ctypes.c_size_t(4096), 4)  # MADV_DONTNEED
    watched(fd, page)
    return page


open_connection = socket.create_connection((server, int(port)))
child = before() if how == "exec" else os.fork() if how != "after" else 0
if not child and how == "attributes":
    file = os.open(where + "/attributes", os.O_RDONLY)
    buf = ctypes.create_string_buffer(128)
    print("asking", flush=True)
    for call in (libc.connect, libc.bind, libc.listen, libc.accept, libc.getsockname, libc.getpeername,
                 libc.sendmsg, libc.recvmsg, libc.shutdown):
        if call(file, buf, 16) >= 0:
            os._exit(1)
    for request in (0x8910, 0x8927, 0x5411, 0x400454CA, 0x800454D2):
        libc.ioctl(file, ctypes.c_ulong(request), buf)
    libc.getsockopt(file, 1, 3, buf, buf)
    libc.setsockopt(file, 1, 2, buf, 4)
    libc.recvmmsg(file, buf, 1, 0, None)
    libc.syscall(438, file, 0, 0)  # pidfd_getfd
    os._exit(0)
if not child:
    ask()
open_connection.settimeout(20)
for _ in range(2000):
    open_connection.sendall(b"x" * 1000)
    n = 0
    while n < 1000:
        n += len(open_connection.recv(1000))
_, status = os.waitpid(child, 0)
print("transferred, the other", "killed" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else status, flush=True)
sys.stdin.read()
