# SPDX-License-Identifier: Apache-2.0
#
# Begins 1,100 connections to a host that never answers, then one to a server,
# and prints how long the last one took.

import socket, sys, time
silent = []
for i in range(1100):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex((sys.argv[2], 80))
    silent.append(s)
time.sleep(0.5)
begin = time.monotonic()
c = socket.create_connection((sys.argv[1], 80), 20)
print("connected %.3f" % (time.monotonic() - begin), flush=True)
sys.stdin.read()
