#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The library that shares memory with lklhost (lane/): the same lines as without it.

    test_lanelib.py LIBRARY MIX PROGRAM...

Each PROGRAM, and MIX, prints under lklhost with --lane what it prints on the host's own
sockets. By MIX the memory was used. LKL names the stack's library.

With REFERENCE, the folder of MIX as built for this machine, LIBRARY and MIX are another
processor's, run by qemu-user. That does not know the ioctl() by which lklhost would give
the memory: what runs is the library's start, its table of descriptors and its question.
"""
import functools
import os
import subprocess
import sys

import drive
import test_conform
from tap import ok, run

MIX_LIMIT = 100


def conforms(program):
    test_conform.conform = os.path.abspath(program)
    test_conform.compare("with a lane", test_conform.ALWAYS, "auto", lib, extra=["--lane", lane])


def used(mptcp):
    """what lklhost counted, asked for while the target still runs"""
    out_r, out_w = os.pipe()
    in_r, in_w = os.pipe()
    os.set_inheritable(in_r, True)
    saved = os.dup(1)
    os.dup2(out_w, 1)
    try:
        h = drive.Host(["/bin/sh", "-c", "%s; echo status $?; read x" % mix], abi="auto", lib=lib, stdin=in_r,
                       extra=["--lane", lane])
    finally:
        os.dup2(saved, 1)
        for fd in (saved, out_w, in_r):
            os.close(fd)
    h.start(mptcp=mptcp)
    out = ""
    with os.fdopen(out_r) as f:
        for line in f:
            if line.startswith("status "):
                break
            out += line
        status = line
        stats = dict(s.rsplit(" ", 1) for s in h.ctl.ask(drive.STATS).decode().splitlines())
        os.close(in_w)
        h.wait()
    name = "lane_mix" + (", MPTCP" if mptcp else "")
    ok(status == "status 0\n", "%s: %s" % (name, status.strip()))
    want = natively()
    if not ok(out == want, "%s: %d lines as on the host's own sockets" % (name, len(want.splitlines()))):
        for a, b in zip(want.splitlines(), out.splitlines()):
            if a != b:
                print("# want", a, "\n# got ", b)
    sent = int(stats["lane.sent"])
    # About half of what is written there is large, and made by the C library's calls.
    ok(sent > 100 << 20, "%s: %d bytes sent through lanes" % (name, sent))
    ok(h.host_status == 0, "%s: lklhost ends with status 0" % name)
    warnings = [e[3] for e in h.ctl.events if e[0] == drive.EV_WARN]
    ok(not warnings, "%s: no warnings %s" % (name, warnings))


@functools.cache
def natively():
    program = os.path.join(os.environ.get("REFERENCE", os.path.dirname(mix)), "lane_mix")
    return subprocess.run([program], stdout=subprocess.PIPE, timeout=MIX_LIMIT, check=True, text=True).stdout


def outside():
    """where nobody listens it does nothing"""
    r = subprocess.run([mix], stdout=subprocess.PIPE, timeout=MIX_LIMIT, text=True, env=dict(os.environ, LD_PRELOAD=lane))
    if not ok(r.returncode == 0 and r.stdout == natively(), "lane_mix outside a run, preloaded: as without"):
        print("# status %d\n# %s" % (r.returncode, r.stdout.replace("\n", "\n# ")))


def asks():
    """LANE_ATTACH of include/lane.h, as qemu-user shows what the program calls"""
    r = subprocess.run([mix], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=MIX_LIMIT, text=True, errors="replace",
                       env=dict(os.environ, LANE_MIX="block", LD_PRELOAD=lane, QEMU_STRACE="1"))
    asked = r.stderr.count("0x89e9,")
    ok(r.returncode == 0 and asked > 0, "lane_mix: the library asks for a lane %d times, which qemu-user does not pass on" % asked)


def named(name, fn, *args):
    def it():
        fn(*args)
    it.__name__ = name
    return it


if __name__ == "__main__":
    lane, mix = (os.path.abspath(a) for a in sys.argv[1:3])
    if "REFERENCE" in os.environ:
        run([named("outside", outside), named("asks", asks)])
    lib = os.environ["LKL"]
    test_conform.alone()
    run([named("outside", outside)] +
        [named("%s, with a lane" % os.path.basename(p), conforms, p) for p in sys.argv[3:]] +
        [named("used", used, False), named("used, MPTCP", used, True)])
