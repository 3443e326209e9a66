# SPDX-License-Identifier: Apache-2.0
# Sends bytes to a server, and prints their checksum.
import hashlib, random, socket, sys

data = random.Random(1).randbytes(int(sys.argv[3]))
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
    s.sendall(data)
print(hashlib.sha256(data).hexdigest())
