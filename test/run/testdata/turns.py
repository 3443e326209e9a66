# SPDX-License-Identifier: Apache-2.0
"""Processes that make calls without end. Ends when the slowest has made enough of them."""
import mmap
import os
import signal
import socket
import sys
import time

processes, enough = int(sys.argv[1]), int(sys.argv[2])
calls = memoryview(mmap.mmap(-1, processes * 8)).cast("Q")
children = []
for n in range(processes):
    children.append(os.fork())
    if children[n] == 0:
        s = socket.socket()
        while True:
            s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            calls[n] += 1
while min(calls) < enough:
    time.sleep(0.01)
print(min(calls), max(calls))
for pid in children:
    os.kill(pid, signal.SIGKILL)
