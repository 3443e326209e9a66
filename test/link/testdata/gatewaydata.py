# SPDX-License-Identifier: Apache-2.0
"""The server returns what it receives, and writes how much came on its second port into a
file. On its third port it resets connections, or prints how they end. The client compares what it sends with what comes back."""
import hashlib
import os
import socket
import struct
import sys
import threading

LAST = 20000000


def echo(conn):
    while data := conn.recv(1 << 18):
        conn.sendall(data)
    conn.shutdown(socket.SHUT_WR)
    conn.close()


def count(conn):
    got = 0
    while data := conn.recv(1 << 18):
        got += len(data)
    with open(sys.argv[2], "a") as f:
        print(got, file=f)
    conn.close()


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def ends(conn):
    if conn.recv(1) == b"r":
        return reset(conn)
    conn.sendall(b"k")
    try:
        while not conn.recv(1):
            print("end\n", end="")
            while True:
                conn.sendall(bytes(100000))
    except (ConnectionResetError, BrokenPipeError):
        print("reset\n", end="")
    conn.close()


def accept(listener, serve):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def server():
    threads = []
    for serve in echo, count, ends:
        listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
        print(listener.getsockname()[1])
        threads.append(threading.Thread(target=accept, args=(listener, serve)))
        threads[-1].start()


def connect(port):
    return socket.create_connection((sys.argv[2], port), 60)


def both_ways(port):
    sent, got = hashlib.sha256(), hashlib.sha256()
    with connect(port) as s:
        def receive():
            while data := s.recv(1 << 20):
                got.update(data)
        t = threading.Thread(target=receive)
        t.start()
        for n in range(200):
            data = os.urandom(1 + 7919 * n % 200000)
            s.sendall(data)
            sent.update(data)
        s.shutdown(socket.SHUT_WR)
        t.join()
    return sent.digest() == got.digest()


def half_closed(port):
    data = os.urandom(3000000)
    with connect(port) as s:
        t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        t.start()
        got = b""
        while part := s.recv(1 << 16):
            got += part
        t.join()
    return got == data


def many(port):
    conns = [connect(port) for _ in range(500)]
    for n, s in enumerate(conns):
        s.sendall(b"%d\n" % n)
    return all(s.makefile("rb").readline() == b"%d\n" % n for n, s in enumerate(conns))


def ways_to_end(port):
    with connect(port) as s:
        s.sendall(b"r")
        try:
            return s.recv(1)
        except ConnectionResetError:
            pass
    for half in False, True:
        s = connect(port)
        s.sendall(b"w")
        s.recv(1)
        if half:
            s.shutdown(socket.SHUT_WR)
            s.recv(100000)
        reset(s)
    return True


def client():
    echoes, counts, endings = map(int, sys.argv[3:])
    for what, test in ("both ways", both_ways), ("half closed", half_closed), ("500 connections", many):
        print(what + ":", "equal" if test(echoes) else "different")
    print("ends:", ways_to_end(endings))
    connect(counts).sendall(bytes(LAST))  # and this program ends


globals()[sys.argv[1]]()
