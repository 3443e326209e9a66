# SPDX-License-Identifier: Apache-2.0
"""The target of TestSecondFinding04ForgedCarrier and TestSecondFinding05FullQueue.

Argument: who attacks the sockets of this process: same or flood (the same user), nobody,
container (a process in a network namespace of its own), or other and a folder (the process
that another user has started with "attacker" and that folder, which has the FIFOs ready and
go). The attacker takes each name of a carrier that it can see, and then calls accept() and
recvfrom() as if its sockets were the carriers. It fills the queue of each listening socket
that has a name. With "flood", it only does the latter, and continues while this process
connects.
"""
import ctypes
import os
import resource
import select
import signal
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
signal.alarm(20)


def names():
    """The type and the name of each unix socket of lklhost."""
    found = set()
    for path in ("/proc/net/unix", "/proc/%d/net/unix" % lklhost):
        with open(path) as f:
            for line in f.read().splitlines()[1:]:
                w = line.split()
                if len(w) > 7 and ("@lklrun" in w[7] or run in w[7]):
                    found.add((int(w[4], 16), w[7].replace("@", "\0", 1)))
    return found


def take(kind, name):
    """A socket with this name, or None."""
    s = socket.socket(socket.AF_UNIX, kind)
    s.setblocking(False)
    try:
        if name[0] == "/":
            os.unlink(name)
        s.bind(name)
        return s
    except OSError:
        return None


def fill(kind, name, full):
    """Connect to a listening socket until its queue is full."""
    for _ in range(1500 if kind == socket.SOCK_STREAM else 0):
        s = socket.socket(socket.AF_UNIX, kind)
        s.setblocking(False)
        if s.connect_ex(name):
            return
        full.append(s)


def attack():
    if who == "nobody":
        os.setgid(65534)
        os.setuid(65534)
    if who == "container" and libc.unshare(0x40000000):
        sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
    full = []
    all_names = names()
    for n in all_names:
        fill(*n, full)
    taken = [s for s in (take(*n) for n in all_names if who != "flood") if s]
    os.write(ready[1], b"x")
    while who == "flood" and not select.select([go[0]], [], [], 0)[0]:
        del full[5000:]
        for n in names() - all_names:
            fill(*n, full)
    os.read(go[0], 1)
    got = set()
    buf = ctypes.create_string_buffer(100)
    for s in taken:
        if s.type == socket.SOCK_STREAM and libc.accept4(s.fileno(), None, None, socket.SOCK_NONBLOCK) >= 0:
            got.add("a connection")
        if libc.recvfrom(s.fileno(), buf, 100, socket.MSG_DONTWAIT, None, None) > 0:
            got.add("a datagram")
    print("names %s%s, got %s" % ("seen" if all_names else "unseen", " and taken" if taken else "", ", ".join(sorted(got)) or "nothing"), flush=True)


who = sys.argv[1]
run = "/lklrun"
lklhost = os.getppid()
ready, go = os.pipe(), os.pipe()
if who == "attacker":
    go = (os.open(sys.argv[2] + "/go", os.O_RDONLY), None)
    ready = (None, os.open(sys.argv[2] + "/ready", os.O_WRONLY))
    lklhost = int(os.read(go[0], 100))
    attack()
    sys.exit()
listener = socket.create_server(("127.0.0.1", 5000))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 5001))
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
if who == "other":
    go = (None, os.open(sys.argv[2] + "/go", os.O_WRONLY))
    ready = (os.open(sys.argv[2] + "/ready", os.O_RDONLY), None)
    os.write(go[1], b"%d" % lklhost)
elif not os.fork():
    attack()
    os._exit(0)
else:
    os.close(ready[1])
os.read(ready[0], 1)
for _ in range(100):
    socket.create_connection(("127.0.0.1", 5000))
    listener.accept()
client = socket.create_connection(("127.0.0.1", 5000))
client.sendall(b"password")
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", ("127.0.0.1", 5001))
os.write(go[1], b"x")
os.read(ready[0], 1)  # until the attacker has ended
print(listener.accept()[0].recv(100).decode(), udp.recvfrom(100)[0].decode(), flush=True)
