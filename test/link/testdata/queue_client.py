# SPDX-License-Identifier: Apache-2.0
#
# Makes 64 connections, and prints how many each of the two servers has. A
# connection stays with its server.

import socket, sys
conns = [socket.create_connection(("10.76.0.2", 8000), 5) for _ in range(64)]
who = [None] * len(conns)
for turn in range(3):
    for i, c in enumerate(conns):
        c.sendall(b"who\n")
    for i, c in enumerate(conns):
        name = c.makefile().readline().strip()
        assert name and who[i] in (None, name), (i, who[i], name)
        who[i] = name
print(who.count("one"), who.count("two"))
