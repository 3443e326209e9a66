# SPDX-License-Identifier: Apache-2.0
#
# Sends each client the client's link-local address, and the interface.

import socket
s = socket.create_server(("::", 7000), family=socket.AF_INET6)
while True:
    c, a = s.accept()
    c.sendall(f"{a[0].split('%')[0]} {socket.if_indextoname(a[3])}".encode())
    c.close()
