#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests lklhost as the parent of a program that contains the kernel: it forwards
requests of clients to the program, and the answers back.

    test_preload_ctl.py PRELOAD

LKL names the library to boot. The test does not need root.
"""
import os
import signal
import socket
import struct
import sys
import time

import drive
from drive import IN, OUT, Host
from tap import ok, run, same
from test_ctl import broken_frames, gone, status_of, within

EXEC = 14
SLEEP = ["sleep", "100"]


def host(argv=None):
    return Host(argv or SLEEP, abi="native", lib=os.environ["LKL"], extra=["--preload", preload])


def receiver(c, port=7777):
    """make a bound datagram socket in the stack"""
    fd, _ = c.call("socket", [2, 2, 0])
    addr = struct.pack("<HH4s8x", socket.AF_INET, socket.htons(port), b"\0" * 4)
    same(c.call("bind", [fd, 0, 16], [(1, IN, 0, addr)])[0], 0, "a socket of a client's is bound to %d" % port)
    return fd


def receive(c, fd, timeout):
    return c.call_send("recvfrom", [fd, 0, 100], [(1, OUT, 0, 100)], timeout=timeout, events=1)


def order():
    """lklhost refuses requests that are too early, too late, or unsupported by this engine"""
    h = host()
    c = h.ctl
    same(c.hello()["state"], 0, "before BOOT")
    same(status_of(c.ask, drive.GO, struct.pack("<IIII", 0, 0, 0, 0)), -11, "GO before BOOT: EAGAIN")
    same(status_of(c.call, "socket", [2, 2, 0]), -11, "a call before BOOT: EAGAIN")
    same(status_of(c.ask, drive.LINK_ADD, struct.pack("<II6sH", 2, 0, b"\0" * 6, 0)), -9,
         "LINK_ADD without a descriptor: EBADF")
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    h.start(frames=[(a.fileno(), "10.0.0.1/24")])
    same(c.hello()["state"], 2, "it runs")
    same([x for x in c.read_file("/proc/net/dev").split() if x[-1] == ":"], ["lo:", "eth0:"], "with a device")
    for kind, body in ((drive.BOOT, struct.pack("<QII", 0, 0, 0)), (drive.GO, struct.pack("<IIII", 0, 0, 0, 0))):
        same(status_of(c.ask, kind, body), -114, "%d once more: EALREADY" % kind)
    same(status_of(c.ask, EXEC, struct.pack("<IIII", 1, 0, 0, 8) + b"/\0true\0"), -95,
         "EXEC: EOPNOTSUPP")
    same(status_of(c.ask, drive.CANCEL, struct.pack("<I", 4711)), -2, "CANCEL of nothing: ENOENT")
    ok(b"sockets.stack 0" in c.ask(drive.STATS), "STATS are the program's")
    ok(b"Linux version" in c.ask(drive.LOG), "LOG is its kernel's")
    same(h.stop(), 9, "STOP")
    same(h.host_status, 0, "lklhost ends with 0")
    a.close()
    b.close()


def waiting():
    """a call that waits delays no other client, and ends at its timeout or with its client"""
    h = host()
    h.start()
    c = h.ctl
    fd = receiver(c)
    begun = time.monotonic()
    late = receive(c, fd, 300)
    same(c.call("getppid", [])[0] >= 0, True, "others are answered meanwhile")
    same(c.call_wait(late)[0], -11, "its time over: EAGAIN")
    ok(0.25 < time.monotonic() - begun < 20, "not sooner")
    waits = receive(c, fd, 60000)
    c.ask(drive.CANCEL, struct.pack("<I", waits))
    same(c.call_wait(waits)[0], -4, "cancelled: EINTR")
    waits = receive(c, fd, 60000)
    d = h.attach()
    d.hello()
    out, _ = d.call("socket", [2, 2, 0])
    to = struct.pack("<HH4s8x", socket.AF_INET, socket.htons(7777), bytes([127, 0, 0, 1]))
    same(d.call("sendto", [out, 0, 5, 0, 0, 16], [(1, IN, 0, b"hello"), (4, IN, 0, to)])[0], 5, "another client sends")
    n, data = c.call_wait(waits)
    same((n, data[:5]), (5, b"hello"), "the one that waits has it")
    again = receiver(d, 7778)
    receive(d, again, 60000)
    d.sock.close()
    fd2, _ = c.call("socket", [2, 2, 0])
    addr = struct.pack("<HH4s8x", socket.AF_INET, socket.htons(7778), b"\0" * 4)
    ok(within(20, lambda: c.call("bind", [fd2, 0, 16], [(1, IN, 0, addr)])[0] == 0),
       "what a client had open and waited for is gone with it")
    h.stop()


def stopped():
    """a stopped program delays only clients with requests to its kernel"""
    h = host()
    h.start()
    c, d = h.ctl, h.attach()
    drive.pause(h.info["target"])
    call = c.call_send("getppid", [])
    same(d.hello()["state"], 2, "HELLO")
    ok(b"Linux version" in d.ask(drive.LOG), "LOG")
    os.kill(h.info["target"], signal.SIGCONT)
    same(c.call_wait(call)[0] >= 0, True, "continued, it answers")
    drive.pause(h.info["target"])
    call = c.call_send("getppid", [])
    os.kill(h.info["target"], signal.SIGKILL)
    same(status_of(c.call_wait, call), -108, "killed, nobody waits for it: ESHUTDOWN")
    same(h.wait(), 9, "and the run ends")


def ends():
    """the launcher, lklhost, or the end of the link in the program goes away"""
    h = host()
    h.start()
    h.ctl.sock.close()
    same(gone(h), 0, "the launcher goes: lklhost ends")
    ok(not os.path.exists("/proc/%d" % h.info["target"]), "and the program with it")
    h = host()
    h.start()
    os.kill(h.pid, 9)
    os.waitpid(h.pid, 0)
    ok(within(20, lambda: not os.path.exists("/proc/%d" % h.info["target"]) or
              " Z " in open("/proc/%d/stat" % h.info["target"]).read()), "lklhost goes: the program does")
    h.clean()
    h = host(["/bin/sh", "-c", "exec sleep 100"])
    h.start()
    ok("executed another" in h.ctl.next_event(drive.EV_WARN)[3], "a program that becomes another is told of")
    same(status_of(h.ctl.call, "getppid", []), -108, "its kernel is gone: ESHUTDOWN")
    same(h.ctl.ask(drive.STATS), b"", "and so are its counters")
    h.stop()
    h = host(["/bin/sh", "-c", "exit 7"])
    h.start()
    same(h.wait(), 7 << 8, "an exit at once is heard, after GO was answered")


# Replaces the library: reports that it cannot start, but does not send the reason.
HALF = """
import os, struct, sys, time
fd = int(os.environ["LKLRUN_PRELOAD_LINK"].split(":")[0])
os.write(fd, struct.pack("<IHHIi", 16 + 400, 0x4001, 0, 0, -1))
os.write(1, b"said\\n")
time.sleep(1000)
"""


def finding17_half():
    """a target that sends half of its first frame does not keep lklhost alive after lklrun ends"""
    with open("/proc/self/maps") as f:
        other = [x.split()[-1] for x in f if "libc.so" in x or "ld-musl" in x][0]
    r, w = os.pipe()
    os.set_inheritable(w, True)
    h = Host([sys.executable, "-c", "import os\nos.dup2(%d, 1)\n" % w + HALF], abi="native", lib=os.environ["LKL"],
             extra=["--preload", other])
    os.close(w)
    same(os.read(r, 5), b"said\n", "the target says half of its first word")
    h.ctl.sock.close()
    ok(within(20, lambda: os.waitpid(h.pid, os.WNOHANG)[0] == h.pid), "lklhost ends with lklrun's connection")
    os.close(r)


def fuzz():
    broken_frames(host())


if __name__ == "__main__":
    preload = os.path.abspath(sys.argv[1])
    run([order, waiting, stopped, ends, finding17_half, fuzz])
