# SPDX-License-Identifier: Apache-2.0
"""The target of TestPrivileges: gives up what it may, then uses sockets.

Arguments, in this order as far as given: chroot DIR, groups, uid N, caps,
undumpable. It has a connection from before, and makes new ones afterwards.
"""

import ctypes
import os
import select
import socket
import sys

LIMIT = 20
libc = ctypes.CDLL(None, use_errno=True)


def call(f, *args):
    if f(*args):
        raise OSError(ctypes.get_errno(), f.__name__)


def pair(lis):
    c = socket.create_connection(lis.getsockname(), LIMIT)
    a, name = lis.accept()
    assert name == c.getsockname(), (name, c.getsockname())
    return c, a


def talk(c, a):
    c.sendall(b"ping")
    assert a.recv(9) == b"ping"
    p = select.poll()
    p.register(c, select.POLLIN)
    a.sendall(b"pong")
    assert p.poll(LIMIT * 1000)
    assert c.recvfrom(9)[0] == b"pong"
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


lis = socket.create_server(("127.0.0.1", 0))
lis.settimeout(LIMIT)
old = pair(lis)
words = sys.argv[1:]
while words:
    what = words.pop(0)
    if what == "chroot":
        os.chroot(words.pop(0))
        os.chdir("/")
    elif what == "groups":
        os.setgroups([])
    elif what == "uid":
        uid = int(words.pop(0))
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif what == "caps":
        for cap in range(41):
            libc.prctl(24, cap, 0, 0, 0)  # PR_CAPBSET_DROP
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        call(libc.capset, header, (ctypes.c_uint32 * 6)())
    elif what == "undumpable":
        call(libc.prctl, 4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
talk(*old)
talk(*pair(lis))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(LIMIT)
u.bind(("127.0.0.1", 0))
u.sendto(b"datagram", u.getsockname())
assert u.recvfrom(99) == (b"datagram", u.getsockname())
u.connect(u.getsockname())
u.send(b"another")
assert u.recvmsg(99)[0] == b"another"
pid = os.fork()
if not pid:
    talk(*pair(lis))
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("all well", os.getresuid()[0])
