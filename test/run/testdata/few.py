# SPDX-License-Identifier: Apache-2.0
"""The target of TestNoDescriptors: makes sockets until lklhost has no descriptor left.

Prints the error of the last socket, and the outcomes of calls on the existing ones.
"""

import collections
import errno
import os
import socket

outcomes = collections.Counter()


def attempt(call):
    try:
        call()
        outcomes["done"] += 1
        return True
    except OSError as e:
        outcomes[errno.errorcode[e.errno]] += 1
        return False


lis = socket.create_server(("127.0.0.1", 0), backlog=1000)
spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
pairs, single, stopped = [], [], []
for step in range(2):
    try:
        while True:
            c = socket.socket()
            if step == 0:
                c.connect(lis.getsockname())
                pairs.append((c, lis.accept()[0]))
            else:
                single.append(c)
    except OSError as e:
        stopped.append(errno.errorcode[e.errno])
for fd in spare:
    os.close(fd)
for c, a in pairs:
    attempt(lambda: c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    attempt(lambda: c.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
    attempt(a.getpeername)
    sent = b"x" if attempt(lambda: c.sendmsg([b"x"])) else b""
    if attempt(lambda: a.recvmsg(1)):
        sent = b""
    c.sendall(b"y")
    c.shutdown(socket.SHUT_WR)
    got = b""
    while len(got) < 10:
        more = a.recv(10)
        if not more:
            break
        got += more
    assert got == sent + b"y", (got, sent)
print(*stopped, *sorted(outcomes))
