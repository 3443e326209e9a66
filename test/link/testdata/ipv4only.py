# SPDX-License-Identifier: Apache-2.0
"""Exchanges data with echo servers at an IPv4 address: sys.argv[1], port 7."""
import hashlib, os, socket, struct, sys, threading

server = (sys.argv[1], 7)
size = 16 << 20

# Much data in both directions at the same time.
tcp = socket.create_connection(server, 20)
tcp.settimeout(60)
sent, came, n = hashlib.sha256(), hashlib.sha256(), 0


def send():
    left = size
    while left:
        block = os.urandom(min(left, 1 << 18))
        sent.update(block)
        tcp.sendall(block)
        left -= len(block)
    tcp.shutdown(socket.SHUT_WR)


sender = threading.Thread(target=send)
sender.start()
while True:
    block = tcp.recv(1 << 18)
    if not block:
        break
    came.update(block)
    n += len(block)
sender.join()
assert sent.digest() == came.digest(), "other bytes came back"
print("tcp:", n, "bytes came back")

# Datagrams with and without fragments. The server's network first has to learn that 1472
# bytes are too many.
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(2)
good = []
for length in (10, 1400, 1452, 1472, 4000, 9000):
    data = os.urandom(length)
    for attempt in range(9):
        udp.sendto(data, server)
        try:
            got = udp.recv(65536)
        except TimeoutError:
            continue
        assert got == data, length
        good.append(length)
        break
print("udp:", *good)

# An echo request without privileges, or with them.
ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
ping.settimeout(20)
request = struct.pack("!BBHHH", 8, 0, 0, 77, 1) + b"payload!"
check = sum(struct.unpack("!%dH" % (len(request) // 2), request))
check = (check & 0xFFFF) + (check >> 16)
ping.sendto(request[:2] + struct.pack("!H", ~check & 0xFFFF) + request[4:], server)
while True:
    answer = ping.recv(2048)[20:]
    if answer[0] == 0 and answer[4:] == request[4:]:
        break
print("ping: answered")
