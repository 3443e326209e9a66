# SPDX-License-Identifier: Apache-2.0
#
# A program that uses the stack in an ordinary way and ends with 0 if everything
# worked.

import os, socket, threading
for host in "127.0.0.1", "::1":
    s = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    data = os.urandom(300000)
    def serve():
        c = s.accept()[0]
        while d := c.recv(65536): c.sendall(d)
        c.close()
    t = threading.Thread(target=serve); t.start()
    c = socket.create_connection(s.getsockname()[:2], 20)
    w = threading.Thread(target=lambda: (c.sendall(data), c.shutdown(socket.SHUT_WR))); w.start()
    got = b""
    while d := c.recv(65536): got += d
    assert got == data, len(got)
    w.join(); t.join(); c.close(); s.close()
    a, b = (socket.socket(s.family, socket.SOCK_DGRAM) for _ in "ab")
    a.bind((host, 0)); a.settimeout(20)
    b.sendto(data[:1000], a.getsockname()[:2])
    assert a.recvfrom(2000)[0] == data[:1000]
    try: socket.create_connection((host, 1), 20)
    except ConnectionRefusedError: pass
    else: assert False
assert socket.if_indextoname(1) # a long fuzzing run renames lo
