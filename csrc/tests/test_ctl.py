#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests the control server of lklhost with the back end "host", without root or a library."""
import os
import random
import resource
import select
import socket
import struct
import sys
import tempfile
import time

import drive
from drive import IN, OUT, INOUT, IN_BUF, USED, Host, Refused
from tap import ok, run, same

SLEEP = ["sleep", "100"]
MANY = 60000
FEW = 2000   # descriptor limit of lklhost
SANITIZED = "/san/" in os.environ.get("LKLHOST", "")     # the sanitizers increase its memory use


def status_of(call, *args, **kw):
    try:
        call(*args, **kw)
        return 0
    except Refused as e:
        return -e.errno


def ended(conn):
    """whether lklhost closes the connection"""
    try:
        while True:
            conn.step()
    except (EOFError, ConnectionError):
        return True


def gone(h):
    _, st = os.waitpid(h.pid, 0)
    h.clean()
    return st


def hello():
    h = Host(SLEEP)
    info = h.ctl.hello()
    same((info["version"], info["state"], info["abi"]), (1, 0, 4), "HELLO: version, state NEW, abi HOST")
    ok(info["target"] > 0 and info["pid"] == h.pid, "HELLO: the target exists already, and lklhost is who it is")
    h.start()
    c = h.attach()
    same(c.hello()["state"], 2, "HELLO of a second client: state RUNNING")
    same(c.ask(drive.HELLO, struct.pack("<II", 0x524c4b4c, 7))[:4], b"\1\0\0\0", "a newer client is spoken to in version 1")
    c = h.attach()
    same(status_of(c.ask, drive.STATS), -71, "anything before HELLO: EPROTO")
    ok(ended(c), "and the end of the connection")
    c = h.attach()
    same(status_of(c.ask, drive.HELLO, struct.pack("<II", 1, 1)), -71, "wrong magic: EPROTO")
    same(os.stat(h.dir + "/ctl.sock").st_mode & 0o777, 0o600, "ctl.sock is ours alone")
    same(h.stop(), 9, "STOP with SIGKILL")
    ok(not os.path.exists(h.dir + "/ctl.sock"), "ctl.sock is gone")


def frames():
    h = Host(SLEEP)
    h.start()
    hdr = lambda n, t: struct.pack("<IHHIi", n, t, 0, 1, 0)
    table = {
        "length below the header": hdr(15, 1),
        "length 0": hdr(0, 1),
        "length above the limit": hdr(drive_max() + 1, 1),
        "length -1": hdr(0xffffffff, 1),
        "HELLO without body": hdr(16, drive.HELLO),
        "HELLO with too much": hdr(28, drive.HELLO) + b"\0" * 12,
    }
    after = {
        "CANCEL without body": hdr(16, drive.CANCEL),
        "STATS with a body": hdr(17, drive.STATS) + b"x",
        "EVENTS short": hdr(18, drive.EVENTS) + b"xx",
        "STOP short": hdr(20, drive.STOP) + b"\0" * 4,
        "GO whose path is short": hdr(32, drive.GO) + struct.pack("<IIII", 0, 0, 4, 0),
        "BOOT whose line is short": hdr(32, drive.BOOT) + struct.pack("<QII", 0, 9, 0),
        "LINK_ADD short": hdr(20, drive.LINK_ADD) + b"\0" * 4,
        "EXEC short": hdr(20, EXEC) + b"\0" * 4,
        "EXEC without strings": hdr(32, EXEC) + struct.pack("<IIII", 1, 0, 0, 0),
        "EXEC without a command": hdr(33, EXEC) + struct.pack("<IIII", 0, 0, 0, 1) + b"\0",
        "EXEC with a string less": hdr(36, EXEC) + struct.pack("<IIII", 2, 0, 0, 4) + b"/\0a\0",
        "EXEC with 2^32 strings": hdr(36, EXEC) + struct.pack("<IIII", 2**32 - 1, 2, 0, 4) + b"/\0a\0",
        "EXEC that does not end": hdr(36, EXEC) + struct.pack("<IIII", 1, 0, 0, 4) + b"/\0\0a",
        "EXEC_SIGNAL short": hdr(20, EXEC_SIGNAL) + b"\0" * 4,
        "SYSCALL short": hdr(40, drive.SYSCALL) + b"\0" * 24,
        "SYSCALL whose buffers are missing": hdr(80, drive.SYSCALL) + struct.pack("<IIII6Q", 39, 3, 0, 0, *[0] * 6),
        "SYSCALL whose data are missing": hdr(88, drive.SYSCALL) +
            struct.pack("<IIII6Q", 39, 1, 0, 0, *[0] * 6) + struct.pack("<BBHI", 0, IN, 0, 8),
        "SYSCALL with too many data": hdr(82, drive.SYSCALL) + struct.pack("<IIII6Q", 39, 0, 0, 0, *[0] * 6) + b"xx",
    }
    for greeted, frames_ in ((False, table), (True, after)):
        for name, raw in frames_.items():
            c = h.attach()
            if greeted:
                c.hello()
            c.sock.sendall(raw)
            c.id = 1
            same((status_of(c.wait, 1), ended(c)), (-74, True), "%s: EBADMSG and the end" % name)
    c = h.attach()
    c.hello()
    same(status_of(c.ask, 99), -95, "unknown type: EOPNOTSUPP")
    same(status_of(c.ask, 0x8001), -95, "a reply as a request: EOPNOTSUPP")
    same(status_of(c.ask, drive.LINK_ADD, struct.pack("<II6sH", 1, 0, b"\0" * 6, 0)), -9, "LINK_ADD without descriptor: EBADF")
    null = os.open("/dev/null", os.O_RDWR)
    for kind in range(8):
        same(status_of(c.ask, drive.LINK_ADD, struct.pack("<II6sH", kind, 0, b"\0" * 6, 0), null), -95 if 1 <= kind <= 6 else -22,
             "LINK_ADD of kind %d to the host's own stack: EOPNOTSUPP, or EINVAL of one that is not there" % kind)
    os.close(null)
    same(status_of(c.ask, drive.BOOT, struct.pack("<QII", 0, 0, 0)), -114, "BOOT twice: EALREADY")
    same(status_of(c.ask, drive.GO, struct.pack("<IIII", 0, 0, 0, 0)), -114, "GO twice: EALREADY")
    same(status_of(c.ask, drive.CANCEL, struct.pack("<I", 5)), -2, "CANCEL of nothing: ENOENT")
    same(status_of(c.ask, drive.EVENTS, struct.pack("<I", 0x8000)), -22, "EVENTS of an unknown kind: EINVAL")
    # one byte at a time
    raw = struct.pack("<IHHIi", 16, drive.STATS, 0, 1000, 0)
    for i in range(len(raw)):
        c.sock.sendall(raw[i:i + 1])
    ok(b"loop.turns" in c.wait(1000), "a frame byte by byte")
    h.stop()


def drive_max():
    return 0x110000


def calls():
    h = Host(SLEEP)
    h.start()
    c = h.attach()
    c.hello()
    call = c.call
    same(call("getppid", [])[0], os.getpid(), "a call without buffers")
    fd, _ = call("socket", [2, 2, 0])
    ok(fd >= 0, "socket")
    addr = struct.pack("<H", 2) + struct.pack(">H4s8x", 0, b"\x7f\0\0\1")
    same(call("bind", [fd, 0, 16], [(1, IN, 0, addr)])[0], 0, "bind: an IN buffer")
    ret, out = call("getsockname", [fd], [(1, OUT, 0, 16), (2, INOUT, 0, struct.pack("<I", 16))])
    same((ret, len(out), out[4:8]), (0, 20, b"\x7f\0\0\1"), "getsockname: OUT and INOUT come back in full")
    me = out[:16]
    # sendmsg: iovec in msghdr, data in iovec
    msg = [(1, IN, 0, struct.pack("<QIIQQQQII", 0, 16, 0, 0, 1, 0, 0, 0, 0)),
           (0, IN | IN_BUF, 0, me), (0, IN | IN_BUF, 16, struct.pack("<QQ", 0, 5)), (2, IN | IN_BUF, 0, b"hello")]
    same(call("sendmsg", [fd, 0, 0], msg)[0], 5, "sendmsg: buffers inside buffers")
    ret, out = call("recvfrom", [fd, 0, 100], [(1, OUT, 0, 100)], timeout=1000, events=1)
    same((ret, out[:5]), (5, b"hello"), "recvfrom")
    t = time.monotonic()
    same(call("recvfrom", [fd, 0, 100], [(1, OUT, 0, 100)], timeout=200, events=1)[0], -11, "a waiting call: EAGAIN after its time")
    ok(0.15 < time.monotonic() - t < 20, "and not much later")
    a = c.call_send("recvfrom", [fd, 0, 100], [(1, OUT, 0, 100)], timeout=20000, events=1)
    b = c.call_send("recvfrom", [fd, 0, 100], [(1, OUT, 0, 100)], timeout=20000, events=1)
    same(call("getppid", [])[0], os.getpid(), "a waiting call does not hold up the next")
    c.ask(drive.CANCEL, struct.pack("<I", a))
    same(c.call_wait(a)[0], -4, "CANCEL: EINTR")
    call("sendto", [fd, 0, 3, 0, 0, 16], [(1, IN, 0, b"abc"), (4, IN, 0, me)])
    same(c.call_wait(b)[1][:3], b"abc", "the other one gets the data")
    same(status_of(call, 60, [1]), -1, "exit: EPERM")
    same(status_of(call, 59, [0]), -1, "execve: EPERM")
    same(status_of(call, 5000, []), -1, "a number that does not exist: EPERM")
    same(status_of(call, "read", [0, 0, 8], [(1, OUT, 0, 8)]), -9, "lklhost's own descriptor: EBADF")
    same(status_of(call, "close", [0]), -9, "closing lklhost's own descriptor: EBADF")
    same(status_of(call, "close", [fd], [(0, IN, 0, b"x")]), -22, "a buffer in place of a descriptor: EINVAL")
    same(status_of(call, "getppid", [], [(9, IN, 0, b"x")]), -22, "a buffer for argument 9: EINVAL")
    same(status_of(call, "getppid", [], [(0, IN, 0, b"12345678"), (0, IN | IN_BUF, 8, b"x")]), -22, "an address behind the end of a buffer: EINVAL")
    same(status_of(call, "getppid", [], [(0, IN, 0, b"12345678"), (1, IN | IN_BUF, 0, b"x")]), -22, "a buffer inside itself: EINVAL")
    same(status_of(call, "getppid", [], [(0, IN, 0, b"123456789"), (0, IN | IN_BUF, 1, b"x")]), -22, "an odd offset: EINVAL")
    same(status_of(call, "getppid", [], [(0, OUT, 0, 1 << 24)]), -7, "a huge buffer: E2BIG")
    for bufs, what in (
            ([(0, USED, 0, 0)], "a count of nothing"),
            ([(0, OUT, 0, 32), (0, USED, 0, 0)], "a count in the buffer itself"),
            ([(0, OUT, 0, 8), (1, OUT, 0, 8), (0, USED, 8, 0)], "a count behind the end of its buffer"),
            ([(0, OUT, 0, 8), (1, OUT, 0, 8), (2, USED, 0, 0)], "a count in a later buffer"),
            ([(0, IN, 0, b"12345678"), (1, OUT, 0, 8), (0, USED, 0, 0)], "a count that is not in the reply"),
            ([(0, OUT, 0, 8), (1, OUT, 0, 8), (0, USED, 0, 0), (2, OUT, 0, 8), (1, USED, 0, 0)], "a count that is cut itself")):
        same(status_of(call, "recvmmsg", [fd, 0, 1, 0, 0], bufs), -22, what + ": EINVAL")
    same(status_of(call, "getppid", [], [(0, OUT, 0, 8), (1, OUT, 0, 8), (0, USED, 0, 0)]), -22, "a count in a call that is no recvmmsg: EINVAL")
    # recvmmsg: two messages wait, there is room for three; the reply contains only two
    for text in (b"one", b"three"):
        call("sendto", [fd, 0, len(text), 0, 0, 16], [(1, IN, 0, text), (4, IN, 0, me)])
    def messages(n, room):
        head = struct.pack("<QIIQQQQIIII", 0, 0, 0, 0, 1, 0, 0, 0, 0, 77, 0) * n
        bufs = [(1, INOUT, 0, head)] + [(0, IN | IN_BUF, 64 * i + 16, struct.pack("<QQ", 0, room)) for i in range(n)]
        for i in range(n):
            bufs += [(1 + i, OUT | IN_BUF, 0, room), (0, USED, 64 * i + 56, 0)]
        return bufs
    ret, out = call("recvmmsg", [fd, 0, 3, 0, 0], messages(3, 1000))
    same((ret, out[192:]), (2, b"onethree"), "recvmmsg: of buffers that are counted only what was used comes back")
    same([struct.unpack_from("<I", out, 64 * i + 56)[0] for i in range(3)], [3, 5, 0], "and how much that is")
    # A reply has no room for 127 of the largest packets. All small packets arrive. Of the
    # large ones, as many arrive as fit; the rest remains for the next call.
    same(call("setsockopt", [fd, 1, 33, 0, 4], [(3, IN, 0, struct.pack("<I", 4 << 20))])[0], 0, "SO_RCVBUFFORCE")
    for n in (127, 40):
        text = [bytes([i]) * (60000 if n == 40 else 10 + i) for i in range(n)]
        sent = [call("sendto", [fd, 0, len(t), 0, 0, 16], [(1, IN, 0, t), (4, IN, 0, me)])[0] for t in text]
        same(sent, [len(t) for t in text], "%d datagrams are sent" % n)
        got, calls = b"", 0
        while len(got) < len(b"".join(text)):
            ret, out = call("recvmmsg", [fd, 0, 127, 0, 0], messages(127, 262144))
            ok(ret > 0, "recvmmsg: messages")
            calls += 1
            got += out[127 * 64:]
        ok(got == b"".join(text), "%d messages come whole and in order" % n)
        same((calls, ret) if n == 127 else calls > 2, (1, 127) if n == 127 else True, "in as many calls as it takes")
    same(call("recvmmsg", [fd, 0, 127, 0, 0], messages(127, 262144))[0], -11, "and then there are none")
    same(call("recvmmsg", [fd, 0, 1, 0, 0], messages(1, 0x10f000))[0], -11, "a reply has room for one of a megabyte")
    same(status_of(call, "recvmmsg", [fd, 0, 1, 0, 0], messages(1, 0x10f000) + [(5, OUT, 0, 0x2000)]), -7, "but not for that and more: E2BIG")
    n = count_fds(h.pid)
    for _ in range(20):
        call("socket", [2, 1, 0])
    c.call_send("recvfrom", [fd, 0, 100], [(1, OUT, 0, 100)], timeout=20000, events=1)
    same(call("getppid", [])[0], os.getpid(), "still there")
    ok(count_fds(h.pid) >= n + 20, "twenty sockets are open")
    c.sock.close()
    ok(within(30, lambda: count_fds(h.pid) <= n - 2), "and closed with the connection")
    h.stop()


EXEC, EXEC_SIGNAL = 14, 15


def exec_send(c, argv, fds, cwd="/"):
    text = b"".join(s.encode() + b"\0" for s in (cwd, *argv, "PATH=/usr/bin:/bin"))
    c.id += 1
    frame = struct.pack("<IHHIi", 32 + len(text), EXEC, 0, c.id, 0) + \
        struct.pack("<IIII", len(argv), 1, 0o22, len(text)) + text
    socket.send_fds(c.sock, [frame], fds)
    return c.id


def exec_wait(c, ident):
    """return (wait status, how, errno)"""
    return struct.unpack("<iIiI", c.wait(ident))[:3]


def execs():
    null = os.open("/dev/null", os.O_RDWR)
    three = [null] * 3
    h = Host(SLEEP)
    c = h.ctl
    c.hello()
    same(status_of(lambda: c.wait(exec_send(c, ["true"], three))), -11, "EXEC before GO: EAGAIN")
    h.start()
    c = h.attach()
    c.hello()
    same(status_of(lambda: c.wait(exec_send(c, ["true"], three[:2]))), -9, "EXEC with two descriptors: EBADF")
    same(exec_wait(c, exec_send(c, ["sh", "-c", "exit 7"], three)), (7 << 8, 0, 0), "EXEC: the status")
    n = count_fds(h.pid)    # with those that the zygote's first call has opened
    same(exec_wait(c, exec_send(c, ["true"], three, cwd="/no/such")), (125 << 8, 1, 2), "a folder that is not there")
    sig = lambda i, s, f=0: status_of(c.ask, EXEC_SIGNAL, struct.pack("<IIII", i, s, f, 0))
    a = exec_send(c, ["sleep", "100"], three)
    same((sig(a, 0), sig(a, 65), sig(a, 15, 2), sig(a + 1000, 15)), (-22, -22, -22, -2), "signals and programs that do not exist")
    same((sig(a, 15), exec_wait(c, a)), (0, (15, 0, 0)), "EXEC_SIGNAL")
    same(sig(a, 15), -2, "and again: ENOENT")
    r, w = os.pipe()
    # A shell forks with signals blocked, so its child does not get a signal sent at that moment.
    a = exec_send(c, ["sh", "-c", "sleep 100 & echo ready; wait"], [null, w, null])
    os.close(w)
    same(os.read(r, 100), b"ready\n", "a program with a child")
    same((sig(a, 15, 1), exec_wait(c, a)[0]), (0, 15), "to the group")
    same(os.read(r, 1), b"", "which the child is in")
    os.close(r)
    same(within(30, lambda: count_fds(h.pid) <= n), True, "no descriptor is left")
    d = h.attach()
    d.hello()
    b = exec_send(d, ["sleep", "100"], three)
    same(status_of(d.ask, EXEC_SIGNAL, struct.pack("<IIII", a, 15, 0, 0)), -2, "another connection's program")
    d.sock.close()
    ok(within(30, lambda: len(children(h.pid)) == 2), "its connection gone, a program ends: target and zygote are left")
    a = exec_send(c, ["sh", "-c", "trap '' HUP TERM; sleep 100"], three)
    zygote = [p for p in children(h.pid) if "lklhost" in open("/proc/%d/comm" % p).read()]
    h.ctl.ask(drive.STOP, struct.pack("<II", 15, 5000))
    same(exec_wait(c, a)[:2] in ((9, 3), (15, 0), (9, 0)), True, "the target's end is its end")
    h.wait()
    ok(zygote and not os.path.exists("/proc/%d" % zygote[0]), "and the zygote's")
    h = Host(SLEEP)
    h.start()
    others = lambda: [p for p in children(h.pid) if p != h.info["target"]]
    ok(within(30, lambda: len(others()) == 1), "the target forks the zygote, soon after GO")
    zygote = others()
    os.kill(zygote[0], 9)
    c = h.attach()
    c.hello()
    same(status_of(lambda: c.wait(exec_send(c, ["true"], three))), -3, "the zygote is gone: ESRCH")
    h.stop()
    os.close(null)


def children(pid):
    return [int(p) for p in open("/proc/%d/task/%d/children" % (pid, pid)).read().split()]


def count_fds(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def within(limit, cond):
    end = time.monotonic() + limit
    while not cond():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def slow_client():
    h = Host(SLEEP)
    h.start()
    c = h.attach()
    c.hello()
    c.sock.setblocking(False)
    raw = struct.pack("<IHHIi", 16, drive.STATS, 0, 1, 0) * 1000
    sent = 0
    try:
        while sent < 64 << 20:
            sent += c.sock.send(raw)
    except BlockingIOError:
        pass
    ok(sent < 64 << 20, "a client that reads no replies is not read from")
    ok(b"loop.turns" in h.ctl.ask(drive.STATS), "others are served meanwhile")
    c.sock.setblocking(True)
    got = 0
    c.sock.settimeout(10)
    while got < 1 << 20:
        got += len(c.sock.recv(65536))
    ok(True, "when it reads, it goes on")
    rss = int([l for l in open("/proc/%d/status" % h.pid) if l.startswith("VmRSS")][0].split()[1])
    ok(rss < 64 << 10, "memory stays bounded (%d kB)" % rss)
    silent_waits(h)
    many = [h.attach() for _ in range(70)]
    refused = 0
    for m in many:
        try:
            m.hello()
        except (EOFError, ConnectionError):
            refused += 1
    ok(0 < refused < 12, "more than 64 clients: the rest are closed (%d)" % refused)
    h.stop()


def many_small_frames():
    """a client sends small frames faster than lklhost answers them, and reads all answers"""
    h = Host(SLEEP)
    h.start()
    c = h.attach()
    c.hello()
    c.sock.setblocking(False)
    raw = struct.pack("<IHHIi", 16, 99, 0, 1, 0) * 100000     # of an unknown type
    want, sent, got = 10 * len(raw), 0, 0
    end = time.monotonic() + 60
    while got < want and time.monotonic() < end:
        select.select([c.sock], [c.sock] if sent < want else [], [], 1)
        try:
            while sent < want:
                sent += c.sock.send(raw[sent % len(raw):])
        except BlockingIOError:
            pass
        try:
            got += len(c.sock.recv(1 << 20))
        except BlockingIOError:
            pass
    same(got, want, "each of a million small frames is answered")
    peak = int([l for l in open("/proc/%d/status" % h.pid) if l.startswith("VmHWM")][0].split()[1])
    ok(peak < 8 << 10 or SANITIZED, "none is taken in long before its turn (%d kB)" % peak)
    h.stop()


def silent_waits(h):
    """200 calls that wait end at once, 12 MB of answers for a client that does not read"""
    c = h.attach()
    c.hello()
    c.ask(drive.EVENTS, struct.pack("<I", drive.EV_PROC | drive.EV_SOCKET))
    fd, _ = c.call("socket", [2, 2, 0])
    c.call("setsockopt", [fd, 1, 33, 0, 4], [(3, IN, 0, struct.pack("<I", 1 << 20))])
    addr = struct.pack("<H", 2) + struct.pack(">H4s8x", 0, b"\x7f\0\0\1")
    c.call("bind", [fd, 0, 16], [(1, IN, 0, addr)])
    _, out = c.call("getsockname", [fd], [(1, OUT, 0, 16), (2, INOUT, 0, struct.pack("<I", 16))])
    peek = 2
    for _ in range(200):
        c.call_send("recvfrom", [fd, 0, 60000, peek], [(1, OUT, 0, 60000)], timeout=600000, events=1)
    c.call_send("sendto", [fd, 0, 60000, 0, 0, 16], [(1, IN, 0, bytes(60000)), (4, IN, 0, out[:16])])
    ok(within(drive.LIMIT, lambda: "dropping a control client that does not read" in open(h.dir + "/log", errors="replace").read()),
       "a client whose waiting calls all end, and which does not read, is dropped, and the log says so")
    got = 0
    try:
        while data := c.sock.recv(1 << 20):
            got += len(data)
    except ConnectionError:
        pass
    ok(got < 9 << 20, "no more was kept for it than may be (%d bytes)" % got)
    ok(b"loop.turns" in h.ctl.ask(drive.STATS), "others are served")


def slow_launcher():
    """many events for a launcher that first does not read, then reads slowly: the run continues, and its end is reported"""
    h = Host(["/usr/bin/python3", "-c", "import os, socket\nfor i in range(%d): socket.socket().close()\nos._exit(7)" % MANY])
    h.start()
    h.ctl.ask(drive.EVENTS, struct.pack("<I", drive.EV_EXIT | drive.EV_WARN | drive.EV_SOCKET))
    c = h.attach()
    c.hello()
    c.ask(drive.EVENTS, struct.pack("<I", drive.EV_EXIT))
    same(c.next_event(drive.EV_EXIT)[2] >> 8, 7, "the target has run to its end")
    left = b""
    while data := h.ctl.sock.recv(32768):   # takes more than the second after which lklhost would give up
        left += data
        time.sleep(.08)
    h.ctl.buf = left
    while len(h.ctl.buf) >= 16:
        h.ctl.step()
    kinds = [e[0] for e in h.ctl.events]
    lost = sum(int(e[3].split()[0]) for e in h.ctl.events if e[0] == drive.EV_WARN)
    seen = kinds.count(drive.EV_SOCKET)
    ok(lost and seen > 10000 and seen + lost <= MANY, "%d events came, %d were lost, and it says so" % (seen, lost))
    same((kinds[-1], h.ctl.events[-1][2] >> 8), (drive.EV_EXIT, 7), "the end is told last")
    same(gone(h), 0, "lklhost ends with 0")


def open_and_close():
    """a target that opens and closes sockets faster than the regular sweep: closed ones do not use up the descriptors"""
    h = Host(["/usr/bin/python3", "-c", "import socket\nfor i in range(%d): socket.socket().close(); socket.socket(16, 3).close()" % (10 * FEW)])
    resource.prlimit(h.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    h.start()
    h.ctl.ask(drive.EVENTS, struct.pack("<I", drive.EV_EXIT))
    same(h.ctl.next_event(drive.EV_EXIT)[2] >> 8, 0, "%d sockets in turn with %d descriptors" % (10 * FEW, FEW))
    same(gone(h), 0, "lklhost ends with 0")


def listeners():
    """a client learns when the target's sockets begin and cease to listen"""
    with tempfile.TemporaryDirectory() as d:
        turn = d + "/turn"
        os.mkfifo(turn)
        os.chmod(d, 0o755)
        h = Host(["/usr/bin/python3", "-c", "import socket\nwait = lambda: open(%r).read()\nwait()\n" % turn +
                  "a, b = (socket.create_server(('127.0.0.1', 0)) for _ in range(2))\n"
                  "a.close()\nwait()\nb.close()\nwait()"])
        h.start()
        h.ctl.ask(drive.EVENTS, struct.pack("<I", drive.EV_EXIT | drive.EV_LISTEN))
        seen = []
        for n in 3, 1:
            open(turn, "w").close()
            seen += [h.ctl.next_event(drive.EV_LISTEN)[2] for _ in range(n)]
        same(seen, [1, 1, 0, 0], "two begin, and two cease")
        open(turn, "w").close()
        same(h.ctl.next_event(drive.EV_EXIT)[2], 0, "the target ends")
        same(gone(h), 0, "lklhost ends with 0")


def fuzz():
    broken_frames(Host(SLEEP))


def broken_frames(h):
    """random frames and mutations of valid ones: lklhost answers or closes the connection, and survives"""
    h.start()
    rnd = random.Random(4)
    good = [struct.pack("<IHHIi", 24, drive.HELLO, 0, 1, 0) + struct.pack("<II", 0x524c4b4c, 1),
            struct.pack("<IHHIi", 16, drive.OWNERS, 0, 2, 0),
            struct.pack("<IHHIi", 105, drive.SYSCALL, 0, 3, 0) + struct.pack("<IIII6Q", 41, 2, 0, 0, 2, 1, 0, 0, 0, 0) +
            struct.pack("<BBHI", 1, INOUT, 0, 8) + struct.pack("<BBHI", 2, IN, 0, 1) + b"123456789",
            struct.pack("<IHHIi", 20, drive.EVENTS, 0, 4, 0) + struct.pack("<I", 63)]
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "3"))
    n = 0
    while time.monotonic() < end:
        c = h.attach()
        c.hello()
        blob = b""
        for _ in range(rnd.randrange(1, 8)):
            f = bytearray(rnd.choice(good))
            for _ in range(rnd.randrange(4)):
                f[rnd.randrange(len(f))] = rnd.randrange(256)
            # other tests cover STOP, GO and the close of the launcher
            if f[4] == drive.STOP:
                f[4] = drive.STATS
            # SYSCALL could make any allowed call: use only harmless ones
            if f[4] == drive.SYSCALL and len(f) > 20 and f[16:20] != b"\x29\0\0\0":
                f[16:20] = struct.pack("<I", rnd.choice([41, 39, 54, 55, 49, 72]))
            if rnd.random() < 0.5:
                f[0:4] = struct.pack("<I", len(f))
            blob += bytes(f)
        try:
            c.sock.sendall(blob)
            c.sock.shutdown(socket.SHUT_WR)
            c.sock.settimeout(5)
            while c.sock.recv(65536):
                pass
        except (ConnectionError, TimeoutError):
            pass
        c.sock.close()
        n += 1
    same(h.ctl.hello()["state"], 2, "after %d connections with broken frames it still runs" % n)
    same(h.stop(), 9, "and ends as told")
    same(h.host_status, 0, "with status 0")


def ends():
    h = Host(SLEEP)
    h.ctl.hello()
    target = h.info_target = drive_target(h)
    h.ctl.sock.close()
    same(gone(h), 0, "the launcher goes before BOOT: lklhost ends")
    ok(not os.path.exists("/proc/%d" % target), "and the target with it")
    h = Host(SLEEP)
    h.start()
    target = drive_target(h)
    h.ctl.sock.close()
    same(gone(h), 0, "the launcher goes after GO: lklhost ends")
    ok(not os.path.exists("/proc/%d" % target), "and the target with it")
    h = Host(["sh", "-c", "trap '' TERM; echo ready >ready; sleep 100 & wait; sleep 100"])
    h.start()
    within(30, lambda: os.path.exists("ready"))
    os.unlink("ready")
    t = time.monotonic()
    h.ctl.ask(drive.STOP, struct.pack("<II", 15, 300))
    same(h.wait(), 9, "STOP: SIGKILL after the grace")
    ok(time.monotonic() - t < 20, "in time")


def drive_target(h):
    return h.ctl.hello()["target"]


def start_errors():
    binary = os.environ.get("LKLHOST") or os.path.join(drive.HERE, "../../bin/lklhost")
    for args, text in ((["--run", "/nonexistent", "--name", "x", "--abi", "host", "--", "true"], "--run /nonexistent: not a directory"),
                       (["--frob", "--", "true"], "--frob: unknown option"),
                       (["--run", "/tmp", "--name", "x", "--abi", "host"], "no command: give one after --"),
                       (["--run"], "--run: needs a value"),
                       *((["--user", u, "--", "true"], "--user %s: expected UID:GID[:GROUP,GROUP...]" % u)
                         for u in ("", "1", "1:", "x:1", "1:2:", "1:2:3,", "1:2,3", "4294967295:1", "-1:1")),
                       (["--run", "/tmp", "--name", "x", "--abi", "odd", "--", "true"], "--abi odd: is auto, native, new, old or host"),
                       (["--run", "/tmp", "--name", "x", "--", "true"], "--stack LIB is required, except with --abi host")):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            os.execv(binary, [binary] + args)
        theirs.close()
        c = drive.Conn(ours)
        e = c.next_event(drive.EV_WARN)
        _, st = os.waitpid(pid, 0)
        same((e[3], st >> 8), (text, 2), "%s: one line, status 2" % text)


if __name__ == "__main__":
    os.chdir(os.environ.get("TMPDIR", "/tmp"))
    sys.path.insert(0, drive.HERE)
    run([hello, frames, calls, execs, slow_client, many_small_frames, slow_launcher, open_and_close, listeners, fuzz, ends, start_errors])
