# SPDX-License-Identifier: Apache-2.0
#
# Transfers between two talkers. A transfer runs in a thread until stop().

import socket, threading, time
got = [0]
ends = []
over = threading.Event()

def run(work, *args):
    def safe():
        try: work(*args)
        except OSError: pass  # stop() has closed the socket
    thread = threading.Thread(target=safe, daemon=True)
    ends.append(thread)
    thread.start()

def make(o):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if o.get("sndbuf"): s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, o["sndbuf"])
    if o.get("rcvbuf"): s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, o["rcvbuf"])
    if o.get("pacing"): s.setsockopt(socket.SOL_SOCKET, 47, o["pacing"])  # SO_MAX_PACING_RATE
    ends.append(s)
    return s

# receive reads from one connection.
def receive(port, o):
    over.clear()
    got[0] = 0
    l = make(o)
    l.bind(("", port))
    l.listen()
    def work():
        c, _ = l.accept()
        ends.append(c)
        while not over.is_set():
            n = len(c.recv(o.get("chunk", 1 << 18)))
            if n == 0: return
            got[0] += n
            if o.get("answer"): c.sendall(b"x")
            over.wait(o.get("pause", 0))
    run(work)

# send writes to one connection.
def send(address, port, o):
    over.clear()
    s = make(o)
    s.connect((address, port))
    def work():
        data = bytes(o.get("chunk", 1 << 18))
        while not over.is_set() and o.get("total") != 0:
            s.sendall(data)
            if o.get("answer"): s.recv(1)
            over.wait(o.get("pause", 0))
    run(work)

def stop():
    over.set()
    for e in ends:
        if isinstance(e, socket.socket):
            try: e.shutdown(socket.SHUT_RDWR)
            except OSError: pass
            e.close()
    for e in ends:
        if isinstance(e, threading.Thread): e.join(10)
    ends.clear()
