# SPDX-License-Identifier: Apache-2.0
#
# Reads numbers, one per line, and sends that many datagrams of 1,448 bytes to
# an address. Reports every 500 of them.

import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for line in sys.stdin:
    for i in range(1, int(line) + 1):
        s.sendto(b"x" * 1448, (sys.argv[1], 9))
        if i % 500 == 0:
            print("sent", flush=True)
