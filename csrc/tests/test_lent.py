#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Received bytes that are lent to a carrier (supervise/lent.c): the same lines as on the host's sockets.

    test_lent.py LENT MIX

Of both programs much must have been lent, as lklhost counts it. LKL names the stack's library.
"""
import array
import functools
import os
import socket
import subprocess
import sys
import tempfile

import drive
import test_conform
from tap import ok, run

LIMIT = 100
# lent.c has these as well
FILLED, OUTER_SEED, OUTER_READ, OUTER_PIPE = 8 << 20, 7, 4 << 20, 256 << 10


@functools.cache
def natively(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, timeout=LIMIT, check=True, text=True).stdout


def under(argv, mptcp, meanwhile=lambda: None, mem=0):
    """output, status, and what lklhost counted while the target was still there"""
    out_r, out_w = os.pipe()
    in_r, in_w = os.pipe()
    os.set_inheritable(in_r, True)
    saved = os.dup(1)
    os.dup2(out_w, 1)
    try:
        h = drive.Host(["/bin/sh", "-c", '"$@"; echo status $?; read x', "sh"] + argv, abi="auto",
                       lib=os.environ["LKL"], stdin=in_r)
    finally:
        os.dup2(saved, 1)
        for fd in (saved, out_w, in_r):
            os.close(fd)
    h.start(mptcp=mptcp, mem=mem)
    meanwhile()
    out = ""
    with os.fdopen(out_r) as f:
        for line in f:
            if line.startswith("status "):
                break
            out += line
        stats = dict(s.rsplit(" ", 1) for s in h.ctl.ask(drive.STATS).decode().splitlines())
        os.close(in_w)
        h.wait()
    warnings = [e[3] for e in h.ctl.events if e[0] == drive.EV_WARN]
    ok(h.host_status == 0 and not warnings, "lklhost ends with status 0 %s" % warnings)
    return out, line, int(stats["bytes.lent"])


def compares(name, argv, mptcp, least, mem=0):
    out, status, lent = under(argv, mptcp, mem=mem)
    if not ok(out == natively(*argv) and status == "status 0\n", "%s: as on the host's own sockets" % name):
        print("# " + out.replace("\n", "\n# ") + status)
    ok(lent >= least, "%s: %d bytes were lent" % (name, lent))


def byte_at(pos):
    return ((pos + OUTER_SEED) * 0x9e3779b97f4a7c15 & (1 << 64) - 1) >> 56


def outsider(sock):
    """who is not in the target's tree splices from a connection that he is given"""
    s, _ = sock.accept()
    s.settimeout(LIMIT)
    fds = array.array("i")
    _, anc, _, _ = s.recvmsg(1, socket.CMSG_SPACE(fds.itemsize))
    fds.frombytes(anc[0][2][:fds.itemsize])
    r, w = os.pipe()
    import fcntl
    fcntl.fcntl(w, 1031, OUTER_PIPE * 2)        # F_SETPIPE_SZ
    n = 0
    while n < OUTER_PIPE:
        n += os.splice(fds[0], w, OUTER_PIPE - n)
    s.send(b"s")
    s.recv(1)
    got = b""
    while len(got) < OUTER_PIPE:
        got += os.read(r, OUTER_PIPE - len(got))
    want = bytes(byte_at(OUTER_READ + i) for i in range(OUTER_PIPE))
    bad = next((i for i in range(OUTER_PIPE) if got[i] != want[i]), -1)
    s.send(b"y" if bad < 0 else b"n")
    for fd in (r, w, fds[0]):
        os.close(fd)
    s.close()
    return bad


def given(mptcp):
    with tempfile.TemporaryDirectory() as d, socket.socket(socket.AF_UNIX) as sock:
        path = os.path.join(d, "outside")
        sock.bind(path)
        sock.listen(1)
        sock.settimeout(LIMIT)
        bad = []
        out, status, lent = under([program, path], mptcp, lambda: bad.append(outsider(sock)))
    ok(bad == [-1], "given away%s: what was spliced outside is right, not %s" % (mptcp and ", MPTCP" or "", bad))
    ok(out == "given: y\n" and status == "status 0\n", "and what the target had and got: %s" % (out + status).strip())
    ok(lent > 8 << 20, "%d bytes were lent" % lent)


def named(name, fn, *args):
    def it():
        fn(*args)
    it.__name__ = name
    return it


if __name__ == "__main__":
    program, mix = (os.path.abspath(a) for a in sys.argv[1:3])
    test_conform.alone()
    run([named("lent", compares, "lent", [program], False, 100 << 20),
         named("lent, MPTCP", compares, "lent, MPTCP", [program], True, 100 << 20),
         named("lent, little memory", compares, "lent, little memory", [program], False, 1 << 20, 24 << 20),
         named("mix", compares, "lane_mix", [mix], False, 50 << 20),
         named("given", given, False), named("given, MPTCP", given, True)])
