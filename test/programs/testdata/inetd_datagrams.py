# SPDX-License-Identifier: Apache-2.0
#
# Returns datagrams in upper case on the socket that inetd has handed over.

import socket
s = socket.socket(fileno=0)
s.settimeout(0.2)
try:
    while True:
        d, a = s.recvfrom(2000)
        s.sendto(d.upper(), a)
except TimeoutError:
    pass
