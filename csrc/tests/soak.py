#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Forking servers and clients on the loopback addresses, every byte checked.

    soak.py SECONDS CLIENTS

Run under lklhost by test_stack.py; ends with status 0 when all was right.
"""
import hashlib
import os
import random
import signal
import socket
import struct
import sys
import time

SECONDS, CLIENTS = float(sys.argv[1]), int(sys.argv[2])
ANSWER, RESET, HALF_CLOSE = 0, 1, 2
SIZES = [0, 1, 100, 5000, 70000, 400000, 1500000]


def read(c, n):
    b = bytearray()
    while len(b) < n:
        d = c.recv(n - len(b))
        if not d:
            raise EOFError
        b += d
    return bytes(b)


def serve(c):
    try:
        n, mode = struct.unpack("<IB", read(c, 5))
        h = hashlib.sha1(read(c, n)).digest()
        if mode == RESET:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        c.sendall(h + struct.pack("<I", n))
        c.sendall(b"z" * n)
        if mode == HALF_CLOSE:
            c.shutdown(socket.SHUT_WR)
            assert c.recv(10) == b""
    except (ConnectionError, EOFError):
        pass
    finally:
        c.close()


def server(s):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        c, _ = s.accept()
        if random.random() < .3:
            if not os.fork():
                s.close()
                serve(c)
                os._exit(0)
            c.close()
        else:
            serve(c)


def ask(c, n, mode):
    data = os.urandom(min(n, 1000)) * (n // 1000 + 1)
    data = data[:n]
    c.sendall(struct.pack("<IB", n, mode) + data)
    if mode == RESET:
        assert c.recv(1) == b""
        return
    head = read(c, 24)
    assert head[:20] == hashlib.sha1(data).digest(), "hash"
    assert read(c, n) == b"z" * n, "answer"
    if mode == HALF_CLOSE:
        assert c.recv(1) == b"", "end"


def client(seed, servers):
    random.seed(seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        s = random.choice(servers)
        c = socket.socket(s.family)
        if random.random() < .5:
            c.settimeout(20)
        c.connect(s.getsockname()[:2])
        if random.random() < .03:
            c.close()
            continue
        mode = random.choice([ANSWER, ANSWER, ANSWER, RESET, HALF_CLOSE])
        try:
            ask(c, random.choice(SIZES), mode)
        except ConnectionError:
            if mode != RESET:
                raise
        c.close()


def forked(f, *args):
    pid = os.fork()
    if pid:
        return pid
    try:
        f(*args)
        os._exit(0)
    except BaseException as e:      # whatever it is, it is wrong
        print("#", repr(e), flush=True)
        os._exit(1)


def main():
    servers = []
    for i in range(4):
        s = socket.socket(socket.AF_INET6 if i % 2 else socket.AF_INET)
        s.bind(("::1" if i % 2 else "127.0.0.1", 0))
        s.listen(64)
        servers.append(s)
    pids = [forked(server, s) for s in servers]
    clients = [forked(client, i, servers) for i in range(CLIENTS)]
    bad = 0
    for p in clients:
        bad |= os.waitpid(p, 0)[1]
    for p in pids:
        os.kill(p, signal.SIGKILL)
    sys.exit(bad != 0)


main()
