# SPDX-License-Identifier: Apache-2.0
#
# Reads numbers, one per line, and sends that many datagrams of 1,448 bytes to
# an address.

import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for line in sys.stdin:
    for i in range(int(line)):
        s.sendto(b"x" * 1448, (sys.argv[1], 9))
    print("sent", flush=True)
