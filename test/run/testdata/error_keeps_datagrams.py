# SPDX-License-Identifier: Apache-2.0
"""The target of TestErrorKeepsDatagrams: sends datagrams faster than the pace of its socket,
one of which is too long, and others while these wait. Prints which ones arrive.
"""
import socket
import subprocess

for command in "ip link set lo mtu 1500", "tc qdisc replace dev lo root fq":
    subprocess.run(command.split(), check=True)
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 5000))
receiver.settimeout(20)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, 47, 10000)  # SO_MAX_PACING_RATE, bytes in a second
sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
sender.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
sender.connect(("127.0.0.1", 5000))
for i in range(15):
    sender.send(b"%d " % i + bytes(500))
sender.send(bytes(3000))
got = [receiver.recv(1000)]  # the others wait for their time
for i in range(15, 35):
    sender.send(b"%d " % i + bytes(500))
while len(got) < 35:
    got.append(receiver.recv(1000))
print(*(int(data.split()[0]) for data in got))
