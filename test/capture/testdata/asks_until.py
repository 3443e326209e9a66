# SPDX-License-Identifier: Apache-2.0
#
# A client that sends requests to a web server on one connection until a file
# appears. nginx closes a connection after 1000 requests; with the pauses in
# between, these last longer than a test may take.

import os, socket, sys, time
c = socket.create_connection((sys.argv[1], 80), 60)
f = c.makefile("rb")
while not os.path.exists(sys.argv[2]):
    c.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
    got = b""
    while not got.endswith(b"hello\n"): got += f.read(1) or sys.exit("it closes")
    time.sleep(0.05)
c.close()
