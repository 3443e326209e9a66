# SPDX-License-Identifier: Apache-2.0
#
# Connects, and accepts a connection, as programs of Android's C library do: netd gets each
# socket, and its answer decides whether the call succeeds (libnetd_client).
#
#     netd_client.py ADDRESS PORT

import array, os, socket, struct, sys, threading

ON_ACCEPT, ON_CONNECT = 0, 1


def tell(command, s):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as netd:
        try:
            netd.connect("/dev/socket/fwmarkd")
        except OSError:
            return
        netd.sendmsg([struct.pack("=iII", command, 0, 0)],
                     [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
        error, = struct.unpack("=i", netd.recv(4))
        if error:
            raise OSError(-error, os.strerror(-error))


def connected(to):
    s = socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET)
    s.settimeout(20)
    tell(ON_CONNECT, s)
    s.connect(to)
    return s


with socket.socket(socket.AF_UNIX) as names:
    print("names:", names.connect_ex("/dev/socket/dnsproxyd"))

with connected((sys.argv[1], int(sys.argv[2]))) as c:
    c.sendall(b"over the stack")
    print("connect:", c.recv(100).decode())

for to in "127.0.0.1", "::1":
    with socket.create_server((to, 0), family=socket.AF_INET6 if ":" in to else socket.AF_INET) as server:
        clients = []
        t = threading.Thread(target=lambda: clients.append(connected(server.getsockname()[:2])))
        t.start()
        a, _ = server.accept()
        tell(ON_ACCEPT, a)
        t.join()
        clients[0].sendall(b"on loopback")
        print("accept:", a.recv(100).decode())
