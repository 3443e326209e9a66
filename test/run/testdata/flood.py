# SPDX-License-Identifier: Apache-2.0
"""TestFlood: one process floods the stack; another one, or a thread, counts its round trips."""
import ctypes
import os
import resource
import socket
import struct
import sys
import threading

kind, size, trips, other = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
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


def filters():  # on sockets that were made before
    if not keep:
        keep.extend(socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(size))
    code = ctypes.create_string_buffer(bytes(8) * 4095 + struct.pack("HBBI", 6, 0, 0, 1))
    keep[made].setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 4096, ctypes.addressof(code)))


def neighbours():  # that do not expire
    if not keep:
        keep.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
    for host in range(256):
        keep[0].send(struct.pack("=IHHII BBHiHBB HHI HH8s", 48, 28, 0x605, 1, 0, 2, 0, 0, 2, 0x80, 0, 0,
                                 8, 1, made << 8 | host, 10, 2, b"\2"))
        error = struct.unpack_from("16xi", keep[0].recv(4096))[0]
        if error:
            raise OSError(-error, os.strerror(-error))


def origins():  # datagrams of more senders than lklhost has sockets for
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    keep.append(s)
    for _ in range(9):
        s.sendto(bytes(60000), socket.MSG_DONTWAIT, s.getsockname())


def streams():  # whose data stay before a small buffer of the stack
    if not keep:
        keep.append(socket.create_server(("127.0.0.1", 0)))
    client = socket.socket()
    client.connect(keep[0].getsockname())
    keep.append((client, keep[0].accept()[0]))
    for end in keep[-1]:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.setblocking(False)
        try:
            while True:
                end.send(bytes(65536))
        except BlockingIOError:
            pass


def raw():  # packets that nobody receives, in buffers beyond the usual limit
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 140 + made % 100)
    keep.append(s)
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    try:
        for _ in range(140):
            s.sendto(bytes(60000), socket.MSG_DONTWAIT, ("127.0.0.1", 0))
    except BlockingIOError:
        pass


def count():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server = listener.accept()[0]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    os.write(opened, b"x")
    os.read(go, 1)
    for _ in range(trips):
        udp.sendto(b"x", udp.getsockname())
        udp.recv(1)
        client.sendall(b"x")
        server.sendall(server.recv(1))
        client.recv(1)
    os.write(end, b"x")


limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
ready, opened = os.pipe()
go, begin = os.pipe()
done, end = os.pipe()
if other == "thread":
    threading.Thread(target=count, daemon=True).start()
elif not os.fork():
    count()
    os._exit(0)
os.read(ready, 1)
try:
    for made in range(size):
        globals()[kind]()
except OSError as e:
    print(kind, made, e, file=sys.stderr)
print("flooded", flush=True)
os.write(begin, b"x")
os.read(done, 1)
print("done", flush=True)
os.read(0, 1)
os._exit(0)
