# SPDX-License-Identifier: Apache-2.0
"""The server returns what it receives, and writes how much came on its second port into a
file. The client compares what it sends with what comes back."""
import hashlib
import os
import socket
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


def accept(listener, serve):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def server():
    threads = []
    for serve in echo, count:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        print(listener.getsockname()[1])
        threads.append(threading.Thread(target=accept, args=(listener, serve)))
        threads[-1].start()


def connect(port):
    return socket.create_connection(("192.168.127.254", port), 60)


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


def client():
    echoes, counts = map(int, sys.argv[2:])
    for what, test in ("both ways", both_ways), ("half closed", half_closed), ("500 connections", many):
        print(what + ":", "equal" if test(echoes) else "different")
    connect(counts).sendall(bytes(LAST))  # and this program ends


globals()[sys.argv[1]]()
