# SPDX-License-Identifier: Apache-2.0
"""The target of TestSlowPage: calls whose memory comes only after another process has made
100 round trips over the stack. Arguments: an address and port with an echo.
"""

import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import sys
import threading

server, port = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
trips = mmap.mmap(-1, 8)


def count():
    return struct.unpack("Q", trips[:])[0]


def go_on():
    s = socket.create_connection((server, port))
    for n in range(1 << 40):
        trips[:] = struct.pack("Q", n)
        s.sendall(b"x")
        s.recv(1)


def slow(content):
    """map a page that gets its content when it is wanted, and after 100 round trips"""
    fd = libc.syscall(323, os.O_NONBLOCK)  # poll requires this
    page = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
    fcntl.ioctl(fd, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
    fcntl.ioctl(fd, 0xC020AA00, bytearray(struct.pack("QQQQ", page, 4096, 1, 0)))
    source = ctypes.create_string_buffer(content.ljust(4096, b"\0"), 4096)

    def come():
        select.select([fd], [], [])
        before = count()
        while count() < before + 100:
            select.select([], [], [], 0.001)
        fcntl.ioctl(fd, 0xC028AA03, bytearray(struct.pack("QQQQq", page, ctypes.addressof(source), 4096, 0, 0)))
        os.close(fd)

    threading.Thread(target=come).start()
    return page


def at(page, n):
    return ctypes.string_at(page, n)


def call(name, *args):
    ret = getattr(libc, name)(*[ctypes.c_void_p(a) if isinstance(a, int) and a > 1 << 31 else a for a in args])
    return ret if ret >= 0 else os.strerror(ctypes.get_errno())


def udp(text=None):
    """two sockets; the second one has received the text"""
    a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for s in a, b:
        s.bind(("127.0.0.1", 0))
    if text:
        a.sendto(text, b.getsockname())
    return a, b


def sockaddr(s):
    return struct.pack("=H", 2) + struct.pack("!H4s8x", s.getsockname()[1], socket.inet_aton(s.getsockname()[0]))


def msghdr(base, size, name=0):
    iov = ctypes.create_string_buffer(struct.pack("QQ", base, size), 16)
    keep.append(iov)
    return struct.pack("QQQQQQQ", name, 16 if name else 0, ctypes.addressof(iov), 1, 0, 0, 0)


def buffer(content):
    keep.append(ctypes.create_string_buffer(content, max(len(content), 1)))
    return ctypes.addressof(keep[-1])


keep = []


def name_length():
    _, b = udp()
    name = buffer(bytes(16))
    return call("getsockname", b.fileno(), name, slow(struct.pack("I", 16))), at(name, 16) == sockaddr(b)


def received(where):
    a, b = udp(b"once")
    data = slow(b"") if where == "data" else buffer(bytes(9))
    header = slow(msghdr(data, 9)) if where == "header" else buffer(msghdr(data, 9))
    ret = call("recvmsg", b.fileno(), header, 0)
    a.sendto(b"next", b.getsockname())
    return ret, at(data, 4), b.recv(9)


def received_name():
    a, b = udp(b"once")
    name, data = slow(b""), buffer(bytes(9))
    ret = call("recvfrom", b.fileno(), data, 9, 0, name, buffer(struct.pack("I", 16)))
    return ret, at(name, 16) == sockaddr(a), at(data, 4)


def sent(where):
    a, b = udp()
    data = slow(b"once") if where == "data" else buffer(b"once")
    name = slow(sockaddr(b)) if where == "name" else buffer(sockaddr(b))
    ret = call("sendmsg", a.fileno(), buffer(msghdr(data, 4, name)), 0)
    got = b.recv(9)
    b.setblocking(False)
    try:
        got += b.recv(9)
    except BlockingIOError:
        pass
    return ret, got


def accepted(where):
    listener = socket.create_server(("127.0.0.1", 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
    name = slow(b"") if where == "name" else buffer(bytes(16))
    length = slow(struct.pack("I", 16)) if where == "length" else buffer(struct.pack("I", 16))
    one = socket.socket(fileno=call("accept", listener.fileno(), name, length))
    return at(name, 16) == sockaddr(clients[0]), one.getpeername() == clients[0].getsockname(), \
        listener.accept()[1] == clients[1].getsockname()


def option():
    _, b = udp()
    ret = call("setsockopt", b.fileno(), 0, 2, slow(struct.pack("I", 77)), 4)
    page = slow(b"")
    return ret, call("getsockopt", b.fileno(), 0, 2, page, buffer(struct.pack("I", 4))), at(page, 1)


def connected():
    a, b = udp()
    return call("connect", a.fileno(), slow(sockaddr(b)), 16), a.getpeername() == b.getsockname()


child = os.fork()
if not child:
    go_on()
for what in (name_length, lambda: received("data"), lambda: received("header"), received_name, lambda: sent("data"),
             lambda: sent("name"), lambda: accepted("name"), lambda: accepted("length"), option, connected):
    print(*what(), flush=True)
os.kill(child, 9)
