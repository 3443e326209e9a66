# SPDX-License-Identifier: Apache-2.0
"""The target of TestErrorKeepsDatagrams: sends 300 datagrams faster than the pace of its
socket, with one among them that is too long, and prints how many have arrived in order.
"""
import select
import socket
import subprocess

subprocess.run(["tc", "qdisc", "replace", "dev", "lo", "root", "fq", "flow_limit", "1000"], check=True)
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 5000))
receiver.settimeout(20)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, 47, 500000)  # SO_MAX_PACING_RATE
sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
sender.connect(("127.0.0.1", 5000))
sender.setblocking(False)


def send(data):
    while True:
        try:
            return sender.send(data)
        except BlockingIOError:
            select.select([], [sender], [], 20)
        except OSError as e:  # of the long one
            print(e.strerror)
            if len(data) > 60000:
                return 0


for i in range(300):
    send(b"%d " % i + bytes(500))
    if i == 150:
        send(bytes(65508))
for i in range(300):
    n = int(receiver.recv(1000).split()[0])
    if n != i:
        print("datagram %d in place of %d" % (n, i))
        break
else:
    print("all arrived")
