# SPDX-License-Identifier: Apache-2.0
# Segments of unknown connections, by raw sockets, and what the gateway answers.
import select, socket, struct, sys

four, six = sys.argv[1:]
FIN, SYN, RST, ACK = 1, 2, 4, 16
NAMES = ((FIN, "FIN"), (SYN, "SYN"), (RST, "RST"), (ACK, "ACK"))

def checksum(b):
    b += bytes(len(b) % 2)
    n = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff

def segment(family, to, port, flags, size=0, limit=20):
    """Sends a segment and returns the answer."""
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as s, socket.socket(family, socket.SOCK_DGRAM) as u:
        u.connect((to, 7))
        own = socket.inet_pton(family, u.getsockname()[0])
        head = struct.pack("!HHIIBBHHH", port, 7, 1000, 7000 if flags & ACK else 0, 5 << 4, flags, 1000, 0, 0)
        body = b"x" * size
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, 7, 16)  # IPV6_CHECKSUM
        else:
            s.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER: fragments
            n = checksum(own + socket.inet_pton(family, to) + struct.pack("!BBH", 0, 6, len(head) + size) + head + body)
            head = head[:16] + struct.pack("!H", n) + head[18:]
        s.sendto(head + body, (to, 0))
        while select.select([s], [], [], limit)[0]:
            got = s.recv(70000)
            got = got[(got[0] & 15) * 4 if family == socket.AF_INET else 0:]
            sport, dport, seq, ack = struct.unpack("!HHII", got[:12])
            if (sport, dport) != (7, port): continue
            flags = got[13]
            return " ".join(name for bit, name in NAMES if flags & bit) + " %d" % (ack if flags & ACK else seq)
        return "none"

# The gateway's kernel runs from here on.
c = socket.create_connection((four, 7))
print("ACK:", segment(socket.AF_INET, four, 2001, ACK))
print("SYN ACK:", segment(socket.AF_INET, four, 2002, SYN | ACK))
print("data:", segment(socket.AF_INET, four, 2003, ACK, 100))
print("FIN:", segment(socket.AF_INET, four, 2004, FIN))
print("RST:", segment(socket.AF_INET, four, 2005, RST, limit=1))
print("IPv6:", segment(socket.AF_INET6, six, 2006, ACK))
print("fragments:", segment(socket.AF_INET, four, 2007, ACK, 5000))
# Fragments of a known connection: a segment that repeats nothing new.
segment(socket.AF_INET, four, c.getsockname()[1], ACK, 5000, limit=1)
c.sendall(b"hello")
print("connection:", c.recv(100) == b"hello")
