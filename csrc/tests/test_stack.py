#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests lklhost with the stack library that LKL names: two stacks on one wire, a panic,
the end of a run. Root is not required, because the wire is a socket pair."""
import os
import signal
import socket
import struct
import sys
import time

import drive
from drive import IN, OUT, Host, Refused
from tap import ok, run, same, skip

LIB = os.environ.get("LKL", "")
PY = "/usr/bin/python3"
RAWIP = 4   # CTL_LINKF_RAWIP

ECHO = """
import socket, sys
s = socket.create_server(("", 7)); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("", 7))
import threading
def udp():
    while True:
        d, a = u.recvfrom(65536); u.sendto(d, a)
threading.Thread(target=udp, daemon=True).start()
def one(c):
    while d := c.recv(65536): c.sendall(d)
    c.close()
while True:
    c, a = s.accept(); threading.Thread(target=one, args=(c,), daemon=True).start()
"""
ASK = """
import socket, hashlib, os, sys, threading, time
end = time.time() + 10
while True:
    try: c = socket.create_connection(("10.0.9.1", 7), 2); break
    except OSError:
        if time.time() > end: raise
        time.sleep(.02)
c.settimeout(20)
data = os.urandom(1 << 20) * 20
threading.Thread(target=lambda: (c.sendall(data), c.shutdown(socket.SHUT_WR)), daemon=True).start()
got = b""
while d := c.recv(1 << 17): got += d
assert hashlib.sha1(got).digest() == hashlib.sha1(data).digest(), len(got)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(5)
u.sendto(b"x" * 5000, ("10.0.9.1", 7)); assert len(u.recv(65536)) == 5000
sys.exit(42)
"""


def rawip():
    """the same without link layer, which a foreign library does not support"""
    if "newabi" in LIB:
        h = Host(["true"], abi="auto", lib=LIB)
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        h.ctl.hello()
        for kind, flags in ((2, RAWIP), (4, 0), (5, 0)):
            try:
                h.ctl.ask(drive.LINK_ADD, struct.pack("<II6sH", kind, flags, b"\0" * 6, 0), a.fileno())
                ok(False, "kind %d, flags %d was taken" % (kind, flags))
            except Refused as e:
                same(e.errno, 95, "kind %d, flags %d: EOPNOTSUPP" % (kind, flags))
        h.ctl.ask(drive.STOP, struct.pack("<II", 9, 0))
        os.waitpid(h.pid, 0)
        h.clean()
        return
    wire(RAWIP)


def wire(flags=0):
    """two stacks, a socket pair between them"""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    srv = Host([PY, "-c", ECHO], abi="auto", lib=LIB)
    srv.start(frames=[(a.fileno(), "10.0.9.1/24")], link_flags=flags)
    cli = Host([PY, "-c", ASK], abi="auto", lib=LIB)
    cli.start(frames=[(b.fileno(), "10.0.9.2/24")], mptcp=True, link_flags=flags)
    same(cli.ctl.read_file("/sys/class/net/eth0/type").strip(), "65534" if flags else "1", "kind of device")
    a.close()
    b.close()
    ok(srv.release[:1].isdigit(), "BOOT says the release: %s" % srv.release)
    same(os.waitstatus_to_exitcode(cli.wait()), 42, "20 MB and a big datagram to another stack and back")
    same(cli.host_status, 0, "the client's lklhost ends with 0")
    same(srv.stop(), 9, "the server is stopped")
    same(srv.host_status, 0, "its lklhost ends with 0")


def drained():
    """bytes that a target writes right before it ends arrive"""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    srv = Host([PY, "-c", "import socket,hashlib\ns=socket.create_server(('',7)); c,_=s.accept(); h=b''\n"
                "while d:=c.recv(65536): h+=d\nimport sys; sys.exit(len(h)>>20)"], abi="auto", lib=LIB)
    srv.start(frames=[(a.fileno(), "10.0.9.1/24")])
    cli = Host([PY, "-c", "import socket,time,os\nend=time.time()+10\nwhile True:\n try: c=socket.create_connection(('10.0.9.1',7),2); break\n"
                " except OSError: time.sleep(.02); assert time.time()<end\nc.settimeout(None); c.sendall(b'x'*(8<<20)); os._exit(0)"], abi="auto", lib=LIB)
    cli.start(frames=[(b.fileno(), "10.0.9.2/24")])
    same(cli.wait(), 0, "a client that sends 8 MB and ends at once")
    same(os.waitstatus_to_exitcode(srv.wait()), 8, "all of it arrives")


def panic():
    h = Host(["sleep", "100"], abi="auto", lib=LIB)
    h.start()
    c = h.attach()
    c.hello()
    fd, _ = c.call("socket", [2, 2, 0])
    waiting = c.call_send("recvfrom", [fd, 0, 10], [(1, OUT, 0, 10)], timeout=30000, events=1)
    file, _ = c.call("open", [0, os.O_WRONLY], [(0, IN, 0, b"/proc/sysrq-trigger\0")])
    if file < 0:
        h.stop()
        return skip("panic", "this library has no /proc/sysrq-trigger")
    t = time.monotonic()
    try:
        c.call("write", [file, 0, 1], [(1, IN, 0, b"c")])
        status = 0
    except Refused as e:
        status = -e.errno
    same(status, -5, "the call that panics the kernel is answered: EIO")
    same(c.call_wait(waiting)[0], -5, "and the one that waits")
    e = h.ctl.next_event(drive.EV_PANIC)
    ok("panic" in e[3], "the event says: %s" % e[3])
    same(h.ctl.next_event(drive.EV_EXIT)[2], 9, "the target is killed")
    ok(time.monotonic() - t < 5, "in time")
    same(h.attach().hello()["state"], 4, "HELLO: state PANICKED")
    ok(b"Kernel panic" in h.ctl.ask(drive.LOG), "LOG has the kernel's last words")
    ok(b"sockets.stack" in h.ctl.ask(drive.STATS), "STATS is answered")
    try:
        h.ctl.call("getppid", [])
        status = 0
    except Refused as e:
        status = -e.errno
    same(status, -5, "SYSCALL: EIO")
    h.ctl.ask(drive.STOP, struct.pack("<II", 9, 0))
    _, st = os.waitpid(h.pid, 0)
    same(st, 0, "STOP ends it")
    h.clean()


def busy_panic():
    """a panic while the target's sockets are busy and its calls wait"""
    prog = ("import socket,threading,time\ns=socket.create_server(('127.0.0.1',0))\n"
            "def w():\n while True:\n  c=socket.create_connection(s.getsockname()); c.sendall(b'x'*100000); c.close()\n"
            "def r():\n while True:\n  c,_=s.accept()\n  while c.recv(65536): pass\n"
            "for f in (w,r,w,r): threading.Thread(target=f,daemon=True).start()\n"
            "l=socket.create_server(('127.0.0.1',0)); l.accept()")
    for i in range(3):
        h = Host([PY, "-c", prog], abi="auto", lib=LIB)
        h.start()
        time.sleep(0.2 + i * 0.05)
        try:
            h.ctl.write_file("/proc/sysrq-trigger", "c")
        except (Refused, OSError) as e:
            if e.errno == 2:
                h.stop()
                return skip("panic with traffic", "no /proc/sysrq-trigger")
        h.ctl.next_event(drive.EV_EXIT)
        h.ctl.sock.close()
        _, st = os.waitpid(h.pid, 0)
        same(st, 0, "panic with traffic: the launcher goes, lklhost ends")
        h.clean()


VIEW = """
import os, sys
def dev(path): return [l.split(":")[0].strip() for l in open(path).readlines()[2:]]
assert sorted(dev("/proc/net/dev")) == ["eth0", "lo"], dev("/proc/net/dev")
devices = [d for d in os.listdir("/sys/class/net") if d != "bonding_masters"]  # a file of the driver
assert sorted(devices) == ["eth0", "lo"], devices
assert open("/sys/class/net/eth0/mtu").read() == "1500\\n"
mem = "/proc/sys/net/ipv4/tcp_rmem"
open(mem, "w").write("4096 54321 99999")
assert open(mem).read().split() == ["4096", "54321", "99999"]
try: os.write(os.open(mem, os.O_WRONLY), b"many"); sys.exit("a bad value was taken")
except OSError as e: assert e.errno == 22, e
try: open("/proc/net/none"); sys.exit("a file that is not there was opened")
except OSError as e: assert e.errno == 2, e
whole = open("/proc/net/snmp").read()
fd = os.open("/proc/net/snmp", os.O_RDONLY)
assert b"".join(iter(lambda: os.read(fd, 7), b"")).decode().split()[:4] == whole.split()[:4]
sys.exit(43)
"""


def view():
    """the target sees the stack's files in place of the host's"""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    h = Host([PY, "-c", VIEW], abi="auto", lib=LIB)
    h.start(frames=[(a.fileno(), "10.0.9.1/24")])
    same(os.waitstatus_to_exitcode(h.wait()), 43, "the target reads and sets what is the stack's")
    a.close()
    b.close()


SEND = """
import socket, time
s = socket.create_server(("", 7))
c, _ = s.accept()
c.sendall(b"x" * (1 << 20))
c.close()
time.sleep(60)
"""
SLOW = """
import socket, sys, time
end = time.time() + 10
while True:
    c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); c.settimeout(20)
    try: c.connect(("10.0.9.1", 7)); break
    except OSError:
        if time.time() > end: raise
        time.sleep(.02)
n = 0
while d := c.recv(1 << 16):
    n += len(d)
    time.sleep(.02) # what is sent again overlaps what was received
sys.exit(44 if n == 1 << 20 else "%d bytes" % n)
"""


def fallback():
    """MPTCP that fell back to TCP loses no data when segments arrive twice"""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    srv = Host([PY, "-c", SEND], abi="auto", lib=LIB)
    srv.start(frames=[(a.fileno(), "10.0.9.1/24")])
    cli = Host([PY, "-c", SLOW], abi="auto", lib=LIB)
    cli.start(frames=[(b.fileno(), "10.0.9.2/24")], mptcp=True)
    a.close()
    b.close()
    same(os.waitstatus_to_exitcode(cli.wait()), 44, "1 MB by TCP into a small buffer, slowly")
    srv.stop()


def turns():
    """the frames that wait do not keep the loop from its other work: a turn reads one burst of them (256 KiB)"""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        b.setsockopt(socket.SOL_SOCKET, 32, 64 << 20)   # SO_SNDBUFFORCE
    except PermissionError:
        return skip("turns", "only root may queue 12 MB")
    h = Host(["sleep", "100"], abi="auto", lib=LIB)
    h.start(frames=[(a.fileno(), "10.0.9.1/24")])
    mac = b"\2\0\0\0\0\1"
    junk = b"\xff" * 6 + mac + b"\x88\xb5" + b"x" * 1500
    ask = b"\xff" * 6 + mac + bytes.fromhex("08060001080006040001") + mac + \
        socket.inet_aton("10.0.9.2") + b"\0" * 6 + socket.inet_aton("10.0.9.1")
    before = h.stat("loop.turns")
    drive.pause(h.pid)
    for _ in range(8000):
        b.send(junk)
    b.send(ask)
    os.kill(h.pid, signal.SIGCONT)
    b.settimeout(drive.LIMIT)
    while b.recv(2048)[12:22] != bytes.fromhex("08060001080006040002"):
        pass
    n, bursts = h.stat("loop.turns") - before, 8000 * len(junk) >> 18
    ok(2 * n >= bursts, "%d bursts of frames take that many turns: %d" % (bursts, n))
    h.stop()


def idle():
    h = Host(["sleep", "100"], abi="auto", lib=LIB)
    h.start()
    def cpu():
        f = open("/proc/%d/stat" % h.pid).read().rsplit(")", 1)[1].split()
        return int(f[11]) + int(f[12])
    time.sleep(1)
    a, n = cpu(), h.stat("loop.turns")
    time.sleep(3)
    turns = (h.stat("loop.turns") - n) / 3
    ok(cpu() - a <= 3, "idle: at most 1 %% of a CPU (%d ticks in 3 s, %.0f turns a second)" % (cpu() - a, turns))
    ok(turns < 100, "idle: fewer than 100 turns a second")
    h.stop()


def soak():
    for mptcp in (False, True):
        h = Host([os.environ["SOAK"], "1", os.environ.get("SOAK_SECONDS", "4")], abi="auto", lib=LIB)
        h.start(mptcp=mptcp)
        same(h.ctl.next_event(drive.EV_EXIT)[2], 0, "every byte right, %s" % ("MPTCP" if mptcp else "TCP"))
        same(wait_end(h), 0, "lklhost ends with 0")


def wait_end(h):
    try:
        while True:
            h.ctl.step()
    except (EOFError, ConnectionError):
        pass
    _, st = os.waitpid(h.pid, 0)
    h.clean()
    return st


def refused():
    prog = ("import socket,time\nfor a in ((socket.AF_CAN,3,1),(40,1,0),(2,5,0),(2,1,132)):\n"
            " try: socket.socket(*a); print('made',a)\n except OSError as e: print(e.errno)\n"
            "s=socket.socket(); print('end',flush=True); time.sleep(60)")
    h, out = drive.heard([PY, "-c", prog], abi="auto", lib=LIB)
    h.start()
    said = [out.readline().strip() for _ in range(5)]
    out.close()
    lines = dict(l.rsplit(" ", 1) for l in h.ctl.ask(drive.STATS).decode().splitlines())
    h.stop()
    same(said, ["97", "97", "94", "93", "end"], "what the stack does not offer is refused, never the host's")
    for what, want in (("refused", "4"), ("stack", "1")):
        same([v for k, v in lines.items() if k.startswith("proc.") and k.endswith("." + what)], [want], "the account: %s %s" % (what, want))


def bad_library():
    for lib, want in (("/nonexistent/liblkl.so", "stack library /nonexistent/liblkl.so: No such file or directory"),
                      ("/etc/passwd", "loading the stack library: /etc/passwd: "),
                      (libc(), "has no lkl_start_kernel()")):
        h = Host(["true"], abi="auto", lib=lib)
        e = h.ctl.next_event(drive.EV_WARN)
        _, st = os.waitpid(h.pid, 0)
        ok(want in e[3] and st >> 8 == 2, "%s: %s" % (lib, e[3]))
        h.clean()


def libc():
    return [l.split()[-1] for l in open("/proc/self/maps") if "libc.so" in l][0]


if __name__ == "__main__":
    sys.path.insert(0, drive.HERE)
    tests = [wire, rawip, view, fallback, drained, panic, busy_panic, idle, soak, refused, bad_library]
    if not os.path.exists(LIB):
        tests = [bad_library]
    elif "newabi" not in LIB: # a foreign library reads frames in a thread of its own
        tests.append(turns)
    run(tests)
