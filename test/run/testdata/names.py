# SPDX-License-Identifier: Apache-2.0
#
# Queries the address of a name at each local address and protocol that programs may use
# without a resolv.conf.
#
#     names.py NAME

import socket, struct, sys


def query(number):
    name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[1].split("."))
    return struct.pack("!6H", number, 0x100, 1, 0, 0, 0) + name + b"\0" + struct.pack("!2H", 1, 1)


def address(answer, number):
    got, flags, _, answers = struct.unpack("!4H", answer[:8])
    if got != number or not flags & 0x8000:
        sys.exit("not an answer: %r" % answer)
    if flags & 15 == 2:
        sys.exit("server failure")
    return socket.inet_ntoa(answer[-4:]) if answers == 1 else "%d answers" % answers


def family(at):
    return socket.AF_INET6 if ":" in at else socket.AF_INET


for number, at in enumerate(("0.0.0.0", "127.0.0.1", "::", "::1")):
    s = socket.socket(family(at), socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((at, 53))
    s.send(query(number))
    print("udp %s: %s" % (at, address(s.recv(512), number)))
for number, at in enumerate(("127.0.0.1", "::1")):
    s = socket.create_connection((at, 53), 10)
    s.sendall(struct.pack("!H", len(query(number))) + query(number))
    f = s.makefile("rb")
    size, = struct.unpack("!H", f.read(2))
    print("tcp %s: %s" % (at, address(f.read(size), number)))
