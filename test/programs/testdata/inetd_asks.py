# SPDX-License-Identifier: Apache-2.0
#
# Sends datagrams to inetd_datagrams.py. Argument: its address.

import socket, sys
for i in range(3):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    for n in range(20): # datagrams are lost between two programs of inetd's, natively too
        s.sendto(b"datagram %d" % i, (sys.argv[1], 7002))
        try: d = s.recv(100)
        except TimeoutError: continue
        assert d == b"DATAGRAM %d" % i, d
        break
    else: raise SystemExit("no answer")
print("ok")
