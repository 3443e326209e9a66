# SPDX-License-Identifier: Apache-2.0
#
# The client of ServeTransfers. It fetches ("get") or sends ("put"), and prints the number
# of bytes, their checksum, and the longest time without a received byte. It sends 64-bit
# words that count up (TransferPeer.compare). With "part", it sends and ends at once, while
# the data is still in its socket.

import array, hashlib, socket, sys, time
address, port, what, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
s = socket.create_connection((address, port), 600)
h, n, worst = hashlib.sha256(), 0, 0
s.sendall(what[0].encode())
last = time.monotonic()
while what == "get":
    b = s.recv(1 << 18)
    now = time.monotonic()
    worst, last = max(worst, now - last), now
    if not b: break
    n += len(b)
    h.update(b)
while what != "get" and n < size:
    b = array.array("Q", range(n // 8, (n + min(1 << 18, size - n)) // 8)).tobytes()
    s.sendall(b)
    n += len(b)
    h.update(b)
if what != "part":
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
print(n, h.hexdigest(), worst)
