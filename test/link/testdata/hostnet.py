# SPDX-License-Identifier: Apache-2.0
"""The target of TestHostNet: sockets that go to chosen destinations and others.

Arguments: a chosen port of 127.0.0.1 and ::1, where a TCP and a UDP echo are; a
port of 127.0.0.1 that is chosen and has no listener; a server on the stack's
wire with the same echoes on the port given last.
"""

import asyncio
import errno
import os
import select
import socket
import sys

PORT, CLOSED, SERVER, SPORT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
HOST = ("127.0.0.1", PORT)
FAR = (SERVER, SPORT)
LIMIT = 20
failed = 0


def check(name, got, want):
    global failed
    if got != want:
        failed += 1
        print(f"{name}: {got!r}, want {want!r}", flush=True)


def ping(s, text=b"ping"):
    s.settimeout(LIMIT)
    s.sendall(text)
    return s.recv(100)


def error(f, *args):
    try:
        f(*args)
    except OSError as e:
        return e.errno
    return 0


# Blocking, non-blocking, with options set before.
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
s.settimeout(None)
s.connect(HOST)
check("blocking", ping(s), b"ping")
check("its peer", s.getpeername(), HOST)
check("its own address", s.getsockname()[0], "127.0.0.1")
check("TCP_NODELAY", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 1)
check("SO_KEEPALIVE", s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1)
s.settimeout(None)
check("another connect", error(s.connect, FAR), errno.EISCONN)
check("close-on-exec", os.get_inheritable(s.fileno()), False)
s.close()

s = socket.socket()
os.set_inheritable(s.fileno(), True)
s.connect(HOST)
check("no close-on-exec", os.get_inheritable(s.fileno()), True)
s.close()

for name, family, where in (
    ("IPv6", socket.AF_INET6, ("::1", PORT)),
    ("IPv4 in IPv6", socket.AF_INET6, ("::ffff:127.0.0.1", PORT)),
):
    s = socket.socket(family)
    s.connect(where)
    check(name, ping(s), b"ping")
    s.close()


# Before the connect, the socket is added to an epoll instance and is
# duplicated.
s = socket.socket()
s.setblocking(False)
copy = os.dup(s.fileno())
ep = select.epoll()
ep.register(s, select.EPOLLOUT | select.EPOLLET)
check("non-blocking", s.connect_ex(HOST) in (0, errno.EINPROGRESS), True)
check("the epoll", ep.poll(LIMIT), [(s.fileno(), select.EPOLLOUT)])
check("SO_ERROR", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
ep.modify(s, select.EPOLLIN)
os.write(copy, b"by the copy")
check("the epoll, modified", ep.poll(LIMIT), [(s.fileno(), select.EPOLLIN)])
check("the copy", s.recv(100), b"by the copy")
ep.unregister(s)
os.close(copy)
s.close()


async def by_asyncio():
    r, w = await asyncio.wait_for(asyncio.open_connection(*HOST), LIMIT)
    w.write(b"async")
    got = await asyncio.wait_for(r.readexactly(5), LIMIT)
    w.close()
    return got


check("asyncio", asyncio.run(by_asyncio()), b"async")

# After a failed connect, the same socket can connect to another destination.
s = socket.socket()
check("refused", error(s.connect, ("127.0.0.1", CLOSED)), errno.ECONNREFUSED)
s.connect(FAR)
check("to the stack after that", ping(s), b"ping")
s.close()
s = socket.socket()
s.setblocking(False)
check("refused later", s.connect_ex(("127.0.0.1", CLOSED)) in (errno.EINPROGRESS, errno.ECONNREFUSED), True)
select.select([], [s], [], LIMIT)
s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
s.setblocking(True)
s.connect(FAR)
check("to the stack after that too", ping(s), b"ping")
check("from the stack's address", s.getsockname()[0], "10.73.0.10")
s.close()

# A port that --host-net does not name is not reachable.
s = socket.socket()
check("not chosen", error(s.connect, ("127.0.0.1", 9)), errno.ECONNREFUSED)
s.close()

# Like getaddrinfo(), connect one datagram socket to several addresses, one
# after the other.
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for where, own in ((HOST, "127.0.0.1"), (FAR, "10.73.0.10"), (HOST, "127.0.0.1")):
    s.connect(where)
    check(f"datagrams to {where}", ping(s), b"ping")
    check(f"own address to {where}", s.getsockname()[0], own)
s.close()

# Without a connect, the destination of the first message selects the network.
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(LIMIT)
s.sendto(b"first", HOST)
check("sendto", s.recvfrom(100), (b"first", HOST))
check("then to the stack", error(s.sendto, b"second", FAR), errno.ENETUNREACH)
check("sendmsg", s.sendmsg([b"th", b"ird"], [], 0, HOST), 5)
check("sendmsg's answer", s.recv(100), b"third")
s.close()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(LIMIT)
s.sendmsg([b"first"], [], 0, FAR)
check("the stack's", s.recvfrom(100), (b"first", FAR))
check("then to the host", error(s.sendto, b"second", HOST), errno.ENETUNREACH)
s.close()

# Listeners always belong to the stack.
s = socket.socket()
s.bind(("127.0.0.1", PORT))
s.listen()
s.close()

# A connect with a timeout.
s = socket.socket()
s.settimeout(LIMIT)
s.connect(HOST)
check("with a time-out", ping(s), b"ping")
s.close()

print("failed" if failed else "all well", flush=True)
sys.exit(failed != 0)
