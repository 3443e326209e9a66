# SPDX-License-Identifier: Apache-2.0
#
# Network namespaces that a program makes in a run. The parent serves port 4000 in the
# run's namespace. The child makes a namespace of its own and tries to reach the parent's.
# It prints the attempts that end otherwise than they must, and the number of attempts.
import array, ctypes, errno, fcntl, os, select, socket, struct, sys

NEWNET, NEWUSER = 0x40000000, 0x10000000
PORT = 4000
libc = ctypes.CDLL(None, use_errno=True)
home = sys.argv[1]
gateway = sys.argv[2]
count = 0


def call(ret):
    if ret < 0:
        raise OSError(ctypes.get_errno(), "")
    return ret


def attempt(name, want, f, *args, **more):
    global count
    count += 1
    try:
        got = f(*args, **more)
    except OSError as e:
        got = errno.errorcode.get(e.errno, str(e))
    if got not in want.split("|"):
        print(f"{name}: {got}, want {want}")


def connect(addr, proto=0, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM, proto) as s:
        s.settimeout(5)
        s.connect((addr, PORT))
        return "reached"


def send(addr, kind=socket.SOCK_DGRAM, proto=0, flags=0):
    with socket.socket(socket.AF_INET, kind, proto) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.sendto(b"\x08\0\xf7\xff\0\0\0\0", flags, (addr, PORT))
        return "sent"


def ask(addr):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((addr, PORT))
        s.send(b"question")
        return s.recv(9)


def option(level, name, value):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(level, name, value)
        return "reached"


def flags_of(family, dev):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8913, struct.pack("16s24x", dev))  # SIOCGIFFLAGS
        return "reached"


def conf():
    buf = array.array("B", bytes(4096))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        size, = struct.unpack("ixxxxP", fcntl.ioctl(s, 0x8912, struct.pack("iP", 4096, buf.buffer_info()[0])))[:1]
    return str(size)


def attr(kind, data):
    return struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def link(index=0, *attrs, change=0):
    return struct.pack("BxHiII", 0, 0, index, change, change) + b"".join(attrs)


def netlink(kind, payload, flags=0, proto=socket.NETLINK_ROUTE, whole=False, how=socket.socket.send):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, proto) as s:
        s.settimeout(5)
        how(s, struct.pack("IHHII", 16 + len(payload), kind, 5 | flags, 7, 0) + payload)
        got = s.recv(1 << 16)
        if whole:
            return got
        kind, err = struct.unpack("H", got[4:6])[0], struct.unpack("i", got[16:20])[0]
        if kind == 2 and err:
            raise OSError(-err, "")
        return "done"


def addressed(s, msg):
    return s.sendto(msg, (0, 0))


def listeners():
    return "listed" if struct.pack(">H", PORT) in netlink(
        20, struct.pack("BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + bytes(48), 0x300, 4, True) else "none"


def addresses():
    return "listed" if socket.inet_aton(home) in netlink(22, bytes(8), 0x300, whole=True) else "none"


def read(path):
    with open(path) as f:
        return "listed" if f":{PORT:04X} " in f.read() else "none"


def enter(fd):
    call(libc.setns(fd, NEWNET))
    return "reached"


def enter_in_child(fd):
    pid = os.fork()
    if not pid:
        try:
            enter(fd)
            os._exit(addresses() != "listed")
        except OSError as e:
            os._exit(e.errno)
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError(os.waitstatus_to_exitcode(status), "")
    return "reached"


def tun():
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"t0", 0x1001))
    return "reached"


def hear():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.setsockopt(270, 8, 1)  # SOL_NETLINK, NETLINK_LISTEN_ALL_NSID
        return "reached"


def names():
    return " ".join(name for _, name in socket.if_nameindex())


def rounds():
    """What a namespace that has nothing must answer."""
    attempt("devices", "lo", names)
    attempt("devices by ioctl", "0", conf)
    for addr in home, gateway, "127.0.0.1":
        attempt("TCP to " + addr, "ENETUNREACH", connect, addr)
        attempt("MPTCP to " + addr, "ENETUNREACH", connect, addr, 262)
        attempt("UDP to " + addr, "ENETUNREACH", send, addr)
        attempt("connected UDP to " + addr, "ENETUNREACH", ask, addr)
        attempt("ICMP to " + addr, "ENETUNREACH", send, addr, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        attempt("SYN with data to " + addr, "ENETUNREACH", send, addr, socket.SOCK_STREAM, 0, socket.MSG_FASTOPEN)
    attempt("TCP to ::1", "ENETUNREACH|EADDRNOTAVAIL", connect, "::1", 0, socket.AF_INET6)
    attempt("broadcast", "ENETUNREACH", send, "255.255.255.255")
    attempt("device of the run", "ENODEV", option, socket.SOL_SOCKET, 25, b"eth0\0")
    attempt("group on a device", "ENODEV", option, socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
            socket.inet_aton("224.0.0.251") + socket.inet_aton(home))
    attempt("ioctl", "ENODEV", flags_of, socket.AF_INET, b"eth0")
    attempt("ioctl on a unix socket", "ENODEV", flags_of, socket.AF_UNIX, b"eth0")
    attempt("packet socket", "ENETDOWN", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300))
    attempt("tun", "ENETDOWN", tun)
    attempt("listeners", "none", listeners)
    attempt("addresses", "none", addresses)
    attempt("/proc/net/tcp", "none|ENOENT", read, "/proc/net/tcp")
    attempt("sysctl of a device", "ENOENT", os.stat, "/proc/sys/net/ipv4/conf/eth0")


def inside(inherited, spaces):
    call(libc.unshare(NEWNET | (NEWUSER if os.getuid() else 0)))
    rounds()
    attempt("dummy", "done", netlink, 16, link(0, attr(3, b"d0\0"), attr(18, attr(1, b"dummy"))), 0x600)
    index = socket.if_nametoindex("d0")
    # The sender of a message of send(2) is unknown. Root may use the run's namespace.
    for how in socket.socket.send, addressed:
        for kind in 28, 46, 37:  # IFLA_NET_NS_FD, IFLA_TARGET_NETNSID, IFLA_LINK_NETNSID
            for n in range(64):
                if os.getuid() or how != addressed or kind != 28 or n not in spaces:
                    attempt(f"move a device, {kind} {n}", "ENOTSUP", netlink, 19, link(index, attr(kind, struct.pack("I", n))), how=how)
        for pid in 1, 2, os.getppid(), os.getpid():
            own = how == addressed and pid == os.getpid()
            if not os.getuid() and how == addressed and pid not in (2, os.getpid()):
                continue
            ns = attr(19, struct.pack("I", pid))
            want = "done" if own else "ENOTSUP"
            attempt(f"move a device to {pid}", want, netlink, 19, link(index, ns), how=how)
            attempt(f"make one at {pid}", want, netlink, 16, link(0, ns, attr(18, attr(1, b"dummy"))), 0x600, how=how)
            attempt(f"make a pair with {pid}", want, netlink, 16, link(
                0, attr(18, attr(1, b"veth") + attr(2, attr(1 | 0x8000, link(0, ns))))), 0x600, how=how)
            attempt(f"number the namespace of {pid}", want, netlink, 88,
                    bytes(4) + attr(2, struct.pack("I", pid)) + attr(1, struct.pack("i", 3)), how=how)
    attempt("list the links of a number", "ENOTSUP", netlink, 18, link(0, attr(46, bytes(4))), 0x300)
    attempt("list the addresses of a number", "ENOTSUP", netlink, 22, bytes(8) + attr(10, bytes(4)), 0x300)
    attempt("hear other namespaces", "EPERM", hear)
    for fd in spaces:
        attempt(f"setns {fd}", "EPERM" if os.getuid() else "reached", enter_in_child, fd)
    attempt("lo", "done", netlink, 16, link(1, change=1))
    attempt("own TCP", "ECONNREFUSED", connect, "127.0.0.1")
    attempt("own UDP", "ECONNREFUSED|ECONNRESET", ask, "127.0.0.1")
    attempt("own address", "done", netlink, 20, struct.pack("BBBBi", socket.AF_INET, 32, 0, 0, 1) + attr(2, socket.inet_aton(home)), 0x600)
    attempt("TCP to the own address", "ECONNREFUSED", connect, home)
    attempt("UDP to the own address", "ECONNREFUSED|ECONNRESET", ask, home)
    with socket.create_server(("", PORT)) as server:  # the port is free here
        attempt("own server", "reached", connect, "127.0.0.1")
    call(libc.unshare(NEWNET))
    rounds()
    inherited.send(b"child")  # of the run, made before
    return count


tcp = socket.create_server(("", PORT))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", PORT))
a = socket.create_connection(("127.0.0.1", PORT))
b, _ = tcp.accept()
spaces = [os.open(f"/proc/{os.getpid()}/ns/net", os.O_RDONLY), os.pidfd_open(os.getpid())]
before = names(), socket.if_nameindex()
sys.stdout.flush()
pid = os.fork()
if not pid:
    try:
        n = inside(a, spaces)
        print("attempts:", n)
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
_, status = os.waitpid(pid, 0)
print("child:", status, b.recv(9).decode() if not status else "")
print("arrived:", len(select.select([tcp, udp], [], [], 0)[0]))
print("changed:", (names(), socket.if_nameindex()) != before)
attempt("home", "reached", connect, "127.0.0.1")
