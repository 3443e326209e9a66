# SPDX-License-Identifier: Apache-2.0
#
# Exchanges datagrams of several sizes with an echo server. Argument: its address.

import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
for i in range(20):
    s.sendto(b"x" * (i * 50), (sys.argv[1], 7))
    d, a = s.recvfrom(2000)
    assert (len(d), a) == (i * 50, (sys.argv[1], 7)), (len(d), a)
print("ok")
