# SPDX-License-Identifier: Apache-2.0
#
# Asks for bursts. Arguments: the server and its port, the number of datagrams and
# their size.

import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], int(sys.argv[2])))
s.settimeout(20)
for i in range(5):
    s.send(b"go")
    for j in range(int(sys.argv[3])):
        assert len(s.recv(2000)) == int(sys.argv[4])
print("all")
