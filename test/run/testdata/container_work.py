# SPDX-License-Identifier: Apache-2.0
#
# The target in a container. Arguments: a web server, an echo server, and a port of
# the container that must not be reached.

import errno, os, socket, subprocess, sys
print(subprocess.check_output(["curl", "-sS", sys.argv[1] + "/hello"]).decode(), end="")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)
s.sendto(b"ping", (sys.argv[2], 7)); print(s.recvfrom(9))
s.connect((sys.argv[2], 7)); s.send(b"pong"); print(s.recv(9))
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); a, _ = l.accept()
a.sendall(b"own"); print(c.recv(9))
def error(*f):
    try: f[0](*f[1:])
    except OSError as e: return errno.errorcode[e.errno]
print(error(socket.create_connection, ("127.0.0.1", int(sys.argv[3]))), error(socket.socket, socket.AF_PACKET, socket.SOCK_RAW),
      error(socket.socket, socket.AF_VSOCK), error(socket.socketpair, 30, socket.SOCK_SEQPACKET))
print(error(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 10)) # NETLINK_FIB_LOOKUP
print(sorted(i for _, i in socket.if_nameindex()))
r = subprocess.run(["lklctl", "-n", "test-run", "addr"], capture_output=True) # a target may not control its run
print(r.stdout, b"run lklctl outside" in r.stderr, r.stderr.count(b"\n"))
