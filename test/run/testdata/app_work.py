# SPDX-License-Identifier: Apache-2.0
#
# Arguments: a server on the wire, a port of the host that the program must not reach, and a
# static program.
import ctypes
import errno
import os
import socket
import sys

server, port, probe = sys.argv[1], int(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
SOCKET, IOCTL, IO_URING_SETUP = (41, 16, 425) if x86 else (198, 29, 425)
TUNSETIFF = 0x400454CA

# Code of our own with a system call, which the library has not patched.
code = bytes.fromhex("4889f84889f74889d64889ca0f05c3" if x86 else "e80300aae00301aae10302aae20303aa010000d4c0035fd6")
libc.mmap.restype = ctypes.c_void_p
page = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
ctypes.memmove(page, code, len(code))
assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(4096), 5) == 0
call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 4)(page)


def bare(*args):
    """Return the result of a system call that the library does not intercept."""
    ret = call(*args, *[0] * (4 - len(args)))
    return errno.errorcode[-ret] if ret < 0 else "reached"


c = socket.create_connection((server, 80), 10)
c.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
print("TCP:", c.makefile().readline().strip())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(10)
u.sendto(b"ping", (server, 7))
print("UDP:", u.recv(99).decode())
listener = socket.create_server(("0.0.0.0", 4242))
try:
    print("host: reached", socket.create_connection(("127.0.0.1", port), 10))
except OSError as e:
    print("host:", type(e).__name__)
print("bare socket:", bare(SOCKET, socket.AF_INET, socket.SOCK_STREAM, 0))
print("bare io_uring:", bare(IO_URING_SETUP, 1, page))
print("bare tap:", bare(IOCTL, 0, TUNSETIFF, page))
sys.stdout.flush()
os.dup2(1, 2)
os.spawnv(os.P_WAIT, probe, ["child", "dial", "%s:80" % server])
sys.stdin.read()
