# SPDX-License-Identifier: Apache-2.0
#
# Sends datagrams of all sizes to reverse_datagrams.py at two addresses.

import os, socket, sys
for addr in sys.argv[1:]:
    family = socket.getaddrinfo(addr, 7000)[0][0]
    for connected in False, True:
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.settimeout(20)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        if connected: s.connect((addr, 7000))
        for n in 0, 1, 1472, 1473, 5000, 20000, 60000, 65507 if family == socket.AF_INET else 65487:
            d = os.urandom(n)
            s.send(d) if connected else s.sendto(d, (addr, 7000))
            got, a = s.recvfrom(70000)
            assert got == d[::-1] and a[0] == addr, (addr, connected, n, len(got), a)
        try:
            s.send(b"x" * 65600) if connected else s.sendto(b"x" * 65600, (addr, 7000))
            print("too long is not refused", addr, connected)
        except OSError as e:
            assert e.errno == 90, e
print("ok")
