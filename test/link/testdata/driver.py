# SPDX-License-Identifier: Apache-2.0
#
# The target of the driver suite (test/link/driver_test.go): it evaluates the lines
# of its standard input, one after the other, and prints the result of each.

import errno, fcntl, hashlib, os, random, socket, struct, sys, threading, time

LIMIT = 60
keep = {}


def family(addr):
    return socket.AF_INET6 if ":" in addr else socket.AF_INET


def dont_fragment(s):
    """What does not fit into one packet is refused, not cut up."""
    if s.family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, 23, 2)  # IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO
        s.setsockopt(socket.IPPROTO_IPV6, 62, 1)  # IPV6_DONTFRAG
    else:
        s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO


def ping(addr, size=56, tries=30):
    """Sends an echo request with size bytes of payload until one is answered."""
    six = ":" in addr
    s = socket.socket(family(addr), socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP)
    with s:
        dont_fragment(s)
        s.settimeout(1)
        payload = random.randbytes(size)
        for n in range(tries):
            s.sendto(struct.pack("!BBHHH", 128 if six else 8, 0, 0, 0, n) + payload, (addr, 0))
            try:
                while True:
                    got = s.recv(1 << 17)
                    if got[0] in (0, 129) and got[8:] == payload:
                        return "answered"
            except TimeoutError:
                pass
    return "no answer"


def udp(addr, port, size, tries=30):
    """Sends a datagram to an echo until it comes back."""
    with socket.socket(family(addr), socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        data = random.randbytes(size)
        for _ in range(tries):
            s.sendto(data, (addr, port))
            try:
                if s.recv(1 << 16) == data:
                    return "echoed"
            except TimeoutError:
                pass
    return "no answer"


def echo(port, six=False):
    """Sends datagrams to port back, from now on."""
    s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
    if six:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind(("", port))

    def answer():
        while True:
            data, who = s.recvfrom(1 << 16)
            s.sendto(data, who)

    threading.Thread(target=answer, daemon=True).start()


def transfer(s, size, rate, seconds):
    """Sends size bytes, or for seconds at rate bytes a second when size is 0,
    while it receives to the end: the checksums of both."""
    sent, fault = hashlib.sha256(), []

    def send():
        try:
            block = bytearray(random.randbytes(1 << 16))
            began, done, n = time.monotonic(), 0, 0
            while done < size or not size and time.monotonic() - began < seconds:
                block[:8] = struct.pack("<Q", n)
                part = block[:size - done] if size else block
                s.sendall(part)
                sent.update(part)
                n, done = n + 1, done + len(part)
                if not size:
                    time.sleep(max(0, began + done / rate - time.monotonic()))
            s.shutdown(socket.SHUT_WR)
        except OSError as e:
            fault.append(e)

    s.settimeout(LIMIT)
    t = threading.Thread(target=send)
    t.start()
    received = hashlib.sha256()
    while True:
        got = s.recv(1 << 18)
        if not got:
            break
        received.update(got)
    t.join()
    s.close()
    if fault:
        raise fault[0]
    return sent.hexdigest() + " " + received.hexdigest()


def connect(addr, port, size=0, rate=0, seconds=0):
    s = socket.create_connection((addr, port), LIMIT)
    return transfer(s, size, rate, seconds)


def name(addr, port):
    """What a server says that tells its clients' addresses."""
    with socket.create_connection((addr, port), LIMIT) as s:
        return s.recv(100).decode()


def listen(port, six=False):
    keep["listener"] = socket.create_server(("::" if six else "", port), family=socket.AF_INET6 if six else socket.AF_INET)
    keep["listener"].settimeout(LIMIT)


def accept(size=0, rate=0, seconds=0):
    s, _ = keep["listener"].accept()
    return transfer(s, size, rate, seconds)


def link(up, name="eth0"):
    """Sets a device of the stack up or down (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        head = name.encode().ljust(16, b"\0")
        flags = struct.unpack("16xH", fcntl.ioctl(s, 0x8913, head + bytes(16))[:18])[0]  # SIOCGIFFLAGS
        flags = flags | 1 if up else flags & ~1
        fcntl.ioctl(s, 0x8914, head + struct.pack("H14x", flags))  # SIOCSIFFLAGS


def dial(addr, port, limit=2):
    """What connecting to a port comes to: an errno's name, or "connected"."""
    try:
        socket.create_connection((addr, port), limit).close()
        return "connected"
    except TimeoutError:
        return "nothing"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))


for line in sys.stdin:
    try:
        print(eval(line))
    except Exception as e:
        print(type(e).__name__, e)
