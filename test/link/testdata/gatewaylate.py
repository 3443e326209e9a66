# SPDX-License-Identifier: Apache-2.0
# Datagrams, and later many first connections at once beside them.
import selectors, socket, sys, threading, time

to = (sys.argv[1], 7)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(to)
u.settimeout(20)
u.send(b"first")
assert u.recv(100) == b"first"
print("datagrams")
sys.stdin.readline()
connected = threading.Event()
lost = []

def datagrams():
    n = 0
    while not connected.is_set():
        u.send(b"%d" % n)
        if u.recv(100) != b"%d" % n: lost.append(n)
        n += 1

t = threading.Thread(target=datagrams)
t.start()
s, waiting = selectors.DefaultSelector(), 300
began = time.monotonic()
all = [socket.socket() for _ in range(waiting)]
for c in all:
    c.setblocking(False)
    c.connect_ex(to)
    s.register(c, selectors.EVENT_WRITE)
while waiting:
    for key, _ in s.select(20):
        assert key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        s.unregister(key.fileobj)
        waiting -= 1
connected.set()
good = True
for n, c in enumerate(all):
    c.setblocking(True)
    c.sendall(b"%d" % n)
for n, c in enumerate(all):
    good = good and c.recv(100) == b"%d" % n
print("300 connections:", good)
t.join()
print("all datagrams:", not lost)
sys.stdin.read()
