#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Runs programs on the host's own sockets and with the stack preloaded.

    test_preload.py PRELOAD ALONE PROGRAM...

PRELOAD boots the library that LKL names by itself (csrc/engine/preload/init.c). Each
PROGRAM must print the same lines both ways, in a network namespace that has only
loopback. Permitted differences are listed here with their reasons. ALONE runs only
preloaded, and prints TAP; "" means none.

If PROGRAM is for another CPU, REFERENCE in the environment names a folder. The program of
the same name in that folder then runs on the host's own sockets.
"""
import difflib
import os
import subprocess
import sys
import tempfile

from tap import ok, run

# A child after fork() has no stack: in these tests a child writes or reads a socket.
ALLOWED = {("got 8388608", "got 0"),
           ("13 from a child", "0 status 256"), ("status 0", None),
           # Linux 7.3 has no UDP-Lite.
           ("udplite 6: 0", "udplite 6: EPROTONOSUPPORT"),
           # The stack has no processes to send SIGIO to.
           ("F_SETOWN: 0", "F_SETOWN: ESRCH"), ("signalled: 1", "signalled: 0")}
# MPTCP sockets of Linux 6.12 do not support these, with or without lklrun.
MPTCP = {("refused: poll 1 IN OUT HUP ERR", "refused: poll 1 OUT HUP ERR")}
# musl's accept4() falls back to accept() if the kernel refuses the call.
MUSL = {("bad flags: EINVAL", "bad flags: EAGAIN")}
REFERENCE = os.environ.get("REFERENCE")
LIMIT = 400 if REFERENCE else 100


def lines(cmd, env):
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("nameserver 127.0.0.1\n")
        f.flush()
        r = subprocess.run(["unshare", "-n", "-m", "sh", "-c", "mount --bind %s /etc/resolv.conf && "
                            "ip link set lo up && exec \"$@\"" % f.name, "sh"] + env + cmd,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT, text=True)
    return r.returncode, r.stdout.splitlines(), r.stderr


def preloaded(*more):
    return ["env", "LKLRUN_PRELOAD_SELFTEST=" + os.environ["LKL"], "LD_PRELOAD=" + preload + ":" + os.environ["LKL"], *more]


def differences(want, got, allowed):
    """return the pairs of different lines, except permitted differences"""
    bad = []
    m = difflib.SequenceMatcher(None, want, got, autojunk=False)
    for op, a, b, c, d in m.get_opcodes():
        if op == "equal":
            continue
        w, g = want[a:b], got[c:d]
        g += [None] * (len(w) - len(g))
        w += [None] * (len(g) - len(w))
        bad += [p for p in zip(w, g) if p not in allowed]
    return bad


def compare(program, what, allowed, *more):
    name = os.path.basename(program)
    if "musl" in program:
        name += " with musl"
        allowed = allowed | MUSL
    host = os.path.join(REFERENCE, os.path.basename(program)) if REFERENCE else program
    status, want, err = lines([host], [])
    ok(status == 0, "%s: ends with status 0 on the host" % name)
    status, got, err = lines([program], preloaded(*more))
    ok(status == 0, "%s, %s: ends with status 0" % (name, what))
    bad = differences(want, got, allowed)
    if not ok(want and not bad, "%s, %s: %d lines as on the host's own sockets" % (name, what, len(want))):
        for p in bad:
            print("#", p)
        print("#", "\n# ".join(err.splitlines()[:20]))


def conform():
    for p in programs[1:]:
        compare(p, "preloaded", ALLOWED)
        compare(p, "preloaded, MPTCP", ALLOWED | MPTCP, "LKLRUN_PRELOAD_MPTCP=1")


def alone():
    """run a program that prints TAP and has no counterpart on the host"""
    for more in ([], ["LKLRUN_PRELOAD_MPTCP=1"]):
        status, got, err = lines([programs[0]], preloaded(*more))
        for line in got:
            if " - " in line:
                ok(line.startswith("ok "), line.split(" - ", 1)[1])
        if not ok(status == 0 and got and got[-1] == "1..%d" % (len(got) - 1),
                  "%s: ends with status 0 and its plan" % os.path.basename(programs[0])):
            print("#", status, "\n# ".join(err.splitlines()[:20]))


if __name__ == "__main__":
    preload = os.path.abspath(sys.argv[1])
    programs = [p and os.path.abspath(p) for p in sys.argv[2:]]
    run([conform, alone] if programs[0] else [conform], 900 if REFERENCE else 120)
