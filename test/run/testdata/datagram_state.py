# SPDX-License-Identifier: Apache-2.0
"""TestSecondFinding03DatagramState: datagrams carry the state under which they were sent.

    datagram_state.py serve ADDRESS PORT           on PORT and PORT+1
    datagram_state.py send MODE block|poll ADDRESS PORT
    datagram_state.py echo ADDRESS PORT            TCP; prints the segments as below
    datagram_state.py stream MODE ADDRESS PORT     sends 200 times before an option changes

The sender prints "sent" and a number after its first datagrams, of which the stack cannot
send all yet, and "done" at the end. The server prints each datagram: port, TTL or hop limit, TOS, text.
"""
import ctypes
import errno
import select
import selectors
import socket
import struct
import sys
import time

LATE = 20


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def server(address, port):
    wait = selectors.DefaultSelector()
    for i, name in enumerate("AB"):
        s = socket.socket(family(address), socket.SOCK_DGRAM)
        if s.family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            s.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
            s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
        s.bind((address, port + i))
        wait.register(s, selectors.EVENT_READ, name)
    print("ready", flush=True)
    while True:
        for key, _ in wait.select():
            text, control, _, _ = key.fileobj.recvmsg(2000, 200)
            values = [str(c[2][0] if len(c[2]) < 4 else struct.unpack("i", c[2])[0]) for c in control]
            print(key.data, *values, "got", text.rstrip(b".").decode(), flush=True)


def echo(address, port):
    listener = socket.create_server((address, port), family=family(address))
    segments = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    print("ready", flush=True)
    s = listener.accept()[0]
    while text := s.recv(100):
        while True:
            packet = segments.recv(2000)
            if packet.endswith(text):
                break
        v6 = packet[0] >> 4 == 6
        tos = int.from_bytes(packet[:2], "big") >> 4 & 255 if v6 else packet[1]
        print("A", packet[7 if v6 else 8], tos, "got early", text.rstrip(b".").decode(), flush=True)
        s.sendall(b"x")


def set_option(s, mode, on):
    v6 = s.family == socket.AF_INET6
    if mode == "ttl":
        s.setsockopt(*((socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) if v6 else (socket.IPPROTO_IP, socket.IP_TTL)), 11 if on else 64)
    elif mode == "tos":
        s.setsockopt(*((socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if v6 else (socket.IPPROTO_IP, socket.IP_TOS)), 16 if on else 0)
    elif mode == "mark":  # a rule gives marked packets a hop limit of 11
        s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7 if on else 0)
    elif mode == "device":  # nothing comes out of lo
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


def stream(mode, address, port):
    s = socket.create_connection((address, port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    values = "A 64 16" if mode == "tos" else "A 11 0"
    for i in range(200):
        on = i % 2
        s.sendall((values if on else "A 64 0").encode().ljust(20, b"."))
        set_option(s, mode, not on)
        s.recv(1)
    print("done", flush=True)


def send(mode, way, address, port):
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least
    s.connect((address, port))
    s.setblocking(False)
    sent = 0
    while select.select([], [s], [], 0.3)[1]:
        try:
            s.send(b"early A 64 0".ljust(100, b"."))
            sent += 1
        except BlockingIOError:
            pass
    print("sent", sent, flush=True)
    s.setblocking(way == "block")
    if mode == "unspec":
        unspec(s)
    if mode in ("connect", "unspec"):
        s.connect((address, port + 1))
    set_option(s, mode, True)
    if mode == "close":
        s.close()
    elif mode == "sendto":
        last = b"last A 64 0"
        while True:
            try:
                s.sendto(last, (address, port))
                break
            except BlockingIOError:
                time.sleep(0.01)
    else:
        want = {"ttl": "A 11 0", "mark": "A 11 0", "tos": "A 64 16"}.get(mode, "B 64 0")
        for i in range(LATE):
            try:
                s.send(b"late " + want.encode())
            except OSError as e:  # the buffer is full, or lo has no route (IPv6)
                if e.errno != errno.EAGAIN and mode != "device":
                    raise
    print("done", flush=True)
    sys.stdin.read()


def unspec(s):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(s.fileno(), bytes(16), 16):
        sys.exit("connect: errno %d" % ctypes.get_errno())


{"serve": server, "send": send, "echo": echo, "stream": stream}[sys.argv[1]](*sys.argv[2:-1], int(sys.argv[-1]))
