# SPDX-License-Identifier: Apache-2.0
#
# Creates 20,000 pairs of UDP ports with one socket, and keeps using the first
# pair. Then it sends requests to the servers of UDP and TCP.

import socket, sys
host = sys.argv[1]
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
used = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
used.settimeout(20)
used.connect((host, 9))
def alive(s, text):
    s.send(text)
    assert s.recv(100) == text, "another answer"
alive(used, b"first")
name = used.getsockname()
for i in range(20000):
    flood.sendto(b"x", (host, 20001 + i))
    if i % 500 == 0:
        alive(used, b"%d" % i)
print("flooded", flush=True)
new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
new.settimeout(20)
new.connect((host, 9))
alive(new, b"new")
c = socket.create_connection((host, 80), 20)
c.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
assert b"200 OK" in c.recv(1000), "the web server"
print("alive", flush=True)
sys.stdin.read()
