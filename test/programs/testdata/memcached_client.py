# SPDX-License-Identifier: Apache-2.0
#
# Stores and gets 100 values at once, and one over UDP. Argument: the address.

import socket, sys, threading
addr = (sys.argv[1], 11211)
stored = right = 0
lock = threading.Lock()
def one(i):
    global stored, right
    value = bytes([i]) * (1000 * (i + 1))
    s = socket.create_connection(addr, 20)
    f = s.makefile("rwb")
    f.write(b"set k%d 0 0 %d\r\n%s\r\n" % (i, len(value), value))
    f.flush()
    ok = f.readline() == b"STORED\r\n"
    f.write(b"get k%d\r\n" % i)
    f.flush()
    f.readline()
    same = f.read(len(value)) == value
    with lock:
        stored += ok
        right += same
threads = [threading.Thread(target=one, args=(i,)) for i in range(100)]
for t in threads: t.start()
for t in threads: t.join()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(20)
u.connect(addr)
u.send(b"\0\1\0\0\0\1\0\0set u 0 0 1\r\nx\r\n")
print(f"{stored} stored, {right} right, {u.recv(1500)[8:].decode().strip()} over UDP")
