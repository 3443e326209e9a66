#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Writes the seeds of the fuzzers, corpus/*/seed-*. They are realistic exchanges, encoded
as steps of an input (parsers/*.c), with golden bytes of the control protocol as bodies.

Run it after a change of the steps. All other files of the corpus are inputs that found a
bug, or that libFuzzer kept.
"""
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "../../../internal/stack/ctlproto/testdata/golden.txt")
TYPES = {"hello_req": 1, "link_add": 2, "link_del": 3, "boot": 4, "go": 5, "syscall": 6, "cancel": 7, "stats": 8,
         "owners": 9, "events": 10, "stop": 12, "log": 13, "exec": 14, "exec_signal": 15, "ask": 16, "answer": 18, "link_join": 19}
NEW, BOOTED, RUNNING = b"\0", b"\1", b"\2"


def golden():
    """Return bodies by name, the first one of each name."""
    found = {"stats": b"", "owners": b"", "log": b""}
    for line in open(GOLDEN, encoding="ascii"):
        if not line.startswith("#"):
            name, data = line.split()
            found.setdefault(name, bytes.fromhex(data))
    return found


BODY = golden()


def frame(name, peer=1, ident=9, body=None):
    """A step of clients.c: a frame."""
    body = BODY[name] if body is None else body
    return struct.pack("<BBBH", peer << 4, TYPES[name], ident, len(body)) + body


def greet(peer=1):
    return bytes([peer << 4 | 2])


def files(n, peer=1):
    return bytes([peer << 4 | 4, n - 1])


def close(peer=1):
    return bytes([peer << 4 | 6])


def call(nr, bufs=(), data=b"", args=(0,) * 6, timeout=0, peer=1):
    """A step of clients.c: a CTL_SYSCALL, buffers as (place, flags, offset, length)."""
    head = struct.pack("<BBBBB6B", peer << 4 | 1, nr, 3, len(bufs), timeout, *args)
    return head + b"".join(bytes(b) for b in bufs) + data


def said(what, value, length=12, ident=1):
    """A step of clients.c: a report of the zygote."""
    return struct.pack("<BBIii", 10, length, ident, what, value)


def clients():
    """Conversations of control clients, by name."""
    ask = b"\0\0\0\0" + b"\1\0\0\0" + b'{"verb":"leases"}'
    execute = greet() + files(3) + frame("exec")
    return {
        "start": NEW + greet(0) + files(1, 0) + frame("link_add", 0) + frame("boot", 0) + b"\0" * 6 + frame("go", 0),
        "call": BOOTED + greet() + call(0, args=(2, 1, 0, 0, 0, 0)) + b"\1" +
                call(3, ((1, 1, 0, 56), (0, 5, 16, 16), (1, 7, 0, 8)), b"a" * 80, (101, 0, 0, 0, 0, 0)) + b"\7",
        "waits": BOOTED + greet() + call(0) + b"\1" + call(2, ((1, 2, 0, 64),), args=(101, 0, 64, 0, 0, 0), timeout=9) +
                 b"\x50\1\x17\0\5" + frame("cancel", body=b"\3\0\0\0") + close(),
        "used": BOOTED + greet() + call(0) + b"\1" + call(4, ((1, 3, 0, 16), (2, 2, 0, 64), (0, 8, 4, 0)), b"\x10\0\0\0" * 4,
                                                         (101, 0, 1, 0, 0, 0)) + b"\1",
        "asks": RUNNING + greet(0) + greet() + files(1) + frame("ask", body=ask) + b"\5" +
                frame("answer", 0, body=b"\1\0\0\0\0\0\0\0ok") + b"\x15",
        "exec": RUNNING + execute + said(1, 4000000) + frame("exec_signal", body=b"\x09\0\0\0\x0f\0\0\0\1\0\0\0\0\0\0\0") +
                said(0, 4000000, 11),
        "exec-gone": RUNNING + execute + frame("exec_signal", body=b"\x09\0\0\0\x0f\0\0\0\1\0\0\0\0\0\0\0") +
                     said(1, 4000000) + close() + b"\x08\x88\x13",
        "exec-all": RUNNING + execute + said(1, 1) + close(),
        "texts": RUNNING + greet() + frame("events") + frame("stats") + frame("log") + frame("owners") +
                 b"\x0b\x20\0\1" + frame("stop"),
        "panic": RUNNING + greet() + call(0) + b"\1" + call(2, ((1, 2, 0, 64),), args=(101, 0, 64, 0, 0, 0), timeout=9) +
                 b"\x50\x09" + call(15) + frame("log") + frame("stop"),
        "old": NEW + frame("hello_req") + frame("hello_req", body=b"\0" * 8),
    }


def answered(kind, ident, status=0, body=b""):
    """A step of link_host.c: a frame of the library."""
    return struct.pack("<BBBBH", 0x80, kind, ident, status, len(body)) + body


def link_host():
    """Conversations with a preloaded library."""
    h = struct.pack("<IHHIi", 416, 0x4001, 0, 0, -1)
    start = b"\0" + greet(0) + frame("boot", 0) + answered(4, 1, body=b"6.12.0") + frame("go", 0) + answered(5, 2, body=b"abcd")
    ending = answered(0x45, 0)
    return {
        "start": start + greet() + call(0) + answered(6, 3, body=b"\0" * 8) + close(),
        "link": b"\0" + greet() + files(1) + frame("link_add") + answered(2, 1, body=b"\0" * 8),
        "cancel": start + greet() + call(2, timeout=9) + frame("cancel", body=b"\3\0\0\0") + answered(7, 4) + close(),
        "warns": start + answered(0x44, 0, body=b"a line") + ending + b"\x05" + frame("answer", 0, body=b"\1\0\0\0\0\0\0\0"),
        "panics": start + greet() + call(2, timeout=9) + answered(0x43, 0) + frame("log"),
        "log": start + b"\x82\2\0\0\0\0" + b"<6>a line\n" * 6 + b"0000" + b"\x82\0\0\x40\0" + b"\x85\x8d\x82\1\xff\xff\0\0\x85",
        "ends": start + b"\x84\x86\x8e",
        "refuses": b"\xfd" + h + b"no stack" * 8,
    }


def link_program():
    """Requests that lklhost forwards to a preloaded library."""
    def one(name, client=1, files=0, body=None, kind=None):
        body = BODY[name] if body is None else body
        return struct.pack("<BBBBBH", 0, kind or TYPES[name], client, files, 7, len(body)) + body

    def call(nr, args, bufs=(), data=b"", timeout=0):
        head = struct.pack("<4I6Q", nr, len(bufs), timeout, 1, *(args + (0,) * (6 - len(args))))
        return one("syscall", body=head + b"".join(struct.pack("<BBHI", *b) for b in bufs) + data)
    opened = BOOTED + call(41, (2, 1)) + b"\1"      # socket()
    waits = opened + call(0, (101, 0, 64), ((1, 2, 0, 64),), timeout=9) + b"\x50\0"
    return {
        "start": NEW + one("link_add", files=251) + one("boot") + b"\0" * 6 + one("go"),
        "call": opened + call(46, (101,), ((1, 1, 0, 56), (0, 5, 16, 16), (1, 7, 0, 8)), b"a" * 80) + b"\7" + call(3, (101,)),
        "waits": waits + b"\1\0\5" + waits + b"\2\x20\0",
        "cancel": waits + one("cancel", body=b"\7\0\0\0") + one("stats", kind=0x42),
        "texts": BOOTED + one("stats") + one("owners") + b"\3\x10" + one("stats") + one("link_join") + one("link_del"),
        "golden": BOOTED + one("syscall"),
        "raw": BOOTED + b"\xff" + struct.pack("<IHHIi", 16, 8, 1, 1, 0) + struct.pack("<IHHIi", 20, 7, 1, 1, 0) + b"\1\0\0\0\x0f",
    }


def lookup(name, node=0, found=b"\1"):
    """A step of view.c; @found is the result of its stat(): 0 a file, 1 a folder, 2 a link."""
    return bytes([node << 4, len(name)]) + name + found


def view():
    """Requests that programs cause in the view."""
    tcp = (b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
           b"   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100 0\n")
    names = b"".join(bytes([kind, len(n)]) + n for kind, n in ((4, b"."), (4, b".."), (8, b"tcp"), (10, b"eth0"))) + b"\0"
    text, folder = b"\x0d" + struct.pack("<H", len(tcp)) + tcp, b"\x0e" + struct.pack("<H", len(names)) + names
    # The fuzzer stores nodes from the first entry on.
    return {
        "table": text + lookup(b".net") + lookup(b"tcp", 1, b"\0") + b"\x26\0\0" + b"\1" + b"\x08\0\x18\0\x10\0\x38\0\x40\0\x10\0\0\0\x0b\0",
        "folder": folder + lookup(b".class") + b"\x16\0\x80\1" + b"\x09\0\x09\0\x19\0\1\0\x0b\0",
        "devices": folder + lookup(b".devices") + b"\x16\0\x80\1" + b"\x09\0" + lookup(b"eth0", 1, b"\1") + b"\x05",
        "link": b"\x0d\x04\0eth0" + lookup(b".class") + lookup(b"eth0", 1, b"\2") + b"\x2c\5\0" + b"\x24\0",
        "setting": lookup(b"ipv4") + lookup(b"ip_forward", 1, b"\0") + b"\x26\2\0\1" + b"\x0a\0" + b"1\n" + b"\x0b\0",
        "init": b"\x0c\x1a" + struct.pack("<4I", 7, 38, 65536, 0x40000021) + b"\0" * 240 + b"\x40",
    }


def frames():
    """Frames of the mirror: source, device number, kind, protocol, auxdata, length."""
    vnet = struct.pack("<BBHHHH", 1, 0, 0, 0, 34, 16)
    ethernet = bytes.fromhex("020000000001020000000002" "0800" "450000340000400040060000") + bytes(40)

    def one(source, index=0, kind=0, aux=b"\0", head=vnet, data=ethernet):
        return bytes([source, index, kind]) + b"\x08\0" + aux + struct.pack("<H", len(head + data)) + head + data + b"\1"
    return {
        "stack-in": one(2),
        "stack-out": one(2, kind=4),
        "lo-out": one(2, index=0, kind=4),
        "near": one(0, index=2, head=bytes(10)),
        "near-ours": one(0, index=2, head=struct.pack("<BBHHHH", 1, 0, 0, 0, 20, 0)),
        "far": one(1),
        "vlan": one(0, index=2, aux=b"\x50\x05\0\0\x81") + one(2, aux=b"\x10\x05\0\0\0"),
        "short": one(0, data=b"", head=b"1234"),
    }


def ip(first=0x45, proto=6, doff=0x50):
    """The header of an IPv4 packet, followed by TCP."""
    return bytes([first, 0, 1, 64, 0, 0, 0x40, 0, 64, proto]).ljust(32, b"\0") + bytes([doff]).ljust(96, b"\0")


def rawip():
    """Packets for the stack: with or without link layer, length above the minimum, header."""
    def one(head, link=0, length=300):
        return bytes([link]) + struct.pack("<I", length) + head.ljust(128, b"\0")[:128] + b"\7\1"
    return {
        "tcp4": one(ip()) + one(ip(), length=60),
        "udp4": one(ip(proto=17)),
        "tcp6": one(b"\x60\0\0\0\1\0\6\x40"),
        "udp6": one(b"\x60\0\0\0\1\0\x11\x40", length=20),
        "ethernet": one(bytes(12) + b"\x08\0" + ip(), 1) + one(bytes(12) + b"\x81\0" + ip(), 1),
        "big": one(ip(), length=65000) * 3,
        "no-header": one(b"\x40" + bytes(8) + b"\6"),
        "other": one(b"\x10"),
    }


def packet():
    """Messages of a packet socket."""
    aux = struct.pack("<IIIHHHH", 0x50, 64, 64, 0, 14, 5, 0x8100)
    return {
        "vlan": b"\0\0\4" + b"\0\0\2" + aux + b"\x40\0" + bytes(64),
        "vnet": b"\1\0\4" + b"\0\0\0" + b"\x40\0" + bytes(64),
        "unfinished": b"\0\0\4" + b"\0\0\2" + struct.pack("<I", 8).ljust(20, b"\0") + b"\x40\0" + bytes(64),
        "valid": b"\0\0\4" + b"\0\0\2" + struct.pack("<I", 0x80).ljust(20, b"\0") + b"\x40\0" + bytes(64),
        "cut-off": b"\0\x10\0" + b"\0\0\0" + b"\x40\0" + bytes(64),
        "outgoing": b"\2\0\4" + b"\0\4\0" + b"\x40\0" + bytes(64),
        "otherhost": b"\2\0\4" + b"\0\3\0" + b"\x40\0" + bytes(64),
        "error": b"\0\0\4\1\x16",
    }


def messages():
    """Write a header and a vector to the target's memory, then make a call with them."""
    def words(at, *values):
        return b"\1" + struct.pack("<HB", at, len(values)) + b"".join(values)

    def place(at):
        return b"\1" + struct.pack("<H", at)

    def number(n):
        return b"\0\7" + bytes([n])
    header = words(0, place(512), number(16), place(128), number(2), place(1024), number(64), number(0))
    vector = words(128, place(2048), number(100), place(3000), number(50))
    args = b"\7\3" + b"\0\0" + b"\7\0" + b"\0\0" + b"\0\0" + b"\0\0"
    return {
        "recvmsg": header + vector + b"\0\3" + args + b"\x50\0\x20\0" + b"\1\x20\1\2" + bytes(160) + b"\x10",
        "sendmsg": header + vector + b"\0\2" + args + b"\0\0\x40\0" + b"\0" + bytes(128) + b"\0",
        "sendto": b"\0\0" + b"\7\3" + b"\0\x08" + b"\7\x40" + b"\0\0" + b"\x40\0" + b"\0\0" + b"\0\0\x20\0",
    }


def proc_text():
    """Files below /proc/net."""
    return {
        "netstat": b"\1\xffTcpExt: SyncookiesSent TW\nTcpExt: 1 22\nIpExt: InNoRoutes\nIpExt: 3\n",
        "netstat-cut": b"\1\x10TcpExt: SyncookiesSent TW\nTcpExt: 1 22\n",
        "tcp": b"\0\0  sl  local\n   0: 0100007F:0016 00000000:0000 04 00000010:00000000 00:00000000 00000000     0        0 0 1\n",
    }


def main():
    """Write all seeds."""
    for fuzzer, seeds in {"ctl": clients(), "link_host": link_host(), "link_program": link_program(),
                          "view": view(), "frames": frames(), "rawip": rawip(),
                          "packet": packet(), "messages": messages(), "proc_text": proc_text()}.items():
        folder = os.path.join(HERE, "corpus", fuzzer)
        os.makedirs(folder, exist_ok=True)
        for name, data in seeds.items():
            with open(os.path.join(folder, "seed-" + name), "wb") as f:
                f.write(data)


if __name__ == "__main__":
    main()
