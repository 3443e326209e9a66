# SPDX-License-Identifier: Apache-2.0
# Requests of tun devices, and packets through them.
import errno, fcntl, os, select, socket, struct, subprocess, sys

SETIFF, GETIFF, PERSIST, FEATURES = 0x400454ca, 0x800454d2, 0x400454cb, 0x800454cf
OFFLOAD, GETHEAD, SETHEAD, TUN, TAP, NO_PI, HEAD = 0x400454d0, 0x800454d7, 0x400454d8, 1, 2, 0x1000, 0x4000

def attach(name, flags=TUN | NO_PI, mode=os.O_RDWR):
    f = os.open("/dev/net/tun", mode)
    return f, fcntl.ioctl(f, SETIFF, struct.pack("16sH22x", name.encode(), flags))[:16].rstrip(b"\0").decode()

def fails(want, call, *args):
    try:
        got = call(*args)
    except OSError as e:
        if e.errno == want:
            return
        got = e
    print(f"{call.__name__}{args}: {got}, want {errno.errorcode[want]}")

def ip(*args):
    return subprocess.run(["ip", *args], capture_output=True, text=True)

def exists(name):
    return ip("link", "show", name).returncode == 0

def check(what, got, want):
    if got != want:
        print(f"{what}: {got!r}, want {want!r}")

f, name = attach("", mode=os.O_RDWR | os.O_NONBLOCK)
check("name", name, "tun0")
check("TUNGETIFF", struct.unpack_from("16sH", fcntl.ioctl(f, GETIFF, bytes(40))), (b"tun0".ljust(16, b"\0"), TUN | NO_PI))
check("features", struct.unpack("I", fcntl.ioctl(os.open("/dev/net/tun", os.O_RDWR), FEATURES, bytes(4)))[0] & (TUN | TAP | NO_PI | HEAD), TUN | TAP | NO_PI | HEAD)
fails(errno.EEXIST, fcntl.ioctl, f, SETIFF, bytes(40))
fails(errno.EBUSY, attach, "tun0")
fails(errno.EINVAL, attach, "tun1", NO_PI)
fails(errno.EINVAL, fcntl.ioctl, f, OFFLOAD, 1)
fails(errno.ENOTTY, fcntl.ioctl, os.pipe()[0], SETIFF, bytes(40))
fails(errno.EAGAIN, os.read, f, 1)
# Other files with the name of the device, and other multiplexers, are no tun.
subprocess.run(["unshare", "-m", *(["-Ur"] if os.getuid() else []), "sh", "-c", """
mount --bind /dev/null /dev/net/tun && "$@" /dev/net/tun && exec "$@" /dev/ptmx""", "-", sys.executable, "-c", f"""
import errno, fcntl, os, sys
try:
    print(sys.argv[1], "is taken for a tun:", fcntl.ioctl(os.open(sys.argv[1], os.O_RDWR), {FEATURES}, bytes(4)))
except OSError as e:
    if e.errno != errno.ENOTTY:
        print(sys.argv[1], e)
"""], check=True)

ip("addr", "add", "10.99.0.1/24", "dev", "tun0")
ip("link", "set", "tun0", "up", "mtu", "1400")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.99.0.1", 9))
s.settimeout(10)
poll = select.epoll()
poll.register(f, select.EPOLLIN)
s.sendto(b"question", ("10.99.0.2", 9))
check("poll", len(poll.poll(10)), 1)
packet = os.read(f, 2000)
check("packet", packet[28:], b"question")
answer = bytearray(packet[:28]) + b"answer!!"
answer[12:16], answer[16:20] = packet[16:20], packet[12:16]
answer[26:28] = b"\0\0"   # no checksum
check("written", os.write(f, answer), len(answer))
check("answer", s.recv(100), b"answer!!")
os.close(f)
while exists("tun0"):   # the test has a limit
    pass

# A header before each packet. The reader says which unfinished packets it accepts.
f, name = attach("", TUN | NO_PI | HEAD)
check("TUNGETIFF", struct.unpack_from("16xH", fcntl.ioctl(f, GETIFF, bytes(40)))[0], TUN | NO_PI | HEAD)
check("TUNGETVNETHDRSZ", fcntl.ioctl(f, GETHEAD, bytes(4)), struct.pack("I", 10))
fails(errno.EINVAL, fcntl.ioctl, f, SETHEAD, struct.pack("I", 12))
fails(errno.EINVAL, fcntl.ioctl, f, OFFLOAD, 0x100)
ip("addr", "add", "10.98.0.1/24", "dev", name)
ip("link", "set", name, "up")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for offload, want in (0, (0, 0)), (1, (1, 0)), (0, (0, 0)):
    fcntl.ioctl(f, OFFLOAD, offload)
    s.sendto(b"question", ("10.98.0.2", 9))
    packet = os.read(f, 2000)
    check(f"header with offloads {offload}", (packet[0:2], packet[38:]), (bytes(want), b"question"))

def tcp(flags, seq, ack, packet):   # an answer to a packet; its checksum is left to the stack
    ports = packet[32:34] + packet[30:32]
    body = ports + struct.pack("!IIBBHHH", seq, ack, 0x50, flags, 65535, 0, 0)
    head = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + packet[26:30] + packet[22:26])
    sum = 0xffff - sum_of(head) % 0xffff
    head[10:12] = struct.pack("!H", sum)
    return struct.pack("BBHHHH", 1, 0, 0, 0, 20, 16) + bytes(head) + body

def sum_of(head):
    return sum(struct.unpack("!10H", head))

for offload, most in (0, 0), (0xf, 1), (0x7, 0):   # of TSO without ECN, nothing is used
    fcntl.ioctl(f, OFFLOAD, offload)
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("10.98.0.2", 80))
    syn = os.read(f, 2000)
    seq, = struct.unpack_from("!I", syn, 34)
    os.write(f, tcp(0x12, 100, seq + 1, syn))
    ack = os.read(f, 2000)
    check("acknowledged", struct.unpack_from("!II", ack, 34), (seq + 1, 101))
    check("connected", len(select.select([], [s], [], 10)[1]), 1)
    check("sent", s.send(bytes(4000)), 4000)
    packet = os.read(f, 65600)
    check(f"segmented by the reader with offloads {offload}", (packet[1] & 0x7f, len(packet) > 1600), (most, bool(most)))
    os.write(f, tcp(0x14, 101, seq + 1, syn))   # reset, so that nothing is sent again
    while not select.select([s], [], [], 0)[0]:
        pass
    while select.select([f], [], [], 0)[0]:
        os.read(f, 65600)
os.close(f)
while exists(name):
    pass

# Packet information before each packet, and before the header: flags and EtherType.
for kind, head, net in (TUN, 0, "10.97.1"), (TUN, HEAD, "10.97.2"), (TAP, 0, "10.97.3"):
    f, name = attach("", kind | head)
    check("TUNGETIFF", struct.unpack_from("16xH", fcntl.ioctl(f, GETIFF, bytes(40)))[0], kind | head)
    ip("addr", "add", net + ".1/24", "dev", name)
    ip("link", "set", name, "up")
    start = 4 + (10 if head else 0)
    ether = 14 if kind == TAP else 0
    if ether:
        ip("neigh", "add", net + ".2", "lladdr", "02:00:00:00:00:02", "dev", name)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((net + ".1", 9))
    s.settimeout(10)
    s.sendto(b"question", (net + ".2", 9))
    while not (packet := os.read(f, 2000)).endswith(b"question"):   # IPv6 may come first
        check("information of an IPv6 packet", (packet[:4], packet[start + ether] >> 4), (b"\0\0\x86\xdd", 6))
    check("information", packet[:4], b"\0\0\x08\0")
    at = start + ether
    check("packet", (packet[at], packet[at + 28:]), (0x45, b"question"))
    answer = bytearray(packet[:at + 28]) + b"answer!!"
    answer[4:start] = bytes(start - 4)
    if ether:
        answer[start:start + 12] = packet[start + 6:start + 12] + packet[start:start + 6]
    answer[at + 12:at + 16], answer[at + 16:at + 20] = packet[at + 16:at + 20], packet[at + 12:at + 16]
    answer[at + 26:at + 28] = b"\0\0"   # no checksum
    check("written", os.write(f, answer), len(answer))
    check("answer", s.recv(100), b"answer!!")
    os.close(f)
    while exists(name):
        pass

for kind in ("tun", "tap"):
    check("ip tuntap add", ip("tuntap", "add", "kept", "mode", kind).returncode, 0)
    check("persistent", exists("kept"), True)
    f, name = attach("kept", NO_PI | (TUN if kind == "tun" else TAP))
    fails(errno.EINVAL, attach, "kept", NO_PI | (TAP if kind == "tun" else TUN))
    os.close(f)
    check("ip tuntap del", ip("tuntap", "del", "kept", "mode", kind).returncode, 0)
    while exists("kept"):
        pass
f, name = attach("tun%d")
print("done", os.getpid(), flush=True)
sys.stdin.read()
