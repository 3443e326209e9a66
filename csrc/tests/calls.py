#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Makes random socket calls and prints a line with the result of each.

    calls.py SEED STEPS [--mptcp] [--expect FILE] [--leave-out N,N...]

Three actors make the calls in turn: two threads, which share descriptors, and a child process.
Each step depends only on the seed and on its number, so that a step can be left out.

A stack may deliver data and events later than the host. A call that has
nothing yet, or that only asks, is repeated for a second if FILE has another result for its step.
"""
import errno
import fcntl
import os
import random
import re
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
import zlib

SLOTS = 6
PATIENCE = 1        # seconds
BLOCKED = .05       # seconds after which a call counts as blocked, if no result is expected
MPTCP = 262
V4 = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "0.0.0.0"]
V6 = ["::1", "::1", "::", "::ffff:127.0.0.1"]
waited_for = []     # by another actor; they stay open
POLL = 0x201f       # IN, PRI, OUT, ERR, HUP, RDHUP

# Options as numbers: level 0 is IP, 1 SOL_SOCKET, 6 TCP, 17 UDP, 41 IPv6.
SET = [(1, 2), (1, 9), (1, 13), (1, 15), (1, 29), (1, 18), (1, 20), (1, 40),
       (6, 1), (6, 4), (6, 5), (6, 6), (6, 9), (6, 18),
       (0, 1), (0, 2), (0, 8), (0, 10), (0, 11), (0, 13), (0, 15), (0, 24), (0, 33), (0, 34),
       (41, 16), (41, 18), (41, 25), (41, 26), (41, 49), (41, 51), (41, 66), (41, 67), (17, 104)]
GET = SET + [(1, 3), (1, 4), (1, 30), (1, 38), (1, 39), (0, 14), (41, 24)]
RECV = [0, 0, 0, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_WAITALL, socket.MSG_PEEK | socket.MSG_TRUNC,
        socket.MSG_ERRQUEUE]
SEND = [0, 0, 0, socket.MSG_EOR, socket.MSG_DONTROUTE, socket.MSG_CONFIRM]


class Actor:
    """a thread or process with a table of descriptors"""

    def __init__(self, slots):
        self.slots = slots
        self.epoll = None
        self.asked, self.ask = os.pipe()
        self.answered, self.answer = os.pipe()
        self.pending = None

    def serve(self, steps):
        while data := os.read(self.asked, 4):
            i = struct.unpack("i", data)[0]
            text = steps.step(self, i)
            os.write(self.answer, struct.pack("i", len(text)) + text.encode())

    def result(self, seconds):
        if not select.select([self.answered], [], [], seconds)[0]:
            return None
        n = struct.unpack("i", os.read(self.answered, 4))[0]
        return os.read(self.answered, n).decode()


def name(e):
    return errno.errorcode.get(e.errno, str(e))


class Steps:
    """the steps of one seed"""

    def __init__(self, seed, expected, protocol):
        self.seed, self.expected, self.protocol = seed, expected, protocol
        self.base = 20000 + seed % 5000 * 4

    def address(self, a):
        """an address as it is printed: ports that the kernel chose have no numbers"""
        if not isinstance(a, tuple) or len(a) < 2:
            return repr(a)
        port = a[1]
        if port and not self.base <= port < self.base + 4:
            port = "any"
        elif port:
            port = "P%d" % (port - self.base)
        return "%s.%s" % (a[0], port)

    def step(self, who, i):
        r = random.Random(self.seed * 1000003 + i)
        slot = r.randrange(SLOTS)
        s = who.slots[slot]
        if s is None:
            if r.random() < .3:
                return "nothing in %d" % slot
            return self.new(who, slot, r)
        kind = "%s%s" % ({2: "4", 10: "6", 1: "u"}[s.family], {1: "tcp", 2: "udp"}[s.type & 15])
        call, text = r.choice(OPS)(self, who, slot, s, r)
        text = "%d %s %s" % (slot, kind, text)
        return "%s = %s" % (text, self.made(call, self.expected.get(i, ""), s))

    def made(self, call, want, s):
        """the result of a call, which is repeated if another one is expected"""
        end = time.monotonic() + PATIENCE
        stream = re.search(r"tcp re.* = (\d+)", want)
        while stream and unread(s) < int(stream[1]) and time.monotonic() < end:
            time.sleep(.001)    # a receive takes the bytes that have arrived
        while True:
            try:
                got = call()
                got, again = "0" if got is None else str(got), hasattr(call, "harmless")
            except OSError as e:
                got, again = name(e), e.errno in (errno.EAGAIN, errno.EINPROGRESS, errno.EALREADY)
            except (ValueError, OverflowError, TypeError) as e:
                return type(e).__name__
            if not again or not want or want.endswith(" = " + got) or time.monotonic() > end:
                return got
            time.sleep(.001)

    def new(self, who, slot, r):
        family, kind = r.choice([(2, 1), (2, 1), (2, 2), (10, 1), (10, 2), (2, 1)])
        if r.random() < .4:
            return self.pair(who, slot, family, kind, r)
        s = self.socket(family, kind | socket.SOCK_NONBLOCK)
        who.slots[slot] = s
        text = "%d socket(%d, %d)" % (slot, family, kind)
        if r.random() < .5:
            return text
        a = self.choose(who, s, r, True)
        s.setsockopt(1, 2, 1)
        try:
            s.bind(a)
            if kind == 1 and r.random() < .7:
                s.listen(5)
            return "%s, bound to %s" % (text, self.address(a))
        except OSError as e:
            return "%s, bind(%s) = %s" % (text, self.address(a), name(e))

    def socket(self, family, kind):
        return socket.socket(family, kind, self.protocol if kind & 15 == socket.SOCK_STREAM else 0)

    def pair(self, who, slot, family, kind, r):
        """two sockets that are connected to each other"""
        to, host = (slot + 1 + r.randrange(SLOTS - 1)) % SLOTS, "127.0.0.1" if family == 2 else "::1"
        a, b = self.socket(family, kind), self.socket(family, kind)
        a.bind((host, 0))
        if kind == 1:
            a.listen()
            b.connect(a.getsockname())
            a, listener = a.accept()[0], a
            listener.close()
        else:
            b.bind((host, 0))
            b.connect(a.getsockname())
            a.connect(b.getsockname())
        for i, x in ((slot, a), (to, b)):
            x.setblocking(False)
            put(who, i, x)
        return "%d and %d, a connection (%d, %d)" % (slot, to, family, kind)

    def choose(self, who, s, r, mine=False):
        """an address: of a socket of this actor, or any"""
        hosts = V4 if s.family == 2 else V6
        host, port = r.choice(hosts), self.base + r.randrange(4)
        if not mine and r.random() < .5:
            for t in r.sample([t for t in who.slots if t], sum(t is not None for t in who.slots)):
                try:
                    a = t.getsockname()
                except OSError:
                    continue
                if t.family == s.family and t.type == s.type and a[1]:
                    return a[:2]
        return host, 0 if mine and r.random() < .3 else port


def harmless(f):
    """marks a call that can be made again"""
    f.harmless = True
    return f


def unread(s):
    """the bytes that a receive would return; no limit for a listener"""
    try:
        return struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, b"\0" * 4))[0]
    except OSError:
        return 1 << 30


def payload(r):
    return bytes([r.randrange(256)]) * r.choice([0, 1, 10, 100, 1000, 3000])


def seen(data, flags=0):
    """TCP with MSG_TRUNC copies nothing."""
    return "%d:%08x" % (len(data), zlib.crc32(data)) if data and not flags & socket.MSG_TRUNC else str(len(data))


def op_bind(st, who, slot, s, r):
    a = st.choose(who, s, r, True)
    return lambda: s.bind(a), "bind(%s)" % st.address(a)


def op_connect(st, who, slot, s, r):
    a = st.choose(who, s, r)
    def call():
        s.connect(a)
    return call, "connect(%s)" % st.address(a)


def op_disconnect(st, who, slot, s, r):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    def call():
        if libc.connect(s.fileno(), struct.pack("H14x", 0), 16):
            raise OSError(ctypes.get_errno(), "connect")
    return call, "connect(AF_UNSPEC)"


def op_listen(st, who, slot, s, r):
    n = r.choice([0, 1, 5, -1])
    return lambda: s.listen(n), "listen(%d)" % n


def op_accept(st, who, slot, s, r):
    to = r.randrange(SLOTS)
    def call():
        c, a = s.accept()
        c.setblocking(False)
        put(who, to, c)
        return st.address(a)
    return call, "accept() into %d" % to


def put(who, slot, s):
    old, who.slots[slot] = who.slots[slot], s
    if old and old not in waited_for:
        old.close()
        with socket.socket(2, 2) as any_socket:
            any_socket.connect(("127.0.0.1", 9))    # lklhost looks for closed sockets before


def op_send(st, who, slot, s, r):
    d, f = payload(r), r.choice(SEND)
    return lambda: s.send(d, f | socket.MSG_NOSIGNAL), "send(%d, %#x)" % (len(d), f)


def op_sendto(st, who, slot, s, r):
    d, f, a = payload(r), r.choice(SEND), st.choose(who, s, r)
    return lambda: s.sendto(d, f | socket.MSG_NOSIGNAL, a), "sendto(%d, %#x, %s)" % (len(d), f, st.address(a))


def op_sendmsg(st, who, slot, s, r):
    d = [payload(r) for _ in range(r.randrange(4))]
    to = [st.choose(who, s, r)] if r.random() < .5 else []
    c = [(0, 2, struct.pack("i", 7))] if s.family == 2 and r.random() < .3 else []
    return (lambda: s.sendmsg(d, c, socket.MSG_NOSIGNAL, *to),
            "sendmsg(%s, %d, %s)" % ([len(x) for x in d], len(c), [st.address(a) for a in to]))


def op_recv(st, who, slot, s, r):
    n, f = r.choice([0, 1, 50, 5000]), r.choice(RECV)
    return lambda: seen(s.recv(n, f), f), "recv(%d, %#x)" % (n, f)


def op_recvfrom(st, who, slot, s, r):
    n, f = r.choice([0, 1, 50, 5000]), r.choice(RECV)
    def call():
        d, a = s.recvfrom(n, f)
        return "%s from %s" % (seen(d, f), st.address(a))
    return call, "recvfrom(%d, %#x)" % (n, f)


def op_recvmsg(st, who, slot, s, r):
    n, f, c = r.choice([1, 50, 5000]), r.choice(RECV), r.choice([0, 8, 200])
    def call():
        d, cm, fl, a = s.recvmsg(n, c, f)
        return "%s, %s, %#x, from %s" % (seen(d, f), [(x, y, len(z)) for x, y, z in cm], fl, st.address(a))
    return call, "recvmsg(%d, %d, %#x)" % (n, c, f)


def op_read(st, who, slot, s, r):
    if r.random() < .5:
        n = r.choice([0, 1, 50, 5000])
        return lambda: seen(os.read(s.fileno(), n)), "read(%d)" % n
    b = [bytearray(n) for n in (1, 20, 3000)]
    def call():
        n = os.readv(s.fileno(), b)
        return seen(b"".join(b)[:n])
    return call, "readv()"


def op_write(st, who, slot, s, r):
    d = payload(r)
    if r.random() < .5:
        return lambda: os.write(s.fileno(), d), "write(%d)" % len(d)
    return lambda: os.writev(s.fileno(), [d, b"", d]), "writev(2 * %d)" % len(d)


def op_shutdown(st, who, slot, s, r):
    """Without SHUT_RD, because data may arrive before it natively and after it on a stack."""
    how = r.choice([socket.SHUT_WR, 3])
    def call():
        s.getpeername()     # lklhost does not see shutdown() of sockets that have no peer
        s.shutdown(how)
    return call, "shutdown(%d)" % how


def op_close(st, who, slot, s, r):
    return lambda: put(who, slot, None), "close()"


def op_dup(st, who, slot, s, r):
    to = r.randrange(SLOTS)
    def call():
        put(who, to, s.dup())
    return call, "dup() into %d" % to


def op_names(st, who, slot, s, r):
    if r.random() < .5:
        return harmless(lambda: st.address(s.getsockname())), "getsockname()"
    return harmless(lambda: st.address(s.getpeername())), "getpeername()"


def op_getopt(st, who, slot, s, r):
    o, n = r.choice(GET), r.choice([4, 4, 4, 1, 2, 8])
    return harmless(lambda: s.getsockopt(*o, n).hex()), "getsockopt(%d, %d, %d)" % (*o, n)


def op_error(st, who, slot, s, r):
    return lambda: s.getsockopt(1, 4), "getsockopt(SO_ERROR)"


def op_setopt(st, who, slot, s, r):
    o, v, n = r.choice(SET), r.choice([0, 1, 1, 2, -1, 64, 255, 65536]), r.choice([4, 4, 4, 4, 1, 2, 8])
    return (lambda: s.setsockopt(*o, struct.pack("<ii", v, 0)[:n]),
            "setsockopt(%d, %d, %d, %d)" % (*o, v, n))


def op_poll(st, who, slot, s, r):
    def call():
        p = select.poll()
        p.register(s, POLL)
        return ["%#x" % e for _, e in p.poll(0)]
    def both():
        return [len(x) for x in select.select([s], [s], [s], 0)]
    return (harmless(call), "poll()") if r.random() < .7 else (harmless(both), "select()")


def op_epoll(st, who, slot, s, r):
    what, bits = r.choice(["add", "modify", "unregister", "wait", "wait"]), r.choice([1, 4, 5, 0x2005])
    def call():
        if not who.epoll:
            who.epoll = select.epoll()
        if what == "wait":
            return sorted("%#x" % e for _, e in who.epoll.poll(0))
        if what == "unregister":
            return who.epoll.unregister(s)
        return (who.epoll.register if what == "add" else who.epoll.modify)(s, bits)
    if what == "wait":
        harmless(call)
    return call, "epoll %s %s" % (what, "" if what in ("wait", "unregister") else "%#x" % bits)


def op_ioctl(st, who, slot, s, r):
    nr = r.choice([0x541b, 0x5411, 0x8905, 0x8904, 0x5421])
    arg = 1 if nr == 0x5421 else 0
    return (harmless(lambda: struct.unpack("i", fcntl.ioctl(s, nr, struct.pack("i", arg)))[0] if nr != 0x5411 else
                     fcntl.ioctl(s, nr, b"\0" * 4) and 0), "ioctl(%#x)" % nr)


def op_fcntl(st, who, slot, s, r):
    nr = r.choice([1, 3, 9])
    return harmless(lambda: fcntl.fcntl(s, nr)), "fcntl(%d)" % nr


def op_wait(st, who, slot, s, r):
    """a call that may block"""
    bits = r.choice([select.POLLIN, select.POLLOUT, 0x2000])
    waited_for.append(s)
    def call():
        p = select.poll()
        p.register(s, bits)
        return ["%#x" % e for _, e in p.poll()]
    return harmless(call), "poll(%#x, for ever)" % bits


def op_pass(st, who, slot, s, r):
    """sends a descriptor to itself over a unix socket"""
    to = r.randrange(SLOTS)
    def call():
        a, b = socket.socketpair()
        with a, b:
            socket.send_fds(a, [b"x"], [s.fileno()])
            _, fds, _, _ = socket.recv_fds(b, 1, 1)
        put(who, to, socket.socket(fileno=fds[0]))
    return call, "SCM_RIGHTS into %d" % to


OPS = [op_bind, op_connect, op_connect, op_connect, op_disconnect, op_listen, op_accept, op_accept, op_send, op_send,
       op_sendto, op_sendto, op_sendmsg, op_recv, op_recv, op_recvfrom, op_recvmsg, op_recvmsg, op_read, op_write,
       op_shutdown, op_close, op_dup, op_names, op_names, op_getopt, op_getopt, op_error, op_setopt, op_setopt,
       op_poll, op_poll, op_epoll, op_epoll, op_ioctl, op_fcntl, op_wait, op_pass]


def read_expected(path):
    lines = {}
    for line in filter(str.strip, open(path)):
        n, _, text = line.rstrip("\n").partition(" ")
        lines.setdefault(int(n), text)
    return lines


def main():
    args = sys.argv[1:]
    expected, left_out = {}, set()
    if "--expect" in args:
        k = args.index("--expect")
        expected = read_expected(args[k + 1])
        del args[k:k + 2]
    if "--leave-out" in args:
        k = args.index("--leave-out")
        left_out = set(map(int, filter(None, args[k + 1].split(","))))
        del args[k:k + 2]
    protocol = 0
    if "--mptcp" in args:
        protocol = MPTCP
        args.remove("--mptcp")
    seed, steps = map(int, args)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    st = Steps(seed, expected, protocol)

    shared = [None] * SLOTS
    child = Actor([None] * SLOTS)
    pid = os.fork()
    if not pid:
        try:
            child.serve(st)
        finally:
            os._exit(0)
    actors = [Actor(shared), Actor(shared), child]
    for a in actors[:2]:
        threading.Thread(target=a.serve, args=(st,), daemon=True).start()
    for i in range(steps):
        who = random.Random(seed * 7919 + i).choice([0, 0, 1, 1, 2])
        if i not in left_out:
            take(actors, who, i, expected)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sys.stdout.flush()
    os._exit(0)


def take(actors, who, i, expected):
    """lets one actor make a step; prints its result, and results for which others have waited"""
    a = actors[who]
    want = expected.get(i, "")
    if a.pending is not None:
        print(i, "ABC"[who], "is busy")
    else:
        os.write(a.ask, struct.pack("i", i))
        text = a.result(BLOCKED if not want or want.endswith("waits") else 2 * PATIENCE)
        if text is None:
            a.pending = i
        print(i, "ABC"[who], text or "waits")
    for k, b in enumerate(actors):
        if b.pending is not None and b is not a:
            text = b.result(.02)
            if text is not None:
                print(i, "ABC"[k], "since %d:" % b.pending, text)
                b.pending = None


if __name__ == "__main__":
    main()
