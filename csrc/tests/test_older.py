#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Runs a program while lklhost does without features that older kernels lack.

    test_older.py INTERRUPTED

INTERRUPTED must print the same lines as on the host's own sockets (tests/interrupted.c).
LKL names the stack library. The variable LKLRUN_TEST_LACKS hides features from lklhost
(base/features.c), so this covers lklhost's part, and not the older kernels themselves.

Without both features, the kernel may accept an answer although a signal has just
interrupted the caller. lklhost cannot detect this. Of the descriptors that signals leave, a
small part may therefore stay unused.
"""
import os
import re
import subprocess
import sys
import tempfile

import drive
import test_conform
from tap import ok, run, same

SEND, KILLABLE = "addfd-send", "wait-killable"
UNUSED = re.compile(r"^(descriptors left by|connections that nobody served).*: \d+$")
# After the program, the shell waits, because lklhost may end as soon as the target does.
WAITS = '"$1"; status=$?; exec >&-; read -r line <"$2"; exit $status'


def under(lacks, fifo):
    """return the program's status, its lines, and lklhost's counters at its end"""
    os.environ["LKLRUN_TEST_LACKS"] = lacks
    h, out = drive.heard(["/bin/sh", "-c", WAITS, "sh", program, fifo], abi="auto", lib=os.environ["LKL"])
    h.start()
    with out:
        got = out.read().splitlines()
    counters = dict(line.rsplit(" ", 1) for line in h.ctl.ask(drive.STATS).decode().splitlines())
    with open(fifo, "w") as f:
        f.write("\n")
    h.ctl.events.append(h.ctl.next_event(drive.EV_EXIT))
    return h.wait(), got, counters


def interrupted():
    want = subprocess.run([program], stdout=subprocess.PIPE, timeout=60, check=True, text=True).stdout.splitlines()
    for lacks in "", SEND, SEND + "," + KILLABLE:
        what = "without " + (lacks or "nothing")
        with tempfile.TemporaryDirectory(prefix="lklhost-test-") as d:
            fifo = os.path.join(d, "fifo")
            os.mkfifo(fifo)
            status, got, counters = under(lacks, fifo)
        ok(status == 0, "%s: ends with status 0" % what)
        # Only without both can a signal arrive between the two steps.
        left = int(counters["calls.left"])
        ok((left > 100) == (KILLABLE in lacks), "%s: signals left %d descriptors" % (what, left))
        unused = [int(line.rsplit(" ", 1)[1]) for line in got if UNUSED.match(line)]
        ok(len(unused) == 6 and sum(unused) * 20 <= left, "%s: later calls got all but %s of them" % (what, unused))
        same([UNUSED.sub("", line) for line in got], [UNUSED.sub("", line) for line in want],
             "%s: %d lines as on the host's own sockets" % (what, len(want)))


if __name__ == "__main__":
    sys.path.insert(0, drive.HERE)
    program = os.path.abspath(sys.argv[1])
    test_conform.alone()
    run([interrupted], 300)
