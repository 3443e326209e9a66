# SPDX-License-Identifier: Apache-2.0
#
# Ordinary connections between two talkers, one after another, of every way to close. Each
# KIND is (what the client does, what the server does) with a connection, which is closed
# afterwards. Both wait for the other's steps, so that no data arrives after a close.

import socket, struct, threading
ends = []

def get(s, n): return s.recv(n, socket.MSG_WAITALL)
def eof(s): assert s.recv(1) == b""
def half(s): s.shutdown(socket.SHUT_WR)
def reset(s): s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
def gone(s):
    try: s.recv(1)
    except ConnectionResetError: pass
def ask(s, n=1):
    for _ in range(n): s.sendall(b"q" * 100); get(s, 1000)
def answer(s, n=1):
    for _ in range(n): get(s, 100); s.sendall(b"a" * 1000)

KINDS = [
    (lambda s: ask(s), lambda s: (answer(s), eof(s))),                             # the client closes first
    (lambda s: (ask(s), eof(s)), lambda s: answer(s)),                             # the server does
    (lambda s: ask(s, 5), lambda s: (answer(s, 5), eof(s))),                       # keep-alive
    (lambda s: (ask(s, 5), eof(s)), lambda s: answer(s, 5)),                       # the server ends it
    (lambda s: (s.sendall(b"q" * 100), half(s), get(s, 1000), eof(s)), lambda s: (get(s, 100), eof(s), s.sendall(b"a" * 1000))),
    (lambda s: (ask(s), half(s), eof(s)), lambda s: (answer(s), half(s), eof(s))),  # both at once
    (lambda s: None, eof),                                                         # no data
    (eof, lambda s: None),
    (lambda s: (ask(s), reset(s)), lambda s: (answer(s), gone(s))),                # resets by design
    (lambda s: (ask(s), s.sendall(b"e"), gone(s)), lambda s: (answer(s), get(s, 1), reset(s))),
]

def serve(family, address, port):
    l = socket.create_server((address, port), family=family, backlog=16)
    ends.append(l)
    def work():
        while True:
            c, _ = l.accept()
            with c: KINDS[get(c, 1)[0]][1](c)
    threading.Thread(target=work, daemon=True).start()

def visit(address, port, count):
    for n in range(count):
        with socket.create_connection((address, port), timeout=20) as s:
            s.sendall(bytes([n % len(KINDS)]))
            KINDS[n % len(KINDS)][0](s)
    return count
