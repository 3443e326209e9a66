# SPDX-License-Identifier: Apache-2.0
"""The target of TestFinding02ForeignMemory: a process that is killed while lklhost
waits for a page of its memory, and another one that gets its number.

Argument: a file system that stalls (kit.StallFS).
"""

import ctypes
import os
import signal
import socket
import sys
import time

DIR = sys.argv[1]
LIMIT = 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.getsockname.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
READ_WRITE, PRIVATE, ANONYMOUS = 3, 2, 0x20

page = libc.mmap(None, 4096, READ_WRITE, PRIVATE, os.open(DIR + "/page", os.O_RDONLY), 0)
secret = libc.mmap(None, 4096, READ_WRITE, PRIVATE | ANONYMOUS, -1, 0)
ctypes.memset(secret, 0xAA, 64)

s = socket.socket()
s.bind(("127.0.0.1", 1234))
first = os.fork()
if not first:
    libc.getsockname(s.fileno(), secret, page)
    os._exit(0)
end = time.monotonic() + LIMIT
while not os.path.exists(DIR + "/asked"):
    if time.monotonic() > end:
        sys.exit("nobody asks for the page")
    time.sleep(0.001)
os.kill(first, signal.SIGKILL)
os.waitpid(first, 0)

r, w = os.pipe()
for _ in range(1000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(first - 1))
    second = os.fork()
    if not second:
        os.close(w)
        os.read(r, 1)
        if os.getpid() == first:
            now = ctypes.string_at(secret, 64)
            print("untouched" if now == b"\xaa" * 64 else "touched: " + now.hex(), flush=True)
        os._exit(0)
    if second == first:
        break
    os.kill(second, signal.SIGKILL)
    os.waitpid(second, 0)
else:
    sys.exit("the number was not given anew")
os.path.exists(DIR + "/release")
# lklhost answers this call only after it has finished the call of the first
# process.
socket.socket().close()
os.close(w)
os.waitpid(second, 0)
