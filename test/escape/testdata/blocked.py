# SPDX-License-Identifier: Apache-2.0
"""The target of TestBlocked: calls that wait for something which the program blocks until
another process has made 100 round trips over the stack. Arguments: an address and port with
an echo, the engine, and a folder of the cgroup freezer or "-".
"""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import signal
import struct
import sys
import threading
import time

server, port, engine, freezer = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
trips = mmap.mmap(-1, 16)  # their number, and the longest of this row in ns


def count():
    return struct.unpack("Q", trips[:8])[0]


def go_on():
    s = socket.create_connection((server, port))
    for n in range(1 << 40):
        trips[:8] = struct.pack("Q", n)
        begin = time.monotonic_ns()
        s.sendall(b"x")
        s.recv(1)
        trips[8:] = struct.pack("Q", max(time.monotonic_ns() - begin, struct.unpack("Q", trips[8:])[0]))


def hundred_trips():
    before = count()
    while count() < before + 100:
        select.select([], [], [], 0.001)


def slow(content, wanted=None, page=None):
    """map a page whose content comes on demand, but only after 100 round trips"""
    fd = libc.syscall(323, os.O_NONBLOCK)  # poll requires this
    page = page or libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
    fcntl.ioctl(fd, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
    fcntl.ioctl(fd, 0xC020AA00, bytearray(struct.pack("QQQQ", page, 4096, 1, 0)))
    source = ctypes.create_string_buffer(content.ljust(4096, b"\0"), 4096)

    def come():
        select.select([fd], [], [])
        if wanted:
            wanted.set()
        hundred_trips()
        fcntl.ioctl(fd, 0xC028AA03, bytearray(struct.pack("QQQQq", page, ctypes.addressof(source), 4096, 0, 0)))
        os.close(fd)

    threading.Thread(target=come).start()
    return page


def at(page, n):
    return ctypes.string_at(page, n)


def call(name, *args):
    ret = getattr(libc, name)(*[ctypes.c_void_p(a) if isinstance(a, int) and a > 1 << 31 else a for a in args])
    return ret if ret >= 0 else os.strerror(ctypes.get_errno())


def udp(text=None):
    """two sockets; the second one has received the text"""
    a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for s in a, b:
        s.bind(("127.0.0.1", 0))
    if text:
        a.sendto(text, b.getsockname())
    return a, b


def sockaddr(s):
    return struct.pack("=H", 2) + struct.pack("!H4s8x", s.getsockname()[1], socket.inet_aton(s.getsockname()[0]))


def msghdr(base, size, name=0):
    iov = ctypes.create_string_buffer(struct.pack("QQ", base, size), 16)
    keep.append(iov)
    return struct.pack("QQQQQQQ", name, 16 if name else 0, ctypes.addressof(iov), 1, 0, 0, 0)


def buffer(content):
    keep.append(ctypes.create_string_buffer(content, max(len(content), 1)))
    return ctypes.addressof(keep[-1])


keep = []


def name_length():
    _, b = udp()
    name = buffer(bytes(16))
    return call("getsockname", b.fileno(), name, slow(struct.pack("I", 16))), at(name, 16) == sockaddr(b)


def received(where):
    a, b = udp(b"once")
    data = slow(b"") if where == "data" else buffer(bytes(9))
    header = slow(msghdr(data, 9)) if where == "header" else buffer(msghdr(data, 9))
    ret = call("recvmsg", b.fileno(), header, 0)
    a.sendto(b"next", b.getsockname())
    return ret, at(data, 4), b.recv(9)


def received_name():
    a, b = udp(b"once")
    name, data = slow(b""), buffer(bytes(9))
    ret = call("recvfrom", b.fileno(), data, 9, 0, name, buffer(struct.pack("I", 16)))
    return ret, at(name, 16) == sockaddr(a), at(data, 4)


def sent(where):
    a, b = udp()
    data = slow(b"once") if where == "data" else buffer(b"once")
    name = slow(sockaddr(b)) if where == "name" else buffer(sockaddr(b))
    ret = call("sendmsg", a.fileno(), buffer(msghdr(data, 4, name)), 0)
    got = b.recv(9)
    b.setblocking(False)
    try:
        got += b.recv(9)
    except BlockingIOError:
        pass
    return ret, got


def accepted(where):
    listener = socket.create_server(("127.0.0.1", 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
    name = slow(b"") if where == "name" else buffer(bytes(16))
    length = slow(struct.pack("I", 16)) if where == "length" else buffer(struct.pack("I", 16))
    one = socket.socket(fileno=call("accept", listener.fileno(), name, length))
    return at(name, 16) == sockaddr(clients[0]), one.getpeername() == clients[0].getsockname(), \
        listener.accept()[1] == clients[1].getsockname()


def option():
    _, b = udp()
    ret = call("setsockopt", b.fileno(), 0, 2, slow(struct.pack("I", 77)), 4)
    page = slow(b"")
    return ret, call("getsockopt", b.fileno(), 0, 2, page, buffer(struct.pack("I", 4))), at(page, 1)


def connected():
    a, b = udp()
    return call("connect", a.fileno(), slow(sockaddr(b)), 16), a.getpeername() == b.getsockname()


def received_length():
    a, b = udp(b"once")
    name, data = buffer(bytes(16)), buffer(bytes(9))
    ret = call("recvfrom", b.fileno(), data, 9, 0, name, slow(struct.pack("I", 16)))
    return ret, at(name, 16) == sockaddr(a), at(data, 4)


def gone():
    """a page that lklhost has accessed before"""
    _, b = udp()
    name = buffer(bytes(16))
    page = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
    ctypes.memmove(page, struct.pack("I", 16), 4)
    call("getsockname", b.fileno(), name, page)
    libc.madvise(ctypes.c_void_p(page), ctypes.c_size_t(4096), 4)
    return call("getsockname", b.fileno(), name, slow(struct.pack("I", 16), None, page)), at(name, 16) == sockaddr(b)


def locked_epoll(*files):
    """an epoll whose lock epoll_wait() holds"""
    ep, ready, locked = select.epoll(), os.pipe(), threading.Event()
    os.write(ready[1], b"x")
    ep.register(ready[0], select.EPOLLIN)
    for f in files:
        ep.register(f, select.EPOLLIN)
    page = slow(b"", locked)
    keep.append(ready)
    t = threading.Thread(target=call, args=("epoll_wait", ep.fileno(), page, 1, -1))
    t.start()
    locked.wait()
    return ep, t, ready


def replaced_in_epoll():
    s = socket.create_connection((server, port))
    ep, t, ready = locked_epoll(s)
    ret = call("connect", s.fileno(), buffer(bytes(16)), 16)  # AF_UNSPEC: another socket replaces it
    t.join()
    os.read(ready[0], 1)
    s.connect((server, port))
    s.sendall(b"x")
    return ret, [fd == s.fileno() for fd, _ in ep.poll()]


def closed_in_epoll():
    """the last duplicate of a socket is that of lklhost, when its accept() ends"""
    s = socket.create_server(("127.0.0.1", 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("QQ", 1, 0))
    number, ended = s.detach(), []
    t = threading.Thread(target=lambda: ended.append(call("accept", number, 0, 0)))
    t.start()
    while b"43" not in syscalls():
        pass
    hundred_trips()  # lklhost has received the call
    ep, waiter, _ = locked_epoll(number)
    os.close(number)
    t.join()
    hundred_trips()
    waiter.join()
    return ended


def syscalls():
    return [open("/proc/self/task/%s/syscall" % t, "rb").read().split()[0] for t in os.listdir("/proc/self/task")]


def stopped(how):
    """a process that waits in accept() stops, before a connection arrives"""
    s = socket.create_server(("127.0.0.1", 0))
    other = os.fork()
    if not other:
        one = s.accept()[0]
        one.sendall(one.recv(9))
        os._exit(0)
    while open("/proc/%d/syscall" % other).read().split()[0] not in ("43", "288"):
        pass
    if how == "signal":
        os.kill(other, signal.SIGSTOP)
        os.waitpid(other, os.WUNTRACED)
    elif how == "ptrace":
        libc.ptrace(16, other, None, None)
        os.waitpid(other, 0)
    else:
        write("cgroup.procs", other)
        write("cgroup.freeze", 1)  # takes effect when the call ends
    c = socket.create_connection(s.getsockname())
    c.sendall(b"hello")
    hundred_trips()
    if how == "signal":
        os.kill(other, signal.SIGCONT)
    elif how == "ptrace":
        libc.ptrace(17, other, None, None)
    else:
        write("cgroup.freeze", 0)
    return c.recv(9), os.waitpid(other, 0)[1]


def frozen_often():
    """a process that gets descriptors all the time, and each time the lowest number"""
    a, b = socket.socketpair()
    turns = mmap.mmap(-1, 8)
    other = os.fork()
    if not other:
        lowest = [os.dup(0) for _ in range(3)]
        for fd in lowest:
            os.close(fd)
        while not select.select([a], [], [], 0)[0]:
            s = socket.socket()
            socket.send_fds(a, [b"x"], [0, 1])
            got = socket.recv_fds(b, 9, 2)
            if [s.fileno()] + got[1] != lowest:
                print(lowest, s, got, flush=True)
                os._exit(1)
            turns[:] = struct.pack("Q", struct.unpack("Q", turns[:])[0] + 1)
            for fd in [s.detach()] + got[1]:
                os.close(fd)
        os._exit(0)
    write("cgroup.procs", other)
    for _ in range(30):
        write("cgroup.freeze", 1)
        hundred_trips()
        write("cgroup.freeze", 0)
        before = turns[:]
        while turns[:] == before and not os.waitid(os.P_PID, other, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            pass
    b.send(b"end")
    return os.waitpid(other, 0)[1]


def frozen_receiver():
    """a process that waits for descriptors is frozen before they come"""
    a, b = socket.socketpair()
    r, w = os.pipe()
    other = os.fork()
    if not other:
        text, fds = socket.recv_fds(a, 9, 3)[:2]
        os._exit([os.write(fd, text) for fd in fds] != [4, 4, 4])
    while open("/proc/%d/syscall" % other).read().split()[0] != "47":
        pass
    write("cgroup.procs", other)
    write("cgroup.freeze", 1)
    socket.send_fds(b, [b"once"], [w, w, w])
    hundred_trips()
    write("cgroup.freeze", 0)
    return os.waitpid(other, 0)[1], os.read(r, 99)


def write(name, value):
    with open(freezer + "/" + name, "w") as f:
        f.write(str(value))


def busy():
    """a thread that never leaves its loop: a jump to itself, until it becomes a return"""
    code = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0))
    ctypes.memmove(code, b"\xeb\xfe", 2)
    t = threading.Thread(target=ctypes.CFUNCTYPE(None)(code))
    t.start()
    fresh = [udp(b"once")[1].recv(9) for _ in range(3)]
    hundred_trips()
    ctypes.memmove(code, b"\xc3", 1)
    t.join()
    return fresh


def vfork():
    """a thread that waits for its child to execute a program, whose name does not come"""
    wanted, pid, argv = threading.Event(), ctypes.c_int(), (ctypes.c_char_p * 2)(b"true", None)
    page = slow(b"/bin/true", wanted)
    t = threading.Thread(target=libc.posix_spawn, args=(ctypes.byref(pid), ctypes.c_void_p(page), None, None, argv, None))
    t.start()
    wanted.wait()
    fresh = [udp(b"once")[1].recv(9) for _ in range(3)]
    t.join()
    return fresh, os.waitpid(pid.value, 0)[1]


def starved():
    """a process that creates sockets gets a CPU only while no other process wants it"""
    r, w = os.pipe()
    other = os.fork()
    if not other:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while not select.select([r], [], [], 0)[0]:
            socket.socket().close()
        os._exit(0)
    busy = [os.fork() for _ in range(os.cpu_count()) if os.getpid() == parent]
    while os.getpid() != parent:
        pass
    hundred_trips()
    for pid in busy:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.write(w, b"x")
    return os.waitpid(other, 0)[1]


def full_backlog():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(0)
    clients = [socket.socket() for _ in range(2)]
    threads = [threading.Thread(target=c.connect, args=(s.getsockname(),)) for c in clients]
    for t in threads:
        t.start()
    hundred_trips()
    for _ in clients:
        s.accept()[0].sendall(b"x")
    return [c.recv(1) for c in clients]


def full_peer():
    """a peer that reads nothing"""
    s = socket.create_server(("127.0.0.1", 0))
    c = socket.create_connection(s.getsockname())
    one, sent = s.accept()[0], []
    t = threading.Thread(target=lambda: sent.append(c.sendall(bytes(16 << 20))))
    t.start()
    hundred_trips()
    got = 0
    while got < 16 << 20:
        got += len(one.recv(1 << 20))
    t.join()
    return got


def full_pipe(how):
    """a pipe that nobody reads"""
    a, b = socket.socketpair() if how == "socketpair" else (None, None)
    s = socket.create_server(("127.0.0.1", 0))
    c = socket.create_connection(s.getsockname())
    one = s.accept()[0]
    r, w = (a.fileno(), b.fileno()) if a else os.pipe()
    os.set_blocking(w, False)
    filled = 0
    try:
        while True:
            filled += os.write(w, bytes(4096))
    except BlockingIOError:
        os.set_blocking(w, True)
    one.sendall(b"once")
    done = []
    if how == "splice":
        move = lambda: done.append(os.splice(c.fileno(), w, 4))
    else:
        move = lambda: done.append(os.write(w, c.recv(4)))
    t = threading.Thread(target=move)
    t.start()
    hundred_trips()
    tail = b""
    while not tail.endswith(b"once"):
        tail = os.read(r, 4096)
    t.join()
    one.sendall(b"next")
    return done, c.recv(4)


parent = os.getpid()
child = os.fork()
if not child:
    go_on()
worst = []
once = [b"once"] * 3
rows = {
    "length of a name": (name_length, (0, True)),
    "data of recvmsg": (lambda: received("data"), (4, b"once", b"next")),
    "header of recvmsg": (lambda: received("header"), (4, b"once", b"next")),
    "name of recvfrom": (received_name, (4, True, b"once")),
    "length of recvfrom": (received_length, (4, True, b"once")),
    "data of sendmsg": (lambda: sent("data"), (4, b"once")),
    "name of sendmsg": (lambda: sent("name"), (4, b"once")),
    "name of accept": (lambda: accepted("name"), (True, True, True)),
    "length of accept": (lambda: accepted("length"), (True, True, True)),
    "options": (option, (0, 0, b"M")),
    "name of connect": (connected, (0, True)),
    "page accessed before": (gone, (0, True)),
    "replaced in an epoll": (replaced_in_epoll, (0, [True])),
    "closed in an epoll": (closed_in_epoll, [os.strerror(errno.EAGAIN)]),
    "stopped by SIGSTOP": (lambda: stopped("signal"), (b"hello", 0)),
    "stopped by ptrace": (lambda: stopped("ptrace"), (b"hello", 0)),
    "stopped by a cgroup": (lambda: stopped("cgroup"), (b"hello", 0)),
    "frozen often": (frozen_often, 0),
    "frozen receiver": (frozen_receiver, (0, b"once" * 3)),
    "busy thread": (busy, once),
    "without a CPU": (starved, 0),
    "thread in vfork": (vfork, (once, 0)),
    "full backlog": (full_backlog, [b"x", b"x"]),
    "full peer": (full_peer, 16 << 20),
    "full pipe": (lambda: full_pipe("write"), ([4], b"next")),
    "full pipe, splice": (lambda: full_pipe("splice"), ([4], b"next")),
    "full socket pair": (lambda: full_pipe("socketpair"), ([4], b"next")),
}
left_out = ["stopped by a cgroup", "frozen often", "frozen receiver"] if freezer == "-" else []
if engine == "trace":  # docs/reference/limits.md, trace
    left_out += ["stopped by ptrace", "thread in vfork", "without a CPU"]
for name, (row, want) in rows.items():
    trips[8:] = bytes(8)
    got = want if name in left_out else row()
    worst.append((struct.unpack("Q", trips[8:])[0] / 1e6, name))
    if got != want:
        print(name, got, flush=True)
print("done", ", ".join("%.1f ms: %s" % w for w in sorted(worst)[:-6:-1]))
os.kill(child, 9)
