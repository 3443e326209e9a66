#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Starts lklhost as lklrun does, but without lklrun, for tests of the C side.

Uses the control protocol of csrc/shared/ctl_proto.h over descriptor 3: HELLO,
EVENTS, LINK_ADD, BOOT, configuration by CTL_SYSCALL, GO. With ENGINE=trace in the
environment, lklhost catches calls by ptrace(2).
"""
import array
import os
import shutil
import signal
import socket
import struct
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HELLO, LINK_ADD, _, BOOT, GO, SYSCALL, CANCEL, STATS, OWNERS, EVENTS, \
    EVENT, STOP, LOG = range(1, 14)
EV_EXIT, EV_PANIC, EV_PROC, EV_SOCKET, EV_WARN, EV_LISTEN = 1, 2, 4, 8, 32, 0x400
IN, OUT, INOUT, IN_BUF, USED = 1, 2, 3, 4, 8
# x86-64 call numbers
NR = dict(read=0, write=1, open=2, close=3, fcntl=72, ioctl=16, socket=41,
          connect=42, accept=43, sendto=44, recvfrom=45, sendmsg=46, recvmsg=47,
          bind=49, listen=50, getsockname=51, setsockopt=54, getppid=110,
          openat=257, nanosleep=35, recvmmsg=299)
LIMIT = int(os.environ.get("DRIVE_LIMIT", "60"))


class Refused(OSError):
    pass


class Conn:
    """A control connection."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(LIMIT)
        self.buf = b""
        self.id = 0
        self.replies = {}
        self.events = []

    def send(self, kind, body=b"", fd=None):
        self.id += 1
        frame = struct.pack("<IHHIi", 16 + len(body), kind, 0, self.id, 0) + body
        if fd is None:
            self.sock.sendall(frame)
        else:
            self.sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                         array.array("i", [fd]))])
        return self.id

    def read_frame(self):
        while True:
            if len(self.buf) >= 16:
                n = struct.unpack_from("<I", self.buf)[0]
                if len(self.buf) >= n:
                    frame, self.buf = self.buf[:n], self.buf[n:]
                    return frame
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError("lklhost closed the connection")
            self.buf += data

    def step(self):
        frame = self.read_frame()
        _, kind, _, ident, status = struct.unpack_from("<IHHIi", frame)
        if kind == EVENT:
            k, pid, ns, arg = struct.unpack_from("<IIQq", frame, 16)
            self.events.append((k, pid, arg, frame[40:].decode(errors="replace")))
        else:
            self.replies[ident] = (status, frame[16:])

    def wait(self, ident):
        while ident not in self.replies:
            self.step()
        status, body = self.replies.pop(ident)
        if status < 0:
            raise Refused(-status, os.strerror(-status))
        return body

    def ask(self, kind, body=b"", fd=None):
        return self.wait(self.send(kind, body, fd))

    def call_send(self, name, args, bufs=(), timeout=0, events=0):
        """bufs: (place, flags, offset, bytes or length)"""
        a = list(args) + [0] * (6 - len(args))
        desc, data = b"", b""
        for place, flags, off, val in bufs:
            n = val if isinstance(val, int) else len(val)
            desc += struct.pack("<BBHI", place, flags, off, n)
            if flags & IN:
                data += val
        nr = NR[name] if isinstance(name, str) else name
        return self.send(SYSCALL, struct.pack(
            "<IIII6Q", nr, len(bufs), timeout, events,
            *[x & 0xffffffffffffffff for x in a]) + desc + data)

    def call_wait(self, ident):
        body = self.wait(ident)
        return struct.unpack_from("<q", body)[0], body[8:]

    def call(self, name, args, bufs=(), **kw):
        return self.call_wait(self.call_send(name, args, bufs, **kw))

    def hello(self):
        body = self.ask(HELLO, struct.pack("<II", 0x524c4b4c, 1))
        v, state, pid, target, abi, n, start = struct.unpack_from("<IIIIIIQ", body)
        return dict(version=v, state=state, pid=pid, target=target, abi=abi,
                    strings=body[32:32 + n].split(b"\0"))

    def next_event(self, kind):
        while True:
            for e in self.events:
                if e[0] == kind:
                    self.events.remove(e)
                    return e
            self.step()

    def write_file(self, path, text):
        fd, _ = self.call("open", [0, os.O_WRONLY], [(0, IN, 0, path.encode() + b"\0")])
        if fd < 0:
            raise OSError(-fd, path)
        n, _ = self.call("write", [fd, 0, len(text)], [(1, IN, 0, text.encode())])
        self.call("close", [fd])
        if n < 0:
            raise OSError(-n, path)

    def read_file(self, path):
        fd, _ = self.call("open", [0, os.O_RDONLY], [(0, IN, 0, path.encode() + b"\0")])
        if fd < 0:
            raise OSError(-fd, path)
        out = b""
        while True:
            n, data = self.call("read", [fd, 0, 65536], [(1, OUT, 0, 65536)])
            if n <= 0:
                break
            out += data[:n]
        self.call("close", [fd])
        return out.decode()

    def netlink(self, nlmsg):
        """send one rtnetlink request and check its acknowledgement"""
        fd, _ = self.call("socket", [16, 3, 0])
        self.call("sendto", [fd, 0, len(nlmsg)], [(1, IN, 0, nlmsg)])
        n, data = self.call("recvfrom", [fd, 0, 8192], [(1, OUT, 0, 8192)],
                            timeout=2000, events=1)
        self.call("close", [fd])
        if n < 20:
            raise OSError(-n, "netlink")
        if struct.unpack_from("<H", data, 4)[0] == 2:
            err = struct.unpack_from("<i", data, 16)[0]
            if err and err != -17:
                raise OSError(-err, os.strerror(-err))

    def link_up(self, idx):
        self.netlink(struct.pack("<IHHII", 32, 16, 5, 1, 0) +
                     struct.pack("<BBHiII", 0, 0, 0, idx, 1, 1))

    def addr_add(self, idx, ip, plen):
        fam = socket.AF_INET6 if ":" in ip else socket.AF_INET
        raw = socket.inet_pton(fam, ip)
        attr = b"".join(struct.pack("<HH", 4 + len(raw), t) + raw for t in (1, 2))
        flags = 0x02 if fam == socket.AF_INET6 else 0   # IFA_F_NODAD
        body = struct.pack("<BBBBI", fam, plen, flags, 0, idx) + attr
        self.netlink(struct.pack("<IHHII", 16 + len(body), 20, 0x605, 1, 0) + body)


def pause(pid):
    """send SIGSTOP and wait until all threads have stopped: a thread on another CPU continues for a moment"""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + LIMIT
    while not all(stopped(pid, t) for t in os.listdir("/proc/%d/task" % pid)):
        if time.monotonic() > end:
            raise TimeoutError("process %d goes on after SIGSTOP" % pid)


def stopped(pid, tid):
    try:
        with open("/proc/%d/task/%s/stat" % (pid, tid)) as f:
            return f.read().rpartition(") ")[2][0] in "TZX"
    except (FileNotFoundError, ProcessLookupError):
        return True     # a thread that has ended


class Host:
    """An lklhost with its run directory."""

    def __init__(self, argv, abi="host", lib=None, binary=None, stdout=None,
                 uid=None, extra=()):
        binary = binary or os.environ.get("LKLHOST") or \
            os.path.join(HERE, "../../bin/lklhost")
        self.dir = tempfile.mkdtemp(prefix="lklhost-test-")
        os.chmod(self.dir, 0o700)
        if uid:
            os.chown(self.dir, uid, uid)
        ours, theirs = socket.socketpair()
        cmd = [binary, "--run", self.dir, "--name", "test", "--abi", abi]
        if lib:
            cmd += ["--stack", lib]
        if os.environ.get("ENGINE") == "trace":
            cmd += ["--trace"]
        cmd += list(extra) + ["--"] + argv
        self.pid = os.fork()
        if not self.pid:
            try:
                ours.close()
                os.dup2(theirs.fileno(), 3)
                os.set_inheritable(3, True)
                if stdout is not None:
                    os.dup2(stdout, 1)
                if uid:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                os.execv(cmd[0], cmd)
            except OSError as e:
                os.write(2, ("%s: %s\n" % (cmd[0], e.strerror)).encode())
            finally:
                os._exit(127)   # must not return to the tests
        theirs.close()
        self.ctl = Conn(ours)

    def attach(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(os.path.join(self.dir, "ctl.sock"))
        return Conn(s)

    def start(self, mptcp=False, frames=(), link_flags=0):
        """frames: (descriptor, "ADDRESS/LEN" ...)"""
        c = self.ctl
        self.info = c.hello()
        c.ask(EVENTS, struct.pack("<I", EV_EXIT | EV_PANIC | EV_WARN))
        for fd, *_ in frames:
            c.ask(LINK_ADD, struct.pack("<II6sH", 2, link_flags, b"\0" * 6, 0), fd)
        self.release = c.ask(BOOT, struct.pack("<QII", 0, 0, 0)).decode()
        if self.info["abi"] != 4:   # a library
            c.link_up(1)
            for i, (_, *addrs) in enumerate(frames):
                index = int(c.read_file("/sys/class/net/eth%d/ifindex" % i))
                c.link_up(index)
                for a in addrs:
                    ip, n = a.split("/")
                    c.addr_add(index, ip, int(n))
        c.ask(GO, struct.pack("<IIII", 1 if mptcp else 0, 50, 0, 0))

    def stat(self, name):
        for line in self.ctl.ask(STATS).decode().splitlines():
            k, v = line.rsplit(" ", 1)
            if k == name:
                return int(v)
        return None

    def stop(self):
        """kill the target; return its wait status"""
        self.ctl.ask(STOP, struct.pack("<II", 9, 0))
        return self.wait()

    def wait(self):
        """wait for the target; return its wait status"""
        status = self.ctl.next_event(EV_EXIT)[2]
        try:
            while True:
                self.ctl.step()
        except (EOFError, ConnectionError):
            pass
        _, st = os.waitpid(self.pid, 0)
        self.host_status = st
        self.clean()
        return status

    def clean(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def heard(argv, **options):
    """return an lklhost, and a file with what its target says"""
    r, w = os.pipe()
    h = Host(argv, stdout=w, **options)
    os.close(w)
    return h, os.fdopen(r)
