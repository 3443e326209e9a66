#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""conform on the host's own sockets against conform under lklhost: the same lines.

    test_conform.py CONFORM

With the back end "host", and with the stack library where LKL names it: as it
is, and with MPTCP in place of TCP. What may differ is listed here with its reason.
"""
import difflib
import os
import shutil
import subprocess
import sys
import tempfile

import drive
from tap import ok, run, skip

# A unix stream socket that listens says EINVAL to recv where TCP says ENOTCONN;
# recv is not notified.
ALWAYS = {("recv on listener: ENOTCONN", "recv on listener: EINVAL")}
# What MPTCP sockets of Linux 6.12 do not offer (net/mptcp/sockopt.c).
MPTCP = {("TCP_USER_TIMEOUT: 0", "TCP_USER_TIMEOUT: ENOPROTOOPT"),
         ("  back: 5000 (4)", "  back: EOPNOTSUPP"),
         ("IP_TTL: 0", "IP_TTL: EOPNOTSUPP"),
         ("  back: 44 (4)", "  back: EOPNOTSUPP"),
         ("SO_ERROR (read-only): ENOPROTOOPT", "SO_ERROR (read-only): EOPNOTSUPP")}
LIMIT = 60


def natively():
    return subprocess.run([conform], stdout=subprocess.PIPE, timeout=LIMIT, check=True, text=True).stdout


def under(abi, lib, mptcp=False, uid=None, program=None, binary=None):
    r, w = os.pipe()
    saved = os.dup(1)
    os.dup2(w, 1)
    try:
        h = drive.Host([program or conform], abi=abi, lib=lib, uid=uid, binary=binary)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(w)
    out = b""
    h.start(mptcp=mptcp)
    while True:
        data = os.read(r, 65536)
        if not data:
            break
        out += data
    os.close(r)
    return h.wait(), out.decode()


def compare(name, allowed, *args, **kw):
    want = natively().splitlines()
    status, got = under(*args, **kw)
    got = got.splitlines()
    ok(status == 0, "%s: conform ends with status 0" % name)
    bad = []
    if len(want) == len(got):
        bad = [(a, b) for a, b in zip(want, got) if a != b and (a, b) not in allowed]
    else:
        bad = list(difflib.unified_diff(want, got, lineterm="", n=0))
    if not ok(not bad, "%s: %d lines as on the host's own sockets" % (name, len(want))):
        for b in bad:
            print("#", b)


def host():
    compare("back end host", ALWAYS, "host", None)


def unprivileged():
    if os.getuid():
        return skip("an ordinary user", "is one already")
    # The tree may lie where nobody else can go.
    with tempfile.TemporaryDirectory(prefix="lklhost-test-") as d:
        os.chmod(d, 0o755)
        program, binary = (shutil.copy(f, d) for f in (conform, os.environ["LKLHOST"]))
        compare("back end host, an ordinary user", ALWAYS, "host", None, uid=65534,
                program=program, binary=binary)


def library():
    lib = os.environ.get("LKL")
    if not lib or not os.path.exists(lib):
        return skip("stack library", "LKL names none")
    compare("stack library", ALWAYS, "auto", lib)
    compare("stack library, MPTCP", ALWAYS | MPTCP, "auto", lib, mptcp=True)


if __name__ == "__main__":
    conform = os.path.abspath(sys.argv[1])
    sys.path.insert(0, drive.HERE)
    run([host, unprivileged, library])
