# SPDX-License-Identifier: Apache-2.0
#
# The client of the transfer. It also opens other sockets.

import socket, sys
port = int(sys.argv[1])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("10.74.1.2", 7001))
asked = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
asked.connect(("fd74:1::1", 7002))
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
s = socket.create_connection(("10.74.1.1", port), 60)
s.sendall(b"g")
while s.recv(1 << 18): pass
