#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Preloads the library for bionic into a program whose C library has bionic's form.

    test_bionic.py PRELOAD DIR [LIBC...]

DIR has the program and its C library (tests/bionic). LKL names the stack library. The host
has no network.

LIBC are libraries of Android systems. All their calls must be patched, and they must
contain the functions that PRELOAD and the stack library need.
"""
import os
import struct
import subprocess
import sys
import tempfile

from tap import ok, run
from test_imports import WEAK, names, segments, symbols, tool

PF_X, PT_LOAD = 1, 1
# Functions that Android 8 and earlier lack. The engine preload refuses these versions.
SINCE_ANDROID_9 = {"getentropy", "getrandom"}
LIMIT = 100


def execute_only(path, to):
    """Copy a library, and let the loader map its code without PROT_READ."""
    with open(path, "rb") as f:
        b = bytearray(f.read())
    at, = struct.unpack_from("<Q", b, 32)
    size, n = struct.unpack_from("<HH", b, 54)
    for i in range(at, at + n * size, size):
        kind, flags = struct.unpack_from("<II", b, i)
        if kind == PT_LOAD and flags & PF_X:
            struct.pack_into("<I", b, i + 4, PF_X)
    with open(to, "wb") as f:
        f.write(b)


def tap(cmd, env):
    """run a program that prints TAP"""
    r = subprocess.run(env + cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT, text=True)
    got = r.stdout.splitlines()
    for line in got:
        if " - " in line:
            ok(line.startswith("ok "), line.split(" - ", 1)[1])
    if not ok(r.returncode == 0 and got and got[-1] == "1..%d" % (len(got) - 1), "ends with status 0 and its plan"):
        print("#", r.returncode, "\n# ".join((r.stdout + r.stderr).splitlines()[:20]))


def patcher():
    """what is patched in the code of our libc.so and of real ones"""
    tap([os.path.join(folder, "patch_file"), os.path.join(folder, "libc.so"), *libcs], [])


def program():
    """run a program; its libc.so has execute-only code, and its environment comes late"""
    with tempfile.TemporaryDirectory() as own:
        execute_only(os.path.join(folder, "libc.so"), os.path.join(own, "libc.so"))
        # The C library comes first, so glibc's loader would call its constructor last,
        # if our library did not name it.
        tap([os.path.join(folder, "program")],
            ["unshare", "-n", "env", "LD_LIBRARY_PATH=%s:%s" % (own, folder), "LKLRUN_PRELOAD_SELFTEST=" + lkl,
             "LD_PRELOAD=%s/libbase.so:%s/libc.so:%s:%s" % (folder, own, preload, lkl)])


def needed():
    """what the library names, which decides the order of constructors"""
    dyn = tool("readelf", "-dW", preload)
    got = [line.split("[")[1].rstrip("]") for line in dyn.splitlines() if "(NEEDED)" in line]
    ok(got == ["libc.so", "libdl.so"], "names libc.so and libdl.so: %s" % got)
    ok("TEXTREL" not in dyn, "no text relocations")
    segments(preload, os.path.basename(preload))
    for lib in preload, lkl:
        bad = {s[-1] for s in symbols(lib, "--undefined-only")} & {"sysconf"}
        ok(not bad, "%s: nothing that bionic numbers differently %s" % (os.path.basename(lib), bad))


def imports():
    """the functions of real libraries of Android"""
    ours = names(preload)
    for path in libcs:
        has = names(path) | ours
        if "LIBC_P" not in tool("readelf", "-VW", path).split():
            has |= SINCE_ANDROID_9
        for lib in preload, lkl:
            # dlopen() and others are in libdl.so, which has had them in all versions.
            wanted = {s[-1] for s in symbols(lib, "--undefined-only") if s[-2] == "U" and not s[-1].startswith("dl")}
            ok(not wanted - has, "%s: all of %s %s" % (path, os.path.basename(lib), sorted(wanted - has)))
            weak = {s[-1] for s in symbols(lib, "--undefined-only") if s[-2] != "U"}
            ok(weak <= WEAK, "%s: weak ones are known %s" % (os.path.basename(lib), sorted(weak - WEAK)))


if __name__ == "__main__":
    preload, folder, lkl = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), os.environ["LKL"]
    libcs = sys.argv[3:]
    run([needed, imports, patcher, program], 2 * LIMIT)
