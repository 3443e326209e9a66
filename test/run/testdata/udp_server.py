# SPDX-License-Identifier: Apache-2.0
#
# Returns datagrams in upper case until one says "end".

import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7777))
print("bound")
while True:
    d, a = s.recvfrom(2000)
    s.sendto(d.upper(), a)
    if d == b"end": break
