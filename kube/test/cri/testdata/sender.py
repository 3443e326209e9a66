# SPDX-License-Identifier: Apache-2.0
"""Send to an address by every kind of socket, in rounds. Print the outcome of each round."""
import socket
import struct
import sys
import time

HOST, PORT = sys.argv[1], int(sys.argv[2])
MARK = b"lklrun-escape sender"
old = []  # sockets of the first round, which remain open


def stream():
    s = socket.socket()
    s.settimeout(.3)
    s.connect((HOST, PORT))
    s.sendall(MARK)
    return s


def datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(MARK, (HOST, PORT))
    return s


def raw():
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253)
    s.sendto(MARK, (HOST, 0))
    return s


def packet():
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for name in "eth0", "v0", "lo":
        try:
            s.sendto(b"\xff" * 6 + b"\x02" + b"\x00" * 5 + b"\x88\xb5" + MARK, (name, 0))
        except OSError as e:
            last = e
    return s


def ip6():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.sendto(MARK, ("ff02::1%eth0", PORT))
    return s


def again():
    for s in old:
        try:
            s.send(MARK)
        except OSError:
            pass
    return None


n = 0
while True:
    sent = []
    for kind in stream, datagram, raw, packet, ip6, again:
        try:
            s = kind()
            sent.append(kind.__name__)
            if s and n == 0:
                old.append(s)
        except OSError:
            pass
    n += 1
    print("round", n, *sent, flush=True)
    time.sleep(.1)
