# SPDX-License-Identifier: Apache-2.0
#
# Copies options of a listener to its connections, as Erlang does.

import errno, socket, struct
IP_RECVTTL, SOL_MPTCP, MPTCP_INFO = 12, 284, 1
for family, addr in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
    l = socket.create_server((addr, 7000), family=family)
    s = socket.create_connection((addr, 7000))
    c, _ = l.accept()
    for x in l, s, c:
        for level, name in (socket.IPPROTO_IP, socket.IP_TTL), (socket.IPPROTO_IP, IP_RECVTTL), (socket.IPPROTO_IP, socket.IP_RECVTOS):
            x.setsockopt(level, name, l.getsockopt(level, name))
        try: x.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        except OSError as e: assert e.errno == errno.EOPNOTSUPP, e
        else: raise SystemExit("it has IP_RECVTTL")
    c.getsockopt(SOL_MPTCP, MPTCP_INFO, 8)
    s.sendall(b"still there\n")
    print(c.recv(100).decode(), end="")
    for x in l, s, c: x.close()
