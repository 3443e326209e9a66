#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Lanes (include/lane.h) of lklhost, with a client of the tests' own as target:

    test_lane.py LANES

over the stack library that LKL names; with TCP, and with MPTCP in its place.
"""
import os
import subprocess
import sys

import drive
from tap import ok, run, same

LIB = os.environ["LKL"]
LANES = os.path.abspath(sys.argv[1])


def target(args, mptcp=False, extra=("--lane", LANES)):
    """what the target prints as its tests, and lklhost's counters at its end"""
    r, w = os.pipe()
    saved = os.dup(1)
    os.dup2(w, 1)
    try:
        h = drive.Host([LANES] + args, abi="auto", lib=LIB, extra=list(extra))
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(w)
    h.start(mptcp=mptcp)
    done = False
    with os.fdopen(r) as out:
        for line in out:
            word = line.split(" - ", 1)
            if len(word) == 2:
                ok(word[0].startswith("ok"), "%s%s" % ("MPTCP: " if mptcp else "", word[1].strip()))
            else:
                done |= line.startswith("1..")
                print(line if line.startswith("#") else "# " + line, end="", flush=True)
    ok(done, "the target has run to its end")
    e = h.ctl.next_event(drive.EV_EXIT)
    stats = dict(l.rsplit(" ", 1) for l in e[3].splitlines() if l.startswith("lane."))
    h.ctl.events.append(e)
    same(h.wait(), 0, "its status")
    same(h.host_status, 0, "lklhost's")
    return {k: int(v) for k, v in stats.items()}, h.ctl.events


def lanes(mptcp=False):
    s, events = target([], mptcp)
    for k in "made", "sent":
        ok(s["lane." + k] > 0, "lane.%s %d" % (k, s["lane." + k]))
    same(len([e for e in events if e[0] == drive.EV_WARN]), 1, "one warning, of the page in disorder")


def with_mptcp():
    lanes(True)


def none():
    s, _ = target(["none"], extra=())
    same(s["lane.made"], 0, "no lane was made")


def refused():
    """what the command line says about itself"""
    for extra, want in ((["--lane", "/nonexistent.so"], "No such file"), (["--lane", "/a b"], "blanks"),
                        (["--lane", LANES, "--preload", LANES], "not with --preload")):
        p = subprocess.run([os.environ["LKLHOST"], "--run", "/tmp", "--name", "x", "--stack", LIB, *extra, "--", "true"],
                           stderr=subprocess.PIPE, text=True, timeout=20)
        ok(p.returncode == 2 and p.stderr.count("\n") == 1 and want in p.stderr, "%s: %s" % (" ".join(extra), p.stderr.strip()))


if __name__ == "__main__":
    sys.path.insert(0, drive.HERE)
    run([lanes, with_mptcp, none, refused])
