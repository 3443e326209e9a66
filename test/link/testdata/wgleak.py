# SPDX-License-Identifier: Apache-2.0
"""Tries to send packets beside the tunnel until SIGTERM. Prints "answer" for each answer of the
web server behind the tunnel, and "leak" if the host's own network answers."""
import socket
import struct
import sys
import time
import urllib.request

server, server6, client = sys.argv[1:]
AF4, AF6 = socket.AF_INET, socket.AF_INET6


def send(family, to, kind=socket.SOCK_DGRAM, protocol=0, options=(), source=None):
    """Sends a datagram, or begins a connection. Each failure is fine."""
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(0.05)
            for level, option, value in options:
                s.setsockopt(level, option, value)
            if source:
                s.bind(source)
            if kind == socket.SOCK_STREAM:
                s.connect(to)
            else:
                s.sendto(b"\x08\x00\xf7\xff\0\0\0\0leak" if kind == socket.SOCK_RAW else b"leak", to)
    except OSError:
        pass


def tries():
    """Tries each way once."""
    device = (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"a0\0")
    for port in 9, 53, 80, 51820, 51821:
        send(AF4, (server, port))
        send(AF6, (server6, port, 0, 0))
    for to in (server, 80), (client, 22), ("8.8.8.8", 53), ("127.0.0.53", 53):
        send(AF4, to, socket.SOCK_STREAM)
    send(AF6, (server6, 80, 0, 0), socket.SOCK_STREAM)
    send(AF4, ("8.8.8.8", 53))
    send(AF6, ("2001:4860:4860::8888", 53, 0, 0))
    send(AF6, ("ff02::fb", 5353, 0, 1))
    send(AF6, ("fe80::1", 9, 0, 2))
    send(AF4, ("224.0.0.251", 5353), options=[(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)])
    send(AF4, ("255.255.255.255", 67), options=[(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)])
    send(AF4, (server, 9), options=[device])
    send(AF4, (server, 9), options=[(socket.SOL_SOCKET, socket.SO_MARK, 1), (socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)])
    send(AF4, (server, 9), source=(client, 0))
    send(AF4, (server, 9), options=[(socket.IPPROTO_IP, 19, 1)], source=(client, 0))  # IP_TRANSPARENT
    send(AF4, (server, 0), socket.SOCK_RAW, socket.IPPROTO_ICMP)
    send(AF4, (server, 0), socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    for name in "a0", "eth0":
        try:
            with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as s:
                s.sendto(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 24, 0, 0, 9, 253, 0, socket.inet_aton(client), socket.inet_aton(server)) + b"leak", (name, 0x0800))
        except OSError:
            pass


while True:
    tries()
    try:
        urllib.request.urlopen("http://10.2.0.1/hello", timeout=1).read()
        print("answer", flush=True)
    except OSError:
        pass
    try:
        with open("/proc/net/dev") as f:
            if "a0:" in f.read():
                print("leak: the host's devices", flush=True)
    except OSError:
        pass
    time.sleep(0.1)
