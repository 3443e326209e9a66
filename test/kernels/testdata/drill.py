# SPDX-License-Identifier: Apache-2.0
"""The part of packetdrill that depends on the stack: a handshake with a peer that is this program,
on the other side of a tun device, a command of the script, and times."""
import fcntl
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time

IFF_TUN, IFF_NO_PI, TUNSETIFF, SIOCSIFFLAGS, SIOCGSTAMP = 1, 0x1000, 0x400454ca, 0x8914, 0x8906
opts = dict(a[2:].split("=") for a in sys.argv[1:-1] if a.startswith("--"))
script = open(sys.argv[-1]).read()
if opts["ip_version"] != "ipv4":
    print("only IPv4")
    sys.exit(4)
local, remote = opts["local_ip"], opts["remote_ip"]
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN | IFF_NO_PI))
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", b"tun0", 0x41))
for command in (f"ip addr add {local}/16 dev tun0", f"ip route add 192.0.2.0/24 dev tun0",
                re.search("`(.*)`", script).group(1)):
    subprocess.run(command, shell=True, check=True)
listener = socket.socket()
listener.bind((local, 8080))
listener.listen()


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff


def segment(flags, seq, ack):
    ends = socket.inet_aton(remote) + socket.inet_aton(local)
    tcp = struct.pack("!HHIIBBHHH", 40000, 8080, seq, ack, 0x50, flags, 1000, 0, 0)
    tcp = tcp[:16] + struct.pack("!H", checksum(ends + struct.pack("!HH", 6, len(tcp)) + tcp)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + ends
    os.write(tun, ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + tcp)


sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sniffer.bind(("tun0", 0))
peer = []
thread = threading.Thread(target=lambda: peer.append(listener.accept()), daemon=True)
thread.start()
state = ""
while state != "S":  # it waits in accept()
    os.sched_yield()
    state = open(f"/proc/{os.getpid()}/task/{thread.native_id}/stat").read().split()[2]
began = time.time()
time.sleep(200)
segment(0x02, 100, 0)
while True:
    packet = os.read(tun, 2000)
    if packet[0] == 0x45 and packet[9] == 6:
        break
while sniffer.recvfrom(2000)[1][2] != socket.PACKET_OUTGOING:
    pass
seen = struct.unpack("ll", fcntl.ioctl(sniffer, SIOCGSTAMP, bytes(16)))
slept = seen[0] + seen[1] / 1e6 - began
if abs(slept - 200) > 0.001:
    print(f"{sys.argv[-1]}:2: the answer came after {slept} s")
    sys.exit(1)
window = struct.unpack_from("!H", packet, 34)[0]
if packet[33] != 0x12 or window != int(re.search(r"win (\d+)", script).group(1)):
    print(f"{sys.argv[-1]}:3: flags {packet[33]:#x}, window {window}")
    sys.exit(1)
segment(0x10, 101, struct.unpack_from("!I", packet, 24)[0] + 1)
thread.join()
print("peer", peer[0][1][0])
