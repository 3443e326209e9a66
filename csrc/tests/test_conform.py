#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Runs programs on the host's own sockets and under lklhost, and compares the output.

    test_conform.py [--library | --tcp] PROGRAM...

The tests use the back end "host" and, if LKL is set, the stack library that it names:
with TCP, and with MPTCP in place of TCP. --library: only the library. --tcp: only the
library with TCP; the MPTCP of Linux 6.1 has no Fast Open, for which a program would wait.
Permitted differences are listed here with their reasons.
"""
import ctypes
import difflib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile

import drive
from tap import ok, run, skip

# Calls that lklhost is not notified of get the answer of a unix socket. Without a peer,
# or while it listens, it returns EINVAL to recv and ENOTCONN to send, and can be shut down.
ALWAYS = {("recv on listener: ENOTCONN", "recv on listener: EINVAL"),
          ("unconnected recv: ENOTCONN", "unconnected recv: EINVAL"),
          ("unconnected read: ENOTCONN", "unconnected read: EINVAL"),
          ("unconnected send: EPIPE", "unconnected send: ENOTCONN"),
          ("listener send: EPIPE", "listener send: ENOTCONN"),
          ("unconnected shutdown: ENOTCONN", "unconnected shutdown: 0"),
          # Linux 7.3 has no UDP-Lite.
          ("udplite 6: 0", "udplite 6: EPROTONOSUPPORT"),
          # lklhost refuses requests that are private to a kind of device, for any device.
          ("unknown ioctl: ENODEV", "unknown ioctl: ENOTTY"),
          # lklhost holds a part of the queues.
          ("TCP_REPAIR: 0", "TCP_REPAIR: EPERM"),
          # A unix datagram socket answers calls without an address. lklhost can set
          # only one error on it, ECONNRESET, and error poll bits only together with
          # this error. It returns ENOTCONN if an address is missing, and its limits
          # are even numbers.
          ("plain recv: ECONNREFUSED", "plain recv: ECONNRESET"),
          ("plain send: ECONNREFUSED", "plain send: ECONNRESET"),
          ("plain recv has nothing: EAGAIN", "plain recv has nothing: ECONNRESET"),
          ("no address, plain send: EDESTADDRREQ", "no address, plain send: ENOTCONN"),
          ("no address, write: EDESTADDRREQ", "no address, write: ENOTCONN"),
          ("plain send, one more: EMSGSIZE", "plain send, one more: 65508"),
          ("plain send, one more: EMSGSIZE", "plain send, one more: 65528")}
# Poll bits of a unix socket after shutdown() and after connect() to AF_UNSPEC, and a
# shutdown() that lklhost cannot see: SHUT_WR before the connection is established.
ALWAYS |= {("tcp, full, poll POLLOUT, SHUT_WR: 1", "tcp, full, poll POLLOUT, SHUT_WR: waits, then EINTR"),
           ("connecting, connect, SHUT_WR: ECONNRESET", "connecting, connect, SHUT_WR: waits, then EINTR")}
ALWAYS |= {("bits, " + what + was, "bits, " + what + now) for what, was, now in (
    ("tcp, disconnect [ OUT ] ", "[ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]", "[ OUT HUP ] SO_ERROR ECONNRESET [ OUT HUP ]"),
    ("tcp, full, SHUT_WR [ ] ", "[ OUT ] SO_ERROR 0 [ OUT ]", "[ ] SO_ERROR 0 [ ]"),
    ("tcp, full, SHUT_RDWR [ ] ", "[ IN OUT RDHUP HUP ] SO_ERROR 0 [ IN OUT RDHUP HUP ]",
     "[ IN RDHUP HUP ] SO_ERROR 0 [ IN RDHUP HUP ]"),
    ("tcp, full, disconnect [ ] ", "[ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]", "[ OUT HUP ] SO_ERROR ECONNRESET [ OUT HUP ]"),
    ("listener, SHUT_RD [ ] ", "[ OUT HUP ] SO_ERROR 0 [ OUT HUP ]", "[ IN RDHUP ] SO_ERROR 0 [ IN RDHUP ]"),
    ("listener, SHUT_RDWR [ ] ", "[ OUT HUP ] SO_ERROR 0 [ OUT HUP ]", "[ IN RDHUP HUP ] SO_ERROR 0 [ IN RDHUP HUP ]"),
    ("connecting, SHUT_RD [ ] ", "[ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]", "[ IN RDHUP ] SO_ERROR 0 [ IN RDHUP ]"),
    ("connecting, SHUT_WR [ ] ", "[ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]",
     "[ IN OUT RDHUP HUP ERR ] SO_ERROR ECONNRESET [ IN OUT RDHUP HUP ]"),
    ("connecting, SHUT_RDWR [ ] ", "[ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]",
     "[ IN OUT RDHUP HUP ERR ] SO_ERROR ECONNRESET [ IN OUT RDHUP HUP ]"),
    ("connecting, disconnect [ ] ", "[ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]", "[ OUT HUP ] SO_ERROR ECONNRESET [ OUT HUP ]"))}
# MPTCP has no urgent data.
MPTCP = {("SIGURG 1", "SIGURG 0"), ("urgent: 1", "urgent: EINVAL"), ("before: 3", "before: 7"),
         ("at the mark: 1", "at the mark: 0"), ("behind: 3", "behind: EAGAIN"),
         ("inline, before: 2", "inline, before: 5"), ("inline: 3", "inline: EAGAIN"),
         # MPTCP keeps its address when a connect fails.
         ("no address: 1", "no address: 0"),
         # MPTCP reports no error after connect() to AF_UNSPEC.
         ("bits, tcp, disconnect [ OUT ] [ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]",
          "bits, tcp, disconnect [ OUT ] [ OUT HUP ] SO_ERROR 0 [ OUT HUP ]"),
         ("bits, tcp, full, disconnect [ ] [ OUT HUP ERR ] SO_ERROR ECONNRESET [ OUT HUP ]",
          "bits, tcp, full, disconnect [ ] [ OUT HUP ] SO_ERROR 0 [ OUT HUP ]")}
TRACE = os.environ.get("ENGINE") == "trace"
if TRACE:
    # A stop for another thread's new socket makes these calls look up descriptors again.
    ALWAYS |= {("listener, %s, close: waits, then EINTR" % call, "listener, %s, close: %d" % (call, n))
               for call in ("poll", "ppoll", "select", "pselect") for n in (1, 2)}
# The back end host learns of datagrams from an epoll, after the call.
HOST = ALWAYS | {("at once: 1", "at once: 0")}
LIMIT = 60
ROUNDS = 100


def alone():
    """enter a new network namespace that has only loopback"""
    if os.getuid() == 0:
        if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):   # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "unshare")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@functools.cache
def natively(conform, *arguments):
    return subprocess.run([conform, *arguments], stdout=subprocess.PIPE, timeout=LIMIT, check=True, text=True).stdout


def under(abi, lib, mptcp=False, uid=None, program=None, binary=None, extra=(), arguments=()):
    h, out = drive.heard([program or conform, *arguments], abi=abi, lib=lib, uid=uid, binary=binary, extra=extra)
    h.start(mptcp=mptcp)
    with out:
        said = out.read()
    return h.wait(), said


def differences(want, got, allowed):
    got = got.splitlines()
    if len(want) == len(got):
        return [(a, b) for a, b in zip(want, got) if a != b and (a, b) not in allowed]
    return list(difflib.unified_diff(want, got, lineterm="", n=0))


def compare(name, allowed, *args, **kw):
    want = natively(conform).splitlines()
    status, got = under(*args, **kw)
    ok(status == 0, "%s: %s ends with status 0" % (name, os.path.basename(conform)))
    bad = differences(want, got, allowed)
    if bad and only_library(conform) and len(want) == len(got.splitlines()):
        # On a busy machine, an event may come before a call waits, here or on the host's
        # sockets: only a case that differs twice is wrong.
        rows = [b[0] for b in bad]
        again = natively(conform, *rows).splitlines()
        bad = differences(again, under(*args, arguments=rows, **kw)[1], allowed) if len(again) >= len(rows) else bad
    if not ok(not bad, "%s: %d lines as on the host's own sockets" % (name, len(want))):
        for b in bad:
            print("#", b)


def host():
    compare("back end host", HOST, "host", None)


def unprivileged():
    if os.getuid():
        return skip("an ordinary user", "is one already")
    # Other users may not be able to enter the folder of the source tree.
    with tempfile.TemporaryDirectory(prefix="lklhost-test-") as d:
        os.chmod(d, 0o755)
        program, binary = (shutil.copy(f, d) for f in (conform, os.environ["LKLHOST"]))
        compare("back end host, an ordinary user", HOST, "host", None, uid=65534,
                program=program, binary=binary)


CROSSING = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.settimeout(%d)
s.bind(("127.0.0.1", 7000))
for n in range(%d):
    s.sendto(b"", ("127.0.0.1", 7001))
    for _ in range(801):
        assert s.recv(100)[0] == n
"""


def crossing():
    """a short datagram ends merging while others arrive: with the back end host, these come from another CPU"""
    if os.getuid():
        return skip("datagrams while merging ends", "needs a larger receive buffer than a user may have")
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.settimeout(LIMIT)
    s.bind(("127.0.0.1", 7001))
    h = drive.Host([sys.executable, "-c", CROSSING % (LIMIT // 4, ROUNDS)])
    h.start()
    for n in range(ROUNDS):
        peer = s.recvfrom(1)[1]
        for size in (8, 0, 8):
            s.setsockopt(socket.IPPROTO_UDP, 103, 100 if size else 0)     # UDP_SEGMENT
            for _ in range(size or 1):
                s.sendto(bytes([n]) * (5000 if size else 1), peer)
    ok(h.wait() == 0, "datagrams that arrive while merging ends are not lost")


def library():
    lib = os.environ.get("LKL")
    if not lib or not os.path.exists(lib):
        return skip("stack library", "LKL names none")
    compare("stack library", ALWAYS, "auto", lib)
    if sys.argv[1] != "--tcp":
        compare("stack library, MPTCP", ALWAYS | MPTCP, "auto", lib, mptcp=True)


def shared():
    """run without a namespace of its own: carriers are files with random names"""
    lib = os.environ.get("LKL")
    if not lib or not os.path.exists(lib):
        return skip("without namespaces", "LKL names no stack library")
    if os.getuid():
        return skip("without namespaces", "needs root to give up what root may")
    with tempfile.TemporaryDirectory(prefix="lklhost-test-") as d:
        os.chmod(d, 0o755)
        program, binary, copy = (shutil.copy(f, d) for f in (conform, os.environ["LKLHOST"], lib))
        compare("without namespaces", ALWAYS, "auto", copy, uid=65534,
                program=program, binary=binary, extra=["--no-userns"])


def each(program, tests):
    """return some tests, for one program"""
    def of(test):
        def it():
            global conform
            conform = os.path.abspath(program)
            test()
        it.__name__ = "%s, %s" % (os.path.basename(program), test.__name__)
        return it
    return [of(t) for t in tests]


def needs_root(program):
    return program.endswith("_dgram")     # raw sockets


def only_library(program):
    return program.endswith("_wait")      # needs root too, and takes 20 s


if __name__ == "__main__":
    sys.path.insert(0, drive.HERE)
    alone()
    if sys.argv[1] in ("--library", "--tcp"):
        run(sum((each(p, [library]) for p in sys.argv[2:]), []))
    else:
        run(sum((each(p, [library] if only_library(p) else [host, library, crossing] if needs_root(p) else [host, unprivileged, library, shared])
                 for p in sys.argv[1:]), []))
