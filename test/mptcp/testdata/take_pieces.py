# SPDX-License-Identifier: Apache-2.0
#
# Reads eight-byte numbers that count up from 0, on several connections at once,
# and prints how many it received on each.

import os, socket, struct, sys, threading
all = []
for _ in range(int(sys.argv[3])):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"w")
    all.append(s)
def take(s):
    data = bytearray()
    while piece := s.recv(65536): data += piece
    count = sum(n == i for i, (n,) in enumerate(struct.iter_unpack("=Q", data)))
    os.write(1, b"%d\n" % count)  # print() of several threads would mix the lines
for s in all: threading.Thread(target=take, args=(s,)).start()
