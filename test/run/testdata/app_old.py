# SPDX-License-Identifier: Apache-2.0
#
# Makes system calls of x86-64 that Android's C library does not make, and prints the results.
# Argument: "app" under an app's filter.
import ctypes
import errno
import os
import signal
import socket
import struct
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)


def call(nr, *args):
    ret = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode[ctypes.get_errno()] if ret < 0 else ret


def show(name, *results):
    print(name, *results)


os.chdir(tempfile.mkdtemp(dir=os.environ.get("LKLRUN_RUN_DIR")))
listener = socket.socket(socket.AF_UNIX)
listener.bind("socket")
listener.listen()
show("mkdir", call(83, b"d", 0o700), call(83, b"d", 0o700), os.path.isdir("d"))
show("rename", call(82, b"d", b"e"), call(82, b"d", b"e"), sorted(os.listdir(".")))
show("rmdir", call(84, b"e"), call(84, b"e"))
open("f", "w").write("text")
show("symlink", call(88, b"f", b"l"), call(88, b"f", b"l"))
show("link", call(86, b"f", b"g"), call(86, b"f", b"g"), os.stat("f").st_nlink)
show("chmod", call(90, b"f", 0o640), oct(os.stat("f").st_mode))
show("chown", call(92, b"f", os.getuid(), os.getgid()), call(92, b"none", 0, 0))
show("lchown", call(94, b"l", os.getuid(), os.getgid()))
buf = ctypes.create_string_buffer(144)
show("stat", call(4, b"l", buf), struct.unpack_from("q", buf, 48)[0], call(4, b"none", buf))
show("lstat", call(6, b"l", buf), struct.unpack_from("q", buf, 48)[0])
show("readlink", call(89, b"l", buf, 144), buf[:1])
show("unlink", call(87, b"l"), call(87, b"l"))
pair = (ctypes.c_int * 2)()
show("pipe", call(22, pair), os.write(pair[1], b"x"))
show("dup2", call(33, pair[0], 77), call(33, pair[0], pair[0]) == pair[0], call(33, 999, 999), call(33, 999, 5), os.read(77, 1))
pfd = ctypes.create_string_buffer(struct.pack("ihh", pair[0], 1, 0), 8)
show("poll", call(7, pfd, 1, 0), call(7, pfd, 1, 20), os.write(pair[1], b"y"), call(7, pfd, 1, -1), struct.unpack("ihh", pfd.raw)[2])
bits = ctypes.create_string_buffer(128)
bits[pair[0] // 8] = 1 << pair[0] % 8
none = ctypes.create_string_buffer(128)
tv = ctypes.create_string_buffer(struct.pack("qq", 0, 1000), 16)
show("select", call(23, pair[0] + 1, bits, 0, 0, 0), os.read(pair[0], 1), call(23, pair[0] + 1, bits, 0, 0, tv))
ep = libc.epoll_create1(0)
event = ctypes.create_string_buffer(struct.pack("=IQ", 1, 4242), 12)
show("epoll_wait", call(233, ep, 1, pair[0], event), call(232, ep, buf, 1, 0), os.write(pair[1], b"z"), call(232, ep, buf, 1, 1000), struct.unpack_from("=IQ", buf))
show("getpgrp", call(111) == os.getpgid(0))
peer = socket.socket(socket.AF_UNIX)
peer.connect("socket")
show("accept", call(43, listener.fileno(), 0, 0) > 2, call(43, 0, 0, 0) in ("ENOTSOCK", "EINVAL"))
signals = []
if sys.argv[1] == "app":
    show("pidfd_open", call(434, os.getpid(), 0))
    signal.signal(signal.SIGSYS, lambda *_: signals.append("SIGSYS"))
    call(434, os.getpid(), 0)
    print("own handler", signals)
