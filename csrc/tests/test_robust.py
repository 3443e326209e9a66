#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Checks that a hostile or unlucky target cannot harm lklhost, with the library that
LKL names: one test for each former bug."""
import os
import struct
import sys
import time

import drive
from tap import ok, run, same

LIB = os.environ.get("LKL", "")
PY = "/usr/bin/python3"

# Fills a connection whose client does not read. Sets c and s, its ends, and sent, the bytes sent.
FULL = """
import array, errno, os, select, signal, socket, struct, sys, threading, time
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); s = l.accept()[0]
s.setblocking(False); sent = 0
word = lambda i: struct.pack(">I", i // 4)
while select.select([], [s], [], .5)[1]:
    sent += s.send(b"".join(word(i) for i in range(sent, sent + 65536, 4))[:65536] if sent % 4 == 0 else b"".join(word(i) for i in range(sent - sent % 4, sent + 4, 4))[sent % 4:])
"""


def target(prog, mptcp=False):
    """run prog as the target; return also a file with its output"""
    h, out = drive.heard([PY, "-uc", prog], abi="auto", lib=LIB)
    h.start(mptcp=mptcp)
    return h, out


def stop(h):
    h.stop()
    same(h.host_status, 0, "lklhost ends with 0")


def becomes(h, name, want, limit=20):
    end = time.monotonic() + limit
    while h.stat(name) != want and time.monotonic() < end:
        time.sleep(.01)
    same(h.stat(name), want, "%s becomes %d" % (name, want))


def reset_unread():
    """after a reset while the target does not read, lklhost does not spin, no write hangs, and no byte is lost"""
    h, out = target(FULL + """
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.close()
print("reset"); time.sleep(1)
c.settimeout(20)
try:
    while True: c.send(bytes(65536))
except OSError as e: print(errno.errorcode.get(e.errno, repr(e)))
got = b""
try:
    while d := c.recv(1 << 20): got += d
    print("end")
except OSError as e: print(errno.errorcode.get(e.errno, repr(e)))
print(len(got) > 100000 and got[:len(got) & ~3] == b"".join(word(i) for i in range(0, len(got) & ~3, 4)))
c.close(); time.sleep(60)
""")
    same(out.readline(), "reset\n", "the peer of a connection full of unread data resets it")
    time.sleep(.2)
    n = h.stat("loop.turns")
    time.sleep(.5)
    n = h.stat("loop.turns") - n
    ok(n < 500, "the stack host rests meanwhile: %d turns in half a second" % n)
    said = out.readline().strip()
    ok(said in ("EPIPE", "ECONNRESET"), "a write says so, and does not wait: " + said)
    same(out.readline(), "ECONNRESET\n", "a read says so after the data")
    same(out.readline(), "True\n", "which are all right")
    becomes(h, "sockets.open", 1)
    stop(h)


def linger_inherited():
    """a connection inherits SO_LINGER from its listener: its close waits for the peer, but blocks no other call"""
    h, out = target(FULL.replace("; c =", '; l.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5)); c =') + """
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 5))
while not select.select([], [s], [], .5)[1]: c.recv(65536)
time.sleep(.2); s.close(); print("closed")
time.sleep(60)
""")
    same([out.readline(), out.readline()], ["True\n", "closed\n"], "SO_LINGER of an accepted connection")
    t = time.monotonic()
    h.ctl.call("getppid", [])
    t = time.monotonic() - t
    ok(t < 2, "the stack host answers in the meantime, after %.3f s" % t)
    same(h.stat("stack.blocked"), 0, "nothing has blocked")
    stop(h)


def leaves_early():
    """MPTCP in place of TCP: a send to a closed peer fails at once"""
    for mptcp in False, True:
        h, out = target("""
import errno, signal, socket, time
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); s = l.accept()[0]
c.send(b"x"); s.recv(1); c.close(); s.settimeout(20)
try:
    for i in range(100): s.sendall(bytes(65536)); 
    print("sent")
except OSError as e: print(errno.errorcode.get(e.errno, repr(e)))
a = socket.create_connection(l.getsockname()); b = l.accept()[0]; a.send(b"y"); b.recv(1); a.close(); b.close(); s.close()
l.close(); time.sleep(60)
""", mptcp)
        said = out.readline().strip()
        ok(said in ("EPIPE", "ECONNRESET"), "sending to a socket that is closed, %s: %s" % ("MPTCP" if mptcp else "TCP", said))
        becomes(h, "sockets.open", 0)
        if mptcp:
            end = time.monotonic() + 20
            # Without those of lklhost that keep port 1 of netlink (engine/sock/sock.c).
            kept = sum(line.split()[2:3] == ["1"] for line in h.ctl.read_file("/proc/net/netlink").splitlines())
            used = lambda: int(h.ctl.read_file("/proc/net/sockstat").split()[2]) - kept
            while used() and time.monotonic() < end:
                time.sleep(.01)
            same(used(), 0, "no socket is left in the stack")
        stop(h)


def error_queue():
    """reading the error queue does not lose data on its way to the target"""
    h, out = target(FULL + """
n = 0
for i in range(100):
    try: c.recvmsg(100, 100, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT); n += 1
    except BlockingIOError: pass
print(n); c.settimeout(20)
threading.Thread(target=lambda: (time.sleep(.2), s.close())).start()
got = b""
while d := c.recv(1 << 20): got += d
print(len(got) == sent and got[:len(got) & ~3] == b"".join(word(i) for i in range(0, len(got) & ~3, 4)))
time.sleep(60)
""")
    same([out.readline(), out.readline()], ["0\n", "True\n"], "a full connection's error queue is empty, and no byte is lost")
    stop(h)


def control_waits():
    """a client's call that would wait in the stack delays no other client"""
    h, _ = target("import time; time.sleep(60)")
    c = h.attach()
    c.hello()
    refused = 0
    fd, _ = c.call("socket", [2, 1, 0])
    zero = struct.pack("<i", 0)
    for name, args, bufs in ((103, [2, 0, 10], [(1, drive.OUT, 0, 10)]),        # syslog
                             ("ioctl", [fd, 0x5421], [(2, drive.IN, 0, zero)]),  # FIONBIO
                             ("fcntl", [fd, 38], [(2, drive.IN, 0, bytes(32))])):
        try:
            c.call(name, args, bufs)
        except drive.Refused as e:
            refused += e.errno == 1
    same(refused, 3, "calls that only wait are refused: EPERM")
    at = bytes([2, 0, 0x30, 0x39, 127, 0, 0, 1]) + bytes(8)
    c.call("bind", [fd, 0, 16], [(1, drive.IN, 0, at)])
    c.call("listen", [fd, 5])
    a, _ = c.call("socket", [2, 1, 0])
    c.call("connect", [a, 0, 16], [(1, drive.IN, 0, at)])
    b, _ = c.call("accept", [fd])
    same(c.call("read", [b, 0, 10], [(1, drive.OUT, 0, 10)])[0], -11, "what accept gave does not wait either")
    c.call("setsockopt", [a, 1, 13, 0, 8], [(3, drive.IN, 0, struct.pack("<ii", 1, 10))])
    while c.call("write", [a, 0, 65536], [(1, drive.IN, 0, bytes(65536))])[0] > 0:
        pass
    t = time.monotonic()
    c.call("close", [a])
    ok(time.monotonic() - t < 2, "nor does close with SO_LINGER")
    same(h.stat("stack.blocked"), 0, "nothing has blocked")
    stop(h)


def own_descriptor():
    """sending descriptors over a connection fails: TCP cannot carry them"""
    h, out = target(FULL + """
c.setblocking(False)
try:
    while True: c.send(bytes(65536))
except BlockingIOError: pass
s.setblocking(True); print(len(s.recv(1 << 20)) > 0); time.sleep(.2)
print(c.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [c.fileno()]))]))
c.close(); s.close(); l.close(); time.sleep(60)
""")
    same([out.readline(), out.readline()], ["True\n", "1\n"], "a descriptor sent over its own connection")
    becomes(h, "sockets.open", 0)
    stop(h)


if __name__ == "__main__":
    sys.path.insert(0, drive.HERE)
    run([reset_unread, linger_inherited, leaves_early, error_queue, control_waits, own_descriptor])
