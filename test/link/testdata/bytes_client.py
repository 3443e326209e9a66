# SPDX-License-Identifier: Apache-2.0
#
# bytes_client.py ADDRESS SIZE: sends SIZE bytes, and compares the server's SHA-256.

import hashlib, random, socket, sys
addr, left = sys.argv[1], int(sys.argv[2])
block, h = random.Random(1).randbytes(1 << 20), hashlib.sha256()
s = socket.create_connection((addr, 9000), 20)
s.settimeout(60)
while left > 0:
    at = left % 4096
    data = block[at:at + min(left, 300_001)]
    s.sendall(data)
    h.update(data)
    left -= len(data)
s.shutdown(socket.SHUT_WR)
got = b""
while part := s.recv(100):
    got += part
assert got.decode() == h.hexdigest(), (got, h.hexdigest())
print("right")
