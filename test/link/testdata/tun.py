# SPDX-License-Identifier: Apache-2.0
# Requests of tun devices, and packets through them.
import errno, fcntl, os, select, socket, struct, subprocess, sys

SETIFF, GETIFF, PERSIST, FEATURES = 0x400454ca, 0x800454d2, 0x400454cb, 0x800454cf
OFFLOAD, TUN, TAP, NO_PI = 0x400454d0, 1, 2, 0x1000

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
check("features", struct.unpack("I", fcntl.ioctl(os.open("/dev/net/tun", os.O_RDWR), FEATURES, bytes(4)))[0] & (TUN | TAP | NO_PI | 0x4000), TUN | TAP | NO_PI)
fails(errno.EEXIST, fcntl.ioctl, f, SETIFF, bytes(40))
fails(errno.EBUSY, attach, "tun0")
fails(errno.EINVAL, attach, "tun1", NO_PI)
fails(errno.EINVAL, attach, "tun1", TUN)
fails(errno.EINVAL, fcntl.ioctl, f, OFFLOAD, 1)
fails(errno.ENOTTY, fcntl.ioctl, os.pipe()[0], SETIFF, bytes(40))
fails(errno.EAGAIN, os.read, f, 1)

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
