# SPDX-License-Identifier: Apache-2.0
"""Gives work to every helper thread of lklhost: accepts connections, sends to another
machine, and receives into memory that does not exist yet."""
import mmap
import socket
import sys
import threading

listener = socket.create_server(("127.0.0.1", 8000), backlog=64)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 9000))
away = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
threading.Thread(target=lambda: [listener.accept()[0].close() for _ in iter(int, 1)], daemon=True).start()
print("started", flush=True)
for _ in range(2000):
    socket.create_connection(("127.0.0.1", 8000)).close()
    away.sendto(bytes(1000), (sys.argv[1], 9))
    datagrams.sendto(bytes(1000), ("127.0.0.1", 9000))
    datagrams.recvfrom_into(mmap.mmap(-1, 1 << 20))
