# SPDX-License-Identifier: Apache-2.0
"""Sends known bytes over a connection, and checks and measures how they arrive.

transfer.py serve PORT
transfer.py down|up HOST PORT SIZE WRITE mptcp|any     prints results as NAME=VALUE

transfer.py await PORT     waits until a transfer has begun at this node

SIZE and WRITE are in bytes. With mptcp, a connection of plain TCP is an error.
"""

import json
import random
import socket
import sys
import threading
import time

LIMIT = 30  # seconds without progress
BLOCK = 1 << 16
begun = threading.Event()
SOL_MPTCP, MPTCP_INFO, MPTCP_INFO_FLAG_FALLBACK = 284, 1, 1  # linux/mptcp.h


def blocks(size):
    """The bytes that both sides know. No two parts of them are equal."""
    source = random.Random(1)
    for at in range(0, size, BLOCK):
        yield source.randbytes(min(BLOCK, size - at))


def send(conn, size, write):
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each write is a packet
    pending = b""
    for block in blocks(size):
        pending += block
        while len(pending) >= write:
            conn.sendall(pending[:write])
            pending = pending[write:]
    conn.sendall(pending)
    conn.shutdown(socket.SHUT_WR)


def receive(conn, size):
    """Receives until the end of the stream, and returns what happened."""
    source, expected = blocks(size), b""
    got, wrong, pause, error = 0, None, 0.0, None
    began = last = time.monotonic()
    try:
        while data := conn.recv(BLOCK):
            now = time.monotonic()
            if got:
                pause = max(pause, now - last)
            last = now
            while len(expected) < len(data) and (block := next(source, b"")):
                expected += block
            if wrong is None and data != expected[: len(data)]:
                wrong = got + next((n for n, (x, y) in enumerate(zip(data, expected)) if x != y), len(expected))
            expected = expected[len(data) :]
            got += len(data)
    except OSError as e:
        error = f"{type(e).__name__} {e}, {time.monotonic() - last:.1f} s after the last byte"
    return {"got": got, "wrong": wrong, "pause": pause, "seconds": last - began, "error": error}


def serve(port):
    listener = socket.create_server(("", port))
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=answer, args=(conn,), daemon=True).start()


def answer(conn):
    conn.settimeout(LIMIT)
    with conn, conn.makefile("rb", buffering=0) as stream:
        direction, size, write = stream.readline().split()
        if direction == b"await":
            if begun.wait(LIMIT):
                conn.sendall(b"begun\n")
            return
        begun.set()
        if direction == b"down":
            send(conn, int(size), int(write))
            stream.read()
        else:
            conn.sendall(json.dumps(receive(conn, int(size))).encode() + b"\n")


def wait_for_transfer(port):
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as conn:
        conn.sendall(b"await 0 0\n")
        conn.settimeout(2 * LIMIT)
        if not conn.recv(1):
            sys.exit(f"no transfer has begun within {LIMIT} s")


def is_mptcp(conn):
    """Whether a connection uses MPTCP and has not fallen back to TCP."""
    try:
        info = conn.getsockopt(SOL_MPTCP, MPTCP_INFO, 12)
    except OSError:
        return False
    return not int.from_bytes(info[8:12], sys.byteorder) & MPTCP_INFO_FLAG_FALLBACK


def transfer(direction, host, port, size, write, protocol):
    with socket.create_connection((host, port), timeout=LIMIT) as conn:
        conn.sendall(f"{direction} {size} {write}\n".encode())
        if direction == "up":
            send(conn, size, write)
            with conn.makefile("rb") as stream:
                end = json.loads(stream.readline() or '{"error": "no answer"}')
        else:
            end = receive(conn, size)
        mptcp = is_mptcp(conn)
    if end["error"]:
        sys.exit(f"stalled after {end.get('got', 0)} of {size} bytes: {end['error']}")
    if end["wrong"] is not None:
        sys.exit(f"wrong bytes from offset {end['wrong']} on, of {end['got']}")
    if end["got"] != size:
        sys.exit(f"the stream ended after {end['got']} of {size} bytes")
    if protocol == "mptcp" and not mptcp:
        sys.exit("the connection is plain TCP")
    print("bytes=right")
    print(f"pause={end['pause']:.2f}s")
    print(f"time={end['seconds']:.1f}s")
    print(f"goodput={size * 8e-6 / end['seconds']:.1f}Mbit/s")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    elif sys.argv[1] == "await":
        wait_for_transfer(int(sys.argv[2]))
    else:
        transfer(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6])
