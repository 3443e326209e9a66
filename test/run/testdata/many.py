# SPDX-License-Identifier: Apache-2.0
"""The target of TestManySockets: as many connections to itself as go.

Arguments: how many; the limit of descriptors. It tells how many connections it
had, what stopped it, and the memory of the stack host.
"""

import errno
import os
import resource
import socket
import sys

LIMIT = 30
want, files = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def host_rss():
    """resident kilobytes of lklhost, our parent"""
    with open(f"/proc/{os.getppid()}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


lis = socket.create_server(("127.0.0.1", 0), backlog=1000)
lis.settimeout(LIMIT)
pairs, stopped = [], ""
spare = os.open("/dev/null", os.O_RDONLY)  # lets us look at /proc at the end
try:
    while len(pairs) < want:
        c = socket.socket()
        c.settimeout(LIMIT)
        c.connect(lis.getsockname())
        try:
            a, _ = lis.accept()
        except OSError as e:
            # A connection that could not be accepted stays in the listener's
            # queue.
            if e.errno == errno.EMFILE:
                pairs.pop()[0].close()
                a, _ = lis.accept()
                assert a.getpeername() == c.getsockname()
                stopped = "accept: EMFILE"
                pairs.append((c, a))
                break
            raise
        pairs.append((c, a))
except OSError as e:
    stopped = errno.errorcode[e.errno]
for c, a in pairs:
    c.sendall(b"x" * 100)
for c, a in pairs:
    a.settimeout(LIMIT)
    assert a.recv(100) == b"x" * 100
os.close(spare)
print(len(pairs), stopped or "all", host_rss(), flush=True)
while pairs:
    for s in pairs.pop():
        s.close()
# New sockets are possible as soon as the stack host has processed the closes.
for _ in range(1000):
    try:
        again = socket.create_connection(lis.getsockname(), LIMIT)
        break
    except OSError as e:
        if e.errno != errno.ENOBUFS:
            raise
again.sendall(b"y")
print("again", host_rss())
