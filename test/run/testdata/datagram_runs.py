# SPDX-License-Identifier: Apache-2.0
#
# datagram_runs.py serve ADDRESS PORT: returns each burst of datagrams, in order.
# datagram_runs.py check ADDRESS PORT: sends bursts and checks what comes back.

import random, socket, struct, sys

UDP_SEGMENT, UDP_GRO = 103, 104
BURST = 80
LIMIT = 10  # seconds


def mixed(n):
    """whether burst n has very small or large datagrams, which may overtake others in GRO"""
    return n % 8 == 6


def burst(n):
    """the datagrams of burst n: runs of equal size, with shorter, longer and, in some, empty ones"""
    r = random.Random(n)
    sizes = []
    while len(sizes) < BURST:
        sizes += [r.choice([20, 64, 300, 1200, 1400, 1452])] * r.choice([1, 2, 20, 60])
        sizes.append(r.choice([0, 1, 2000] if mixed(n) else [32, 700, 1452]))
    return [r.randbytes(size) for size in sizes[:BURST]]


def segments(n):
    """datagrams of one size, the last one shorter, which one call can send"""
    r = random.Random(n)
    size = r.choice([100, 1000, 1400])
    data = r.randbytes(size * r.randint(2, 40) + r.randint(1, size - 1))
    return [data[i:i + size] for i in range(0, len(data), size)]


def send(sock, n, address):
    """sends burst n; every fourth one with a single call"""
    if n % 4 < 3:
        for data in burst(n):
            sock.sendto(data, address) if address else sock.send(data)
        return
    parts = segments(n)
    control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", len(parts[0])))]
    sent = sock.sendmsg([b"".join(parts)], control, 0, *([address] if address else []))
    if sent != sum(map(len, parts)):
        sys.exit(f"sendmsg() sent {sent} bytes of {sum(map(len, parts))}")


def expected(n):
    return burst(n) if n % 4 < 3 else segments(n)


def serve(sock, address):
    sock.bind(address)
    print("ready", flush=True)
    n = 0
    while True:
        for i in range(len(expected(n))):
            sock.settimeout(None if i == 0 else LIMIT)
            data, sender = sock.recvfrom(65536)
            if i == 0 and data == b"again":
                n = 0
                data, sender = sock.recvfrom(65536)
            if data != expected(n)[i]:
                sys.exit(f"datagram {i} of burst {n} is wrong: {len(data)} bytes")
        send(sock, n, sender)
        n += 1


def receive(sock, n, way, address):
    """yields one datagram of burst n after the other"""
    if way == 0:
        yield sock.recv(65536)
    elif way == 1:
        data, sender = sock.recvfrom(65536)
        if sender[:2] != address:
            sys.exit(f"a datagram from {sender}")
        yield data
    else:  # may be merged, if the program has asked for it
        data, control, _, sender = sock.recvmsg(65536, 256)
        if sender[:2] != address:
            sys.exit(f"a datagram from {sender}")
        size = len(data)
        for level, kind, value in control:
            if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                size = struct.unpack("i", value[:4])[0]
        for i in range(0, max(len(data), 1), max(size, 1)):
            yield data[i:i + size]


def check(family, address):
    for connected in False, True:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.settimeout(LIMIT)
        if connected:
            sock.connect(address)
        sock.sendto(b"again", address)
        for n in range(64):
            if n == 40:
                sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
            elif sock.getsockopt(socket.IPPROTO_UDP, UDP_GRO) != (n > 40):
                sys.exit("UDP_GRO is not what the program has set")
            send(sock, n, None if connected else address)
            got = []
            while len(got) < len(expected(n)):
                got += receive(sock, n, 2 if n >= 40 else n % 3, address)
            if mixed(n):
                got.sort()
            if got != (sorted(expected(n)) if mixed(n) else expected(n)):
                sys.exit(f"burst {n}, connected {connected}: {len(got)} datagrams, some are wrong")
        sock.close()
    print("all are right")


verb, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
if verb == "serve":
    serve(socket.socket(family, socket.SOCK_DGRAM), (host, port))
else:
    check(family, (host, port))
