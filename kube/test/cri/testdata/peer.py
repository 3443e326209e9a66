# SPDX-License-Identifier: Apache-2.0
"""Servers in a pod, for the clients of forward.py. The output says what they receive."""
import os
import socket
import struct
import sys
import threading

RESET = struct.pack("ii", 1, 0)


def say(*words):
    print(*words, flush=True)


def serve(family, address, port, handle):
    s = socket.socket(family)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, port))
    s.listen(200)
    threading.Thread(target=accept, args=(s, handle)).start()
    return s


def accept(s, handle):
    while True:
        try:
            c, _ = s.accept()
        except OSError:
            return
        threading.Thread(target=handle, args=(c,)).start()


def total(c):
    """Count until the end, then answer."""
    n = 0
    while data := c.recv(1 << 16):
        n += len(data)
    c.sendall(b"%d bytes" % n)
    c.close()


def send(c):
    """Send much, and then end."""
    c.sendall(bytes(range(256)) * 40000)
    c.close()


def answer(c):
    c.sendall(b"answer to " + c.recv(100))
    c.close()


def reset(c):
    c.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    c.close()


def notice(c):
    """Tell how the connection ends."""
    with c:
        try:
            while c.recv(1 << 16):
                pass
            say("end")
        except ConnectionResetError:
            say("reset")


def stall(c):
    """Read nothing."""
    stalled.append(c)


stalled = []
serve(socket.AF_INET, "127.0.0.1", 7001, total)
serve(socket.AF_INET6, "::1", 7002, total)
serve(socket.AF_INET, "0.0.0.0", 7003, send)
serve(socket.AF_INET, "127.0.0.1", 7004, reset)
serve(socket.AF_INET, "127.0.0.1", 7005, notice)
serve(socket.AF_INET, "127.0.0.1", 7006, stall)
ending = serve(socket.AF_INET, "127.0.0.1", 7007, total)


def end(c):
    ending.shutdown(socket.SHUT_RDWR)
    ending.close()
    c.sendall(b"ended")
    c.close()


serve(socket.AF_INET, "127.0.0.1", 7008, end)
serve(socket.AF_INET, "127.0.0.1", 7009, answer)
say("ready")
