#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Checks which folders of csrc may include and call each other.

    rooms.py OBJECTS PIC [FILE.o...]

A folder of csrc is a room. ROOMS lists the rooms from the lowest to the highest. A file
may include and call files of its own room and of rooms in earlier lines of ROOMS, but
not of other rooms in the same line. From another room it may include only the headers in
OFFERS. If a lower room must call a higher one, it does so through function pointers that
the higher room sets (ctl_ops, target_ops, call_ops, conn_ops, stack_panicked, log_event).

No files may form a cycle of calls.

Only call_native() lets the host's kernel continue a caught call. Each use names a reason
that engine/call/native.h explains.

Only thread_start() starts a thread of lklhost.

The check reads includes from the #include lines, and calls from the undefined symbols of
the object files: those of lklhost below OBJECTS, those of the preload library below PIC.
The library has its own version of some functions of lower rooms
(engine/preload/link_base.c, link_out.c). A call of such a function counts as a call of
the room that declares it.
"""
import glob
import os
import re
import subprocess
import sys

ROOMS = [
    ["shared"],
    ["base"],
    ["trace"],
    ["process"],
    ["stack"],
    ["control"],
    ["view", "mirror"],
    ["engine/common"],
    ["engine/call", "engine/link", "engine/preload"],
    ["engine/carrier"],
    ["engine/dgram"],
    ["engine/stream"],
    ["engine/sock"],
    ["engine/supervise"],
    ["target", "gateway"],
    ["host"],
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
OFFERS = {  # "*": all of them
    "shared": "*",
    "base": "*",
    "trace": "trace.h",
    "process": "process.h zygote_link.h",
    "stack": "stack.h",
    "control": "control.h",
    "view": "view.h",
    "mirror": "mirror.h",
    "engine/common": "account.h loopback.h memory.h netd.h proc_text.h",
    "engine/call": "call.h msg.h native.h paged_access.h rights.h watchdog.h",
    "engine/carrier": "carrier.h conn.h dgram_conn.h foreign_sock.h hostnet.h space.h stream_conn.h",
    "engine/dgram": "dgram.h",
    "engine/stream": "stream.h",
    "engine/sock": "sock.h",
    "engine/supervise": "supervise.h",
    "engine/link": "link.h",
    "engine/preload": "",
    "target": "target.h",
    "gateway": "gateway.h",
    "host": "",
}

problems = []


def room_of(path):
    """Return the room of a file: the longest folder of its path that is a room."""
    room = os.path.dirname(path)
    while room and room not in LEVEL:
        room = os.path.dirname(room)
    return room


def allowed(frm, to):
    return frm == to or LEVEL[to] < LEVEL[frm]


def includes():
    """Check the #include lines of all files in rooms."""
    for room in LEVEL:
        for path in glob.glob(room + "/**/*.[chS]", recursive=True):
            for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', open(path).read(), re.M):
                to = room_of(name)
                if not to or not os.path.exists(name):
                    problems.append(f"{path}: includes \"{name}\", which names no room")
                elif not allowed(room, to):
                    problems.append(f"{path}: {room} may not include {name}")
                elif room != to and OFFERS[to] != "*" and os.path.basename(name) not in OFFERS[to].split():
                    problems.append(f"{path}: {name} is for {to} alone")


NATIVE = "engine/call/native.h"
CONTINUES = {  # what continues a call -> the files that may name it
    r"\bSECCOMP_USER_NOTIF_FLAG_CONTINUE\b": "backend_seccomp.c",
    r"\btrace_native\b": "backend_ptrace.c step.c trace.h",
    r"\bCALL_NATIVE\b": "backend_seccomp.c backend_ptrace.c call.c catch.h",
}


def natives():
    """Check that each call that the host's kernel executes has a reason."""
    reasons = set(re.findall(r"^\s(NATIVE_\w+),$", open(NATIVE).read(), re.M))
    explained = set(re.findall(r"^ \* @(NATIVE_\w+): \w", open(NATIVE).read(), re.M))
    used = set()
    for path in [p for room in LEVEL for p in glob.glob(room + "/**/*.[ch]", recursive=True)]:
        code = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S)
        for what, where in CONTINUES.items():
            if re.search(what, code) and os.path.basename(path) not in where.split():
                problems.append(f"{path}: only {where} may use {what[2:-2]}; use call_native()")
        for reason in re.findall(r"\bcall_native\(([^)]*)\)", code):
            if reason in reasons:
                used.add(reason)
            elif reason != "enum native_reason reason":
                problems.append(f"{path}: call_native({reason}) names no reason of {NATIVE}")
    for reason in sorted((reasons ^ explained) | (reasons - used)):
        problems.append(f"{NATIVE}: {reason} is not explained, or not used")


THREADS = "base/thread"


def threads(needed):
    """Check that thread_start() starts all threads of lklhost, so that each has a name."""
    for name, wanted in needed.items():
        if "pthread_create" in wanted and name != THREADS:
            problems.append(f"{name}.c: starts a thread itself; use thread_start()")


def symbols(objects, base):
    """Return the symbols that object files define (symbol -> file) and need (file -> symbols)."""
    defined, needed = {}, {}
    for obj in objects:
        name = os.path.relpath(obj, base)[:-2]
        needed[name] = set()
        for line in subprocess.check_output(["nm", obj], text=True).splitlines():
            kind, symbol = line.split()[-2:]
            if kind == "U":
                needed[name].add(symbol)
            elif kind in "ABDGRSTVW":
                defined[symbol] = name
    return defined, needed


def arrows(defined, needed, lower):
    """Return the calls, as file -> {file: symbol}. Definitions in @lower have priority if
    the other ones are above the caller."""
    calls = {}
    for name, wanted in needed.items():
        calls[name] = {}
        for symbol in sorted(wanted):
            to = defined.get(symbol)
            if to and not allowed(room_of(name), room_of(to)) and symbol in lower:
                to = lower[symbol]
            if to and to != name:
                calls[name].setdefault(to, symbol)
    return calls


def circles(calls):
    """The strongly connected components with more than one file (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in calls.get(v, ()):
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in sorted(calls):
        if v not in index:
            visit(v)
    return found


def main(base, pic, *objects):
    # Objects below PIC belong to the preload library, all others to lklhost.
    own = [o for o in objects if not o.startswith(pic + "/")]
    shared = [o for o in objects if o.startswith(pic + "/")]
    defined, needed = symbols(own, base)
    graphs = [arrows(defined, needed, {}), arrows(*symbols(shared, pic), defined)]
    knows = {room: set() for room in LEVEL}
    includes()
    natives()
    threads(needed)
    for calls in graphs:
        for name, to in sorted(calls.items()):
            for other, symbol in sorted(to.items()):
                if not allowed(room_of(name), room_of(other)):
                    problems.append(f"{name}.c: {room_of(name)} may not call {symbol} of {other}.c")
                knows[room_of(name)].add(room_of(other))
        for circle in circles(calls):
            problems.append(f"{len(circle)} files call each other in a circle: " + " ".join(circle))
    for room in sorted(LEVEL, key=LEVEL.get):
        print(f"# {room}: calls", " ".join(sorted(knows[room] - {room}, key=LEVEL.get)) or "nobody")
    for problem in dict.fromkeys(problems):
        print(problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
