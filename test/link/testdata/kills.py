# SPDX-License-Identifier: Apache-2.0
#
# The target of the random kills (test/link/kills_test.go). The program, a child, and
# a child in a session of its own exchange data with an echo server without end.

import os, socket, sys, time

addr, port = sys.argv[1], int(sys.argv[2])
print("ready", os.getpid(), flush=True)
null = os.open("/dev/null", os.O_RDWR)  # nobody reads the children's output
for fd in 0, 1, 2:
    os.dup2(null, fd)
if os.fork() == 0 and os.fork() == 0:
    os.setsid()
while True:
    try:
        with socket.create_connection((addr, port), 0.2) as s:
            s.settimeout(0.2)
            for _ in range(20):
                s.sendall(b"x" * 1000)
                s.recv(1000)
    except OSError:
        time.sleep(0.01)
