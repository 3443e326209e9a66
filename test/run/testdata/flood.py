# SPDX-License-Identifier: Apache-2.0
"""TestFlood: one process floods the stack; another one counts its round trips."""
import os
import resource
import socket
import sys
import threading

kind, size, trips = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
keep = []


def sockets():
    keep.append(socket.socket())


def buffers():  # datagrams that nobody receives
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    keep.append(s)
    for _ in range(100):
        try:
            s.sendto(bytes(60000), socket.MSG_DONTWAIT, s.getsockname())
        except BlockingIOError:
            break


def replies():  # of netlink
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    keep.append(s)
    try:
        for i in range(50):
            s.send(bytes([32, 0, 0, 0, 18, 0, 1, 3]) + bytes(24), socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass


def waits():  # calls that do not return
    threading.stack_size(65536)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    keep.append(s)
    s.bind(("127.0.0.1", 0))
    threading.Thread(target=s.recvfrom, args=(1,), daemon=True).start()


limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
go, begin = os.pipe()
done, end = os.pipe()
if not os.fork():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server = listener.accept()[0]
    os.read(go, 1)
    for _ in range(trips):
        client.sendall(b"x")
        server.sendall(server.recv(1))
        client.recv(1)
    os.write(end, b"x")
    os._exit(0)
try:
    for made in range(size):
        globals()[kind]()
except OSError as e:
    print(kind, made, e, file=sys.stderr)
print("flooded", flush=True)
os.write(begin, b"x")
os.read(done, 1)
print("done", flush=True)
os._exit(0)
