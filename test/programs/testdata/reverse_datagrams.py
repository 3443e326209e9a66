# SPDX-License-Identifier: Apache-2.0
#
# Returns each datagram to its sender, reversed.

import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.bind(("::", 7000))
while True:
    d, a = s.recvfrom(70000)
    s.sendto(d[::-1], a)
