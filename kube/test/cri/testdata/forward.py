# SPDX-License-Identifier: Apache-2.0
"""Clients of peer.py: a process of the node in the network namespace of a pod."""
import hashlib
import select
import socket
import struct
import sys
import time

ADDRESS = sys.argv[1]  # of the pod
LIMIT = 20


def connect(port, address="127.0.0.1"):
    c = socket.create_connection((address, port), LIMIT)
    c.settimeout(LIMIT)
    return c


def read(c):
    data = b""
    while more := c.recv(1 << 16):
        data += more
    return data


def outcome(f, *args):
    try:
        return f(*args)
    except OSError as e:
        return type(e).__name__


def total(port, address="127.0.0.1"):
    c = connect(port, address)
    c.sendall(b"x" * 5000000)
    c.shutdown(socket.SHUT_WR)
    return read(c).decode()


def within(f, want):
    """The relay follows the stack's listeners with a short delay."""
    end = time.monotonic() + LIMIT
    while (got := outcome(f)) != want and time.monotonic() < end:
        time.sleep(.02)
    return got


def reset(c):
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()


def answered():
    c = connect(7004)
    c.sendall(b"x")
    return c.recv(1)


def fill(c):
    c.settimeout(1)
    try:
        while True:
            c.sendall(b"x" * 1000000)
    except TimeoutError:
        return c


def crowd():
    """Open more connections than the relay permits. Earlier ones may not have ended yet."""
    all = [outcome(connect, 7001) for _ in range(110)]
    open = [c for c in all if c != "ConnectionResetError"]
    # The relay accepts them later. None may end before it has reset those beyond its limit.
    poll, end, gone = select.poll(), time.monotonic() + 10, len(all) - len(open)
    for c in open:
        poll.register(c, 0)
    while gone < 10 and time.monotonic() < end:
        for fd, _ in poll.poll(1000):
            poll.unregister(fd)
            gone += 1
    lost = len(all) - len(open)
    for c in open:
        try:
            c.sendall(b"x")
            c.shutdown(socket.SHUT_WR)
            lost += read(c) != b"1 bytes"
        except OSError:
            lost += 1
    return "some of 110 refused" if 0 < lost <= 14 else "%d refused" % lost


print("the pod's 127.0.0.1:", within(lambda: total(7001), "5000000 bytes"))
print("the pod's ::1:", outcome(total, 7002, "::1"))
print("only ::1:", outcome(connect, 7002))
print("large:", hashlib.sha256(read(connect(7003))).hexdigest() == hashlib.sha256(bytes(range(256)) * 40000).hexdigest())
print("the pod's address:", len(read(connect(7003, ADDRESS))))
print("no listener:", outcome(connect, 7000), outcome(connect, 7000, "::1"), outcome(connect, 7000, ADDRESS))
print("the pod resets:", outcome(answered))
reset(connect(7005))
ended = connect(7005)
ended.shutdown(socket.SHUT_WR)
# The relay passed on both connections before the crowd takes all its places.
print("the pod ends:", outcome(read, ended))
print("crowd:", crowd())
print("after the crowd:", within(lambda: total(7001), "5000000 bytes"))
print("before its end:", outcome(total, 7007), read(connect(7008)).decode())
print("after its end:", within(lambda: total(7007), "ConnectionRefusedError"))
reset(fill(connect(7006)))
