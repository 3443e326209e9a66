# SPDX-License-Identifier: Apache-2.0
#
# bytes_server.py ADDRESS: prints the SHA-256 of what each of its connections sends.

import hashlib, socket, sys
s = socket.create_server((sys.argv[1], 9000))
print("ready", flush=True)
while True:
    c, _ = s.accept()
    h = hashlib.sha256()
    while data := c.recv(1 << 17):
        h.update(data)
    c.sendall(h.hexdigest().encode())
    c.close()
