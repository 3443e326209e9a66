# SPDX-License-Identifier: Apache-2.0
"""The target of TestPacketSocketOnTun: is the other end of a tun, and answers each ping once.
Prints the packets that a packet socket sees, and those that come to the other end.
"""
import fcntl
import os
import select
import socket
import struct
import subprocess

tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"tun7", 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
for command in "addr add 10.9.0.1/24 dev tun7", "link set tun7 up":
    subprocess.run(["ip", *command.split()], check=True)
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.bind(("tun7", 3))
names = {socket.PACKET_HOST: "in", socket.PACKET_OUTGOING: "out"}


def is_icmp(p):
    return p[0] >> 4 == 4 and p[9] == 1


def other_end(limit):
    """the next ICMP packet that comes to the other end, or None"""
    while select.select([tun], [], [], limit)[0]:
        p = os.read(tun, 2000)
        if is_icmp(p):
            return p
    return None


def seen():
    while True:
        p, where = packets.recvfrom(2000)
        if is_icmp(p):
            print(names.get(where[2], where[2]), "type", p[20], "from", socket.inet_ntoa(p[12:16]), "hatype", where[3], flush=True)
            return p


ping = subprocess.Popen(["ping", "-c", "1", "-W", "20", "10.9.0.2"], stdout=subprocess.DEVNULL)
p = other_end(20)
request = seen()
if request != p:
    print("other bytes")
icmp = bytes([0, 0]) + struct.pack("!H", (struct.unpack("!H", p[22:24])[0] + 0x800) % 0xFFFF) + p[24:]
os.write(tun, p[:12] + p[16:20] + p[12:16] + icmp)
seen()
print("ping", ping.wait())
packets.send(request)  # out of the device, once
print("sent", other_end(20) == request, flush=True)
packets.settimeout(20)
print("again", other_end(0.3))
for command in "link set tun7 down", "link set tun7 name tun8", "link set tun8 up":
    subprocess.run(["ip", *command.split()], check=True)
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
packets.bind(("tun8", 3))
packets.sendto(request, ("tun8", 0x800))
print("renamed, sent", other_end(20) == request)
