# SPDX-License-Identifier: Apache-2.0
#
# Makes connections that are refused, on the stack's loopback, and sends
# datagrams to a server that has no such port, until it is killed.

import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    s = socket.socket()
    s.connect_ex(("127.0.0.1", 1))
    s.close()
    udp.sendto(b"hello", (sys.argv[1], 4000))
    time.sleep(0.02)
