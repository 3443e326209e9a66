# SPDX-License-Identifier: Apache-2.0
#
# join_wire.py SOCKET: joins a wire as lklrun does (internal/link/wire/rendezvous.go), and
# prints whether the other end hangs up.

import fcntl, os, socket, struct, sys
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
mem = os.memfd_create("wire", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.ftruncate(mem, 2 * (65536 + (2 << 20)))
fcntl.fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
socket.send_fds(ours, [struct.pack("II", 0x31726977, 0)], [mem])
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
try:
    socket.send_fds(s, [b"\0"], [theirs.fileno()])
except BrokenPipeError:
    pass  # the other end has hung up already
theirs.close()
ours.settimeout(10)
try:
    print("hangs up" if ours.recv(1) == b"" else "rings")
except TimeoutError:
    print("joined")
except ConnectionResetError:
    print("hangs up")
