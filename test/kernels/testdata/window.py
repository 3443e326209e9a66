# SPDX-License-Identifier: Apache-2.0
# The server reads all bytes. The client sends 10 MiB over each of three connections in turn.
# It prints the largest window, in bytes, that the server has offered, of the connection for
# which this window was smallest.
import socket, struct, sys

if sys.argv[1:] == ["serve"]:
    with socket.create_server(("", 5000)) as l:
        while True:
            c, _ = l.accept()
            while c.recv(1 << 18):
                pass
            c.close()

def send():
    largest = 0
    with socket.create_connection(("server", 5000)) as s:
        for _ in range(160):
            s.sendall(bytes(1 << 16))
            info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            largest = max(largest, struct.unpack_from("I", info, 228)[0])  # tcpi_snd_wnd
    return largest

print(min(send() for _ in range(3)))
