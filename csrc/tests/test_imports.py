#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Checks the imports of a library for devices.

    test_imports.py ROOT LIBRARY...

The library must name no other library and no symbol version. Each undefined function must
exist in both glibc and musl, as installed under ROOT. No memory may be writable and
executable, text relocations are not allowed, and pages of 16 KiB must work.
"""
import glob
import subprocess
import sys

from tap import ok, run

# Only in one of the two: weak symbols that the library checks before it calls them.
EITHER = {"__register_atfork", "pthread_atfork", "gnu_get_libc_version"}
# Weak symbols from the compiler, unused here.
COMPILER = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__", "__cxa_finalize"}
# Weak as well: only liblklpreload-bionic.so has it (engine/preload/libc/bionic.c).
OURS = {"lkl_host_sigaction"}
WEAK = EITHER | COMPILER | OURS
PAGE = 16384


def tool(*cmd):
    return subprocess.run(cmd, stdout=subprocess.PIPE, check=True, text=True).stdout


def symbols(path, which):
    return [line.split() for line in tool("nm", "-D", which, path).splitlines()]


def names(path):
    """return the symbols that a C library defines"""
    return {s[-1].split("@")[0] for s in symbols(path, "--defined-only")}


def library(path):
    name = path.rsplit("/", 1)[-1]
    dyn = tool("readelf", "-dW", path)
    ok("(NEEDED)" not in dyn, "%s: names no library" % name)
    ok("TEXTREL" not in dyn, "%s: no text relocations" % name)
    missing = symbols(path, "--undefined-only")
    versioned = [s[-1] for s in missing if "@" in s[-1]]
    ok(not versioned, "%s: names no version of a symbol %s" % (name, versioned))
    wanted = {s[-1].split("@")[0] for s in missing if s[-2] == "U"}
    weak = {s[-1].split("@")[0] for s in missing if s[-2] != "U"}
    ok(missing, "%s: %d functions of the C library" % (name, len(missing)))
    for libc, has in libcs.items():
        lacks = sorted(wanted - has)
        ok(not lacks, "%s: all of them are in %s %s" % (name, libc, lacks))
    ok(weak <= WEAK, "%s: weak ones are known %s" % (name, sorted(weak - WEAK)))
    segments(path, name)


def segments(path, name):
    """check the flags and the alignment of the segments"""
    loads = [line.split() for line in tool("readelf", "-lW", path).splitlines() if line.strip().startswith(("LOAD", "GNU_STACK"))]
    flags = ["".join(s[6:-1]) for s in loads]
    ok(flags and not any("W" in f and "E" in f for f in flags), "%s: no segment is writable and executable %s" % (name, flags))
    aligned = [int(s[-1], 16) for s in loads if s[0] == "LOAD"]
    ok(aligned and min(aligned) >= PAGE, "%s: pages of 16 KiB %s" % (name, aligned))


def libraries():
    for path in sys.argv[2:]:
        library(path)


if __name__ == "__main__":
    root = sys.argv[1]
    libcs = {"glibc": names(glob.glob(root + "/lib/*/libc.so.6")[0]),
             "musl": names(glob.glob(root + "/lib/ld-musl-*.so.1")[0])}
    run([libraries])
