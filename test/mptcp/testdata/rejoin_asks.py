# SPDX-License-Identifier: Apache-2.0
#
# Opens a connection at once, and another for each line of input.

import socket, sys
all = []
with open(sys.argv[3]) as lines:
    while True:
        all.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), 30))
        all[-1].sendall(b"w")
        if not lines.readline(): break
