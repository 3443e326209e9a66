# SPDX-License-Identifier: Apache-2.0
"""Print everything that the host's kernel receives in a container's network namespace."""
import select
import socket

MARK = b"lklrun-escape"


def chatter(frame):
    """Neighbour discovery and group membership of IPv6."""
    return frame[12:14] == b"\x86\xdd" and frame[20] in (0, socket.IPPROTO_ICMPV6)


listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
datagrams.bind(("::", 0))
v1, lo = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(2))
v1.bind(("v1", 3))
lo.bind(("lo", 3))
print("ESCAPE_TCP=%d ESCAPE_UDP=%d" % (listener.getsockname()[1], datagrams.getsockname()[1]), flush=True)
sockets = [listener, datagrams, v1, lo]
while True:
    for s in select.select(sockets, [], [])[0]:
        if s is listener:
            sockets.append(s.accept()[0])
            continue
        data, sender = s.recvfrom(65536)
        if not data and s not in (datagrams, v1, lo):
            sockets.remove(s)
        elif s in (v1, lo) and (sender[2] == socket.PACKET_OUTGOING or chatter(data) or s is lo and MARK not in data):
            continue
        elif data:
            print("heard", data[:100], flush=True)
