# SPDX-License-Identifier: Apache-2.0
#
# Returns datagrams in upper case on the socket that was handed over.

import socket
s = socket.socket(fileno=3)
assert s.type == socket.SOCK_DGRAM
s.setblocking(True)
while True:
    d, a = s.recvfrom(2000)
    s.sendto(d.upper(), a)
