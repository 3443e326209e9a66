#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Makes the same random socket calls natively and under lklhost, and compares their results.

    test_calls.py FIRST LAST [SECONDS]

calls.py makes the calls, by the seeds FIRST to LAST, or as many of them as fit into the time. A
difference is shown as the shortest sequence of calls that has it. Permitted differences are listed
here with their reasons.
"""
import os
import re
import subprocess
import sys
import tempfile
import time

import drive
import test_conform
from tap import ok, run

CALLS = os.path.join(drive.HERE, "calls.py")
PYTHON = "/usr/bin/python3"
STEPS = 100
TRIES = 3       # on a busy machine, an event may come late

SENDS = r"(send|sendmsg|sendto|write|writev)\(.*"
RECEIVES = r"(recv|recvfrom|recvmsg|read|readv)\(.*"
# Call, result natively, result on a stack (regular expressions); whether the socket is in the same
# state afterwards, so that the rest of the sequence can be compared; a line that must come before,
# if any. lklhost does not see calls without an address: a unix socket answers them.
PERMITTED = [
    # A unix stream socket without a peer, or one whose connect() has failed.
    (". tcp " + RECEIVES, "ENOTCONN", "EINVAL|0.*", True),
    (". tcp poll.*", r"\['0x1[04]'\]", r"\['0x((20)?1[15]|2010)'\]", False),
    (". tcp " + SENDS, "EPIPE|ECONNRESET|ECONNREFUSED", "EPIPE|ECONNRESET|ENOTCONN", False),
    (". tcp " + RECEIVES, "ECONNREFUSED", "ECONNRESET|ENOTCONN", False),
    (". tcp " + RECEIVES, "ECONNRESET|EPIPE", "EINVAL|ENOTCONN", False),
    # A datagram socket has no error while data are unread.
    (". udp e?poll.*", r"\['0x[9cd]'\]", r"\['0x[145]'\]", False),
    (". udp " + RECEIVES, "ECONNREFUSED", r"\d.*", False),
    # Disconnecting a datagram socket ends the effect of shutdown().
    (". udp " + SENDS, "EPIPE", r"\d+", False),
    # A unix datagram socket without a peer, and its only error, ECONNRESET.
    (". udp " + SENDS, "EDESTADDRREQ", "ENOTCONN|EPIPE", False),
    (". udp (recv|read|send|write|sendmsg).*", "ECONNREFUSED", "ECONNRESET", False),
    # The answer to a datagram arrives after the next call, and the datagram itself after the
    # receiver's connect().
    (". udp " + SENDS, "ECONNREFUSED", r"\d+", False),
    (". udp " + RECEIVES, "EAGAIN", "ECONNREFUSED|ECONNRESET", False),
    # lklhost looks at shutdown() and at earlier errors first.
    (". udp " + SENDS, "ENETUNREACH", "EPIPE", True),
    (". udp " + SENDS, "ENETUNREACH", "ECONNREFUSED", False),
    # After the program's own SHUT_WR, a reset looks like the end of the peer's data.
    (". tcp " + RECEIVES, "ECONNRESET", "0.*", False, r".* . .tcp shutdown\([13]\) = 0"),
    # The reset that answers data for a closed socket arrives after the next call, or before it.
    (". tcp " + SENDS, "EPIPE|ECONNRESET", r"\d+", False),
    (". tcp shutdown.*", "EINVAL|ENOTCONN|0", "EINVAL|ENOTCONN|0", False),
    (r". tcp getsockopt\(SO_ERROR\)", r"\d+", "0", False),
    # A plain send does not clear the error that it returns.
    (r". tcp getsockopt\(SO_ERROR\)", "0", "32", False),
    # Without POLLERR: a disconnected socket, and a reset after the end of the peer's data.
    (". tcp e?poll.*", r"\['0x(20)?1[89cd]'\]", r"\['0x(20)?1[0145]'\]", False),
    # connect() with AF_UNSPEC on a listener does not end its poll().
    (". tcp poll.*for ever.", ".*", "waits", False),
]
MPTCP = [
    # Programs see TCP.
    (". tcp getsockopt.1, 38.*", "06010000|0601|06|0000", ".*", True),
    (". tcp poll.*", r"\['0x1[8c]'\]", r"\['0x201[89cd]'\]", True),
    (". tcp " + RECEIVES, "0|0 from.*|0, .*", "ECONNRESET", False),
    # The reset of an MPTCP connection arrives later, or earlier.
    (". tcp bind.*", "EINVAL", "0", False),
    (". tcp e?poll.*", r"\['0x4'\]", r"\['0x14'\]", False),
    # The worker that ends an MPTCP connection may run later natively on a busy machine.
    (". tcp e?poll.*", r"\['0x4'\]", r"\['0x2005'\]", False),
    # lklhost resets a connection whose closed end receives data, as TCP does.
    (". tcp e?poll.*", r"\['0x200[05]'\]", r"\['0x201[05]'\]", False),
    (". tcp " + SENDS, r"\d+", "EPIPE|ECONNRESET", False),
    (". tcp getpeername.*", ".*", "ENOTCONN", False),
    # After a failed connect(), an MPTCP socket keeps its address, of which calls.py makes the next.
    (". tcp connect.*any.", "EINPROGRESS", "EINPROGRESS", False),
    # lklhost asks the first subflow.
    (". tcp getsockopt.*", "ENOTSUP", ".*", True),
    (". tcp ioctl.0x8905.", "ENOTTY", "0", True),
    (". tcp ioctl.0x541b.", "1", "0", True),
    (". tcp setsockopt.*", "ENOTSUP|ENOPROTOOPT", "0", True),
    (". tcp (recv|recvfrom|read)\(0.*", "0.*", "ENOTCONN|EINVAL|EAGAIN", True),
]


def lines(text):
    return [l for l in text.splitlines() if l]


class Difference:
    """the first different line of a seed"""

    def __init__(self, native, stack):
        self.native, self.stack = native, stack

    def __str__(self):
        return "# natively: %s\n# on stack: %s" % (self.native, self.stack)

    def kind(self):
        """the call and its two results, without the numbers of the step and the slot"""
        call, _, want = re.sub(r"^\d+ \w (since \d+: )?(\d )?", "", self.native).rpartition(" = ")
        since = " since " in self.native and " since " not in self.stack
        return re.sub("^[46]", ". ", call), want, "waits" if since else self.stack.rpartition(" = ")[2]

    def permitted(self, table, before=()):
        """the entry of the table, or None"""
        for entry in table:
            if all(re.fullmatch(x, y) for x, y in zip(entry, self.kind())) and \
                    all(any(re.fullmatch(x, y) for y in before) for x in entry[4:]):
                return entry
        return None


def first(native, stack, table):
    """the first difference that is not permitted, or None"""
    for i, (a, b) in enumerate(zip(native, stack + [""] * len(native))):
        if a != b:
            entry = Difference(a, b).permitted(table, native[:i])
            if not entry:
                return Difference(a, b)
            if not entry[3]:
                break
    return None


class Seed:
    """the random calls of one seed"""

    def __init__(self, seed, mptcp, permitted):
        self.seed, self.steps, self.mptcp, self.permitted = seed, STEPS, mptcp, permitted

    def command(self, left_out, *more):
        return [PYTHON, CALLS, str(self.seed), str(self.steps), *more, "--leave-out", ",".join(map(str, left_out))]

    def natively(self, left_out, *more):
        more += ("--mptcp",) if self.mptcp else ()
        r = subprocess.run(self.command(left_out, *more), stdout=subprocess.PIPE, text=True, check=True, timeout=drive.LIMIT)
        return lines(r.stdout)

    def compare(self, left_out=()):
        """the difference, or None; results that vary natively are no difference"""
        native = self.natively(left_out)
        with tempfile.NamedTemporaryFile("w", prefix="lklhost-test-") as f:
            f.write("\n".join(native) + "\n")
            f.flush()
            again = self.natively(left_out, "--expect", f.name)
            if again != native:
                return None
            status, out = test_conform.under("auto", os.environ["LKL"], mptcp=self.mptcp, program=PYTHON,
                                             arguments=self.command(left_out, "--expect", f.name)[1:])
        if status:
            return Difference("status 0", "status %d after %s" % (status, (lines(out) or ["nothing"])[-1]))
        return first(native, lines(out), self.permitted)

    def shortest(self, d):
        """leaves out as many steps as possible, so that the same kind of difference remains"""
        number = re.match(r"\d+", d.native)
        left = list(range(int(number[0]) + 1)) if number else list(range(self.steps))
        self.steps = len(left)
        size = len(left) // 2
        while size:
            at = 0
            while at < len(left):
                without = left[:at] + left[at + size:]
                now = self.compare(sorted(set(range(self.steps)) - set(without)))
                if now and now.kind() == d.kind():
                    left = without
                else:
                    at += size
            size //= 2
        return sorted(set(range(self.steps)) - set(left))


def seeds(name, mptcp, permitted):
    def it():
        first, last = map(int, sys.argv[1:3])
        end = time.monotonic() + float((sys.argv[3:] or ["3000"])[0]) / 2
        for seed in range(first, last + 1):
            if time.monotonic() > end:
                break
            s = Seed(seed, mptcp, permitted)
            d = None
            for _ in range(TRIES):
                d = s.compare()
                if not d:
                    break
            if not ok(not d, "seed %d, %s" % (seed, name)):
                print(d)
                for line in s.natively(s.shortest(d)):
                    print("#     " + line, flush=True)
    it.__name__ = name
    return it


if __name__ == "__main__":
    sys.path.insert(0, drive.HERE)
    test_conform.alone()
    run([seeds("TCP", False, PERMITTED), seeds("MPTCP", True, PERMITTED + MPTCP)], limit=3600)
