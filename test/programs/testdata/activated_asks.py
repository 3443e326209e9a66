# SPDX-License-Identifier: Apache-2.0
#
# Asks activated_listener.py and activated_datagrams.py. Argument: the address.

import socket, sys, threading
n = 0
def ask():
    global n
    s = socket.create_connection((sys.argv[1], 7000), 20)
    s.sendall(b"asked")
    with lock: n += s.makefile("rb").read() == b"ASKED"
lock = threading.Lock()
all = [threading.Thread(target=ask) for _ in range(20)]
for t in all: t.start()
for t in all: t.join()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(1)
u.connect((sys.argv[1], 7002))
m = 0
while m < 20: # the first may be sent before the server is ready
    try:
        u.send(b"asked %d" % m)
        m += u.recv(100) == b"ASKED %d" % m
    except (TimeoutError, ConnectionRefusedError): pass
print(n, "of a listener,", m, "datagrams")
