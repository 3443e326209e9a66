# SPDX-License-Identifier: Apache-2.0
#
# Tries many ways to configure or to bypass the network of a container, and prints
# whether the kernel permits each. With the argument "stack", it also tries those that
# only a stack has. The device eth0 must have the address 10.88.0.X.

import ctypes, errno, mmap, os, struct, sys, threading
from socket import *

NEWLINK, NEWADDR, DELADDR, GETADDR, NEWROUTE, NEWNEIGH = 16, 20, 21, 22, 24, 28
REQUEST, ACK, DUMP, CREATE, REPLACE, EXCL = 1, 4, 0x300, 0x400, 0x100, 0x200
SIOCADDRT, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFMTU, SIOCSIFHWADDR, SIOCBRADDBR = 0x890B, 0x8914, 0x8916, 0x8922, 0x8924, 0x89A0
CLONE_NEWUSER = 0x10000000
NO_NAMESPACE = 255
libc = ctypes.CDLL(None, use_errno=True)
eth0 = if_nametoindex("eth0")

def check(result):
    if result: raise OSError(ctypes.get_errno(), "")

# Netlink.
def attr(kind, data): return struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
def message(kind, body, flags=ACK): return struct.pack("IHHII", 16 + len(body), kind, REQUEST | flags, 1, 0) + body
def netlink(protocol=0):
    s = socket(AF_NETLINK, SOCK_RAW, protocol)
    s.settimeout(5)
    return s
def answer(s):
    data = s.recv(65536)
    number = struct.unpack_from("i", data, 16)[0] if struct.unpack_from("H", data, 4)[0] == 2 else 0
    if number: raise OSError(-number, "")
    return data
def ask(msg, s=None, send=lambda s, m: s.sendto(m, (0, 0))):
    s = s or netlink()
    send(s, msg)
    return answer(s)
def ip(last): return bytes([192, 0, 2, last])
def address(last, kind=NEWADDR, flags=ACK | CREATE | REPLACE):
    return message(kind, struct.pack("BBBBi", AF_INET, 24, 0, 0, eth0) + attr(2, ip(last)) + attr(1, ip(last)), flags)
def mtu(n): return message(NEWLINK, struct.pack("BxHiII", 0, 0, eth0, 0, 0) + attr(4, struct.pack("I", n)))
def neighbour(): return message(NEWNEIGH, struct.pack("BxxxiHBB", AF_INET, eth0, 0x80, 0, 0) + attr(1, ip(77)) + attr(2, b"\2\0\0\0\0\1"), ACK | CREATE | REPLACE)
def route(): return message(NEWROUTE, struct.pack("8BI", AF_INET, 24, 0, 0, 254, 3, 253, 1, 0) + attr(1, bytes([198, 51, 100, 0])) + attr(4, struct.pack("i", eth0)), ACK | CREATE | REPLACE)
def addresses():
    s = netlink()
    s.sendto(message(GETADDR, struct.pack("B7x", AF_INET), DUMP), (0, 0))
    got = data = b""
    while not data or struct.unpack_from("H", data, 4)[0] != 3:
        data = s.recv(1 << 20)
        got += data
    return got
def destroy():
    server = socket(AF_INET, SOCK_STREAM)
    server.bind(("127.0.0.1", 0))
    server.listen()
    name = struct.pack(">HH4s12x4s12x", server.getsockname()[1], 0, bytes([127, 0, 0, 1]), bytes(4)) + struct.pack("III", 0, ~0 & 0xffffffff, ~0 & 0xffffffff)
    ask(message(21, struct.pack("BBBxI", AF_INET, IPPROTO_TCP, 0, 1 << 10) + name), netlink(4))
def mptcp():
    s = netlink(16)
    data = ask(message(16, struct.pack("BBH", 3, 1, 0) + attr(2, b"mptcp_pm\0"), 0), s)
    at = 20
    while struct.unpack_from("H", data, at + 2)[0] != 1:
        at += struct.unpack_from("H", data, at)[0] + 3 & ~3
    family = struct.unpack_from("H", data, at + 4)[0]
    ask(message(family, struct.pack("BBH", 5, 1, 0) + attr(2, struct.pack("I", 1)) + attr(3, struct.pack("I", 1))), s)
def nftables():
    table = struct.pack(">BBH", AF_INET, 0, 0) + attr(1, b"t\0")
    ends = [message(kind, struct.pack(">BBH", 0, 0, 10), 0) for kind in (16, 17)]
    ask(ends[0] + message(10 << 8, table, ACK | CREATE) + ends[1], netlink(12))

# Requests and options.
def ioctl(request, data, family=AF_INET):
    s = socket(family, SOCK_DGRAM)
    check(libc.ioctl(s.fileno(), ctypes.c_ulong(request), ctypes.create_string_buffer(data, len(data))))
def late_ioctl(): # its page comes after other calls, so lklhost handles it twice; it names no device
    page = mmap.mmap(os.open("/slow/page", os.O_RDONLY), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    def release():
        while not os.path.exists("/slow/asked"): pass
        s = socket(AF_INET, SOCK_DGRAM)
        for _ in range(100): s.getsockname()
        os.path.exists("/slow/release")
    threading.Thread(target=release).start()
    s = socket(AF_INET, SOCK_DGRAM)
    check(libc.ioctl(s.fileno(), ctypes.c_ulong(SIOCSIFADDR), ctypes.byref(ctypes.c_char.from_buffer(page))))
def ifreq(rest, name=b"eth0"): return (name.ljust(16, b"\0") + rest).ljust(40, b"\0")
def name(*ip): return struct.pack("HH4B8x", AF_INET, 0, *ip)
def rtentry(): return bytes(8) + name(203, 0, 113, 0) + name(10, 88, 0, 1) + name(255, 255, 255, 0) + struct.pack("H", 3) + bytes(54)
def option(level, name, value, family=AF_INET): socket(family, SOCK_DGRAM).setsockopt(level, name, value)
def mark_message():
    s = socket(AF_INET, SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    s.sendmsg([b"x"], [(SOL_SOCKET, SO_MARK, struct.pack("i", 7))], 0, s.getsockname())
def port(n): socket(AF_INET, SOCK_STREAM).bind(("0.0.0.0", n))

# Other callers.
def in_child(do):
    if not os.fork():
        number = 0
        try: do()
        except OSError as e: number = e.errno
        os._exit(number)
    number = os.waitstatus_to_exitcode(os.wait()[1])
    if number: raise OSError(number, "")
def in_userns(do):
    def enter():
        if libc.unshare(CLONE_NEWUSER): os._exit(NO_NAMESPACE)
        do()
    in_child(enter)
def drop(): check(libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()))
def without(do):
    drop()
    do()
def in_thread(do):
    failed = []
    def run():
        try: without(do)
        except OSError as e: failed.append(e)
    t = threading.Thread(target=run)
    t.start()
    t.join()
    if failed: raise failed[0]

inherited = netlink()
tries = {
    "read addresses": addresses,
    "address": lambda: ask(address(1)),
    "remove address": lambda: ask(address(1, DELADDR, ACK)),
    "address by sendmsg": lambda: ask(address(2), send=lambda s, m: s.sendmsg([m])),
    "mtu": lambda: ask(mtu(1400)),
    "neighbour": lambda: ask(neighbour()),
    "route": lambda: ask(route()),
    "destroy socket": destroy,
    "mptcp limits": mptcp,
    "nftables": nftables,
    "address by ioctl": lambda: ioctl(SIOCSIFADDR, ifreq(name(*ip(3)), b"eth0:1")),
    "address by a late ioctl": late_ioctl,
    "flags by ioctl": lambda: ioctl(SIOCSIFFLAGS, ifreq(struct.pack("H", 0x1043))),
    "mtu by ioctl": lambda: ioctl(SIOCSIFMTU, ifreq(struct.pack("i", 1450))),
    "route by ioctl": lambda: ioctl(SIOCADDRT, rtentry()),
    "bridge by ioctl": lambda: ioctl(SIOCBRADDBR, b"br9".ljust(16, b"\0")),
    "mac by ioctl": lambda: ioctl(SIOCSIFHWADDR, ifreq(struct.pack("H6B", 1, 2, 0, 0, 0, 0, 9), b"br9")),
    "iptables": lambda: option(IPPROTO_IP, 64, bytes(96)),
    "raw socket": lambda: socket(AF_INET, SOCK_RAW, 255),
    "raw IPv6 socket": lambda: socket(AF_INET6, SOCK_RAW, 58),
    "packet socket": lambda: socket(AF_PACKET, SOCK_RAW, 0),
    "cooked packet socket": lambda: socket(AF_PACKET, SOCK_DGRAM, 0),
    "SO_MARK": lambda: option(SOL_SOCKET, SO_MARK, 7),
    "SO_MARK by message": mark_message,
    "SO_PRIORITY": lambda: option(SOL_SOCKET, SO_PRIORITY, 7),
    "SO_RCVBUFFORCE": lambda: option(SOL_SOCKET, 33, 1 << 22),
    "SO_DEBUG": lambda: option(SOL_SOCKET, SO_DEBUG, 1),
    "SO_BINDTODEVICE": lambda: option(SOL_SOCKET, SO_BINDTODEVICE, b"lo"),
    "IP_TRANSPARENT": lambda: option(IPPROTO_IP, 19, 1),
    "IPV6_TRANSPARENT": lambda: option(IPPROTO_IPV6, 75, 1, AF_INET6),
    "port 80": lambda: port(80),
    "port 1024": lambda: port(1024),
    "address, in a user namespace": lambda: in_userns(lambda: ask(address(4))),
    "address by ioctl, in a user namespace": lambda: in_userns(lambda: ioctl(SIOCSIFADDR, ifreq(name(*ip(5)), b"eth0:2"))),
    "raw socket, in a user namespace": lambda: in_userns(lambda: socket(AF_INET, SOCK_RAW, 255)),
    "packet socket, in a user namespace": lambda: in_userns(lambda: socket(AF_PACKET, SOCK_RAW, 0)),
    "port 81, in a user namespace": lambda: in_userns(lambda: port(81)),
    "address, by an inherited socket": lambda: in_child(lambda: without(lambda: ask(address(6), inherited))),
    "address, by a thread without capabilities": lambda: in_thread(lambda: ask(address(7))),
}
if sys.argv[1:] == ["stack"]: # others have no such requests, or know the sender
    tries["address by ioctl of a unix socket"] = lambda: ioctl(SIOCSIFADDR, ifreq(name(*ip(8)), b"eth0:3"), AF_UNIX)
    tries["address by write"] = lambda: ask(address(9), send=lambda s, m: os.write(s.fileno(), m))
    tries["address by send"] = lambda: ask(address(9), send=lambda s, m: s.send(m))
    tries["address by an inherited write"] = lambda: in_child(lambda: without(lambda: ask(address(9), inherited, lambda s, m: os.write(s.fileno(), m))))

for what, do in tries.items():
    try: do()
    except OSError as e: print(f"{what}: {errno.errorcode.get(e.errno, e.errno)}")
    else: print(f"{what}: permitted")
there = addresses()
print("addresses:", *(i for i in range(1, 10) if ip(i) in there))
