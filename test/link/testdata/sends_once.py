# SPDX-License-Identifier: Apache-2.0
#
# Sends a datagram to an address and waits for the answer. Without IPV6_RECVERR,
# Linux does not report a router without a route to the program.

import socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(20)
s.setsockopt(socket.IPPROTO_IPV6, 25, 1) # IPV6_RECVERR
s.connect((sys.argv[1], 9))
try:
    s.send(b"x")
    print(s.recv(10).decode())
except OSError as e:
    print(e.strerror)
