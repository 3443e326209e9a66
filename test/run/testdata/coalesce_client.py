# SPDX-License-Identifier: Apache-2.0
# Receives all bytes of a server, and prints their checksum and how often this process
# was woken up meanwhile.
import hashlib, resource, socket, sys

s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
total = hashlib.sha256()
while data := s.recv(1 << 18):
    total.update(data)
print(total.hexdigest(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)
