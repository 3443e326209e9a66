# SPDX-License-Identifier: Apache-2.0
#
# The target of the tests of shared addresses (test/link/guard_test.go): it evaluates
# the lines of its standard input, one after the other, and prints the result of
# each.

import errno, resource, socket, sys, threading, time

LIMIT = 60
keep = {}
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def family(addr):
    return socket.AF_INET6 if ":" in addr else socket.AF_INET


def crowd(addr, port, count):
    """Opens connections, all at once there, and uses each; says what failed."""
    failed, all = [], []
    for n in range(count):
        try:
            all.append(socket.create_connection((addr, port), LIMIT))
        except OSError as e:
            failed.append("connect %d: %s" % (n, e))
    for what in "first", "second":  # all connections send "first" before any sends "second"
        for n, s in enumerate(all):
            try:
                data = b"%s %d" % (what.encode(), n)
                s.sendall(data)
                if s.recv(len(data), socket.MSG_WAITALL) != data:
                    failed.append("%s %d: other data" % (what, n))
            except OSError as e:
                failed.append("%s %d: %s" % (what, n, e))
    ports = [s.getsockname()[1] for s in all]
    for s in all:
        s.close()
    return failed[:10] or "%d, ports %d to %d" % (len(set(ports)), min(ports), max(ports))


def fill(addr, port, count):
    """Holds on to each connection until there are count, however long ports are
    awaited: one that is given up has to wait again for its port."""
    all, end = [], time.monotonic() + LIMIT
    while len(all) < count and time.monotonic() < end:
        try:
            all.append(socket.create_connection((addr, port), LIMIT))
        except OSError as e:
            if e.errno != errno.EADDRNOTAVAIL:
                return str(e)
            time.sleep(0.01)
    ports = {s.getsockname()[1] for s in all}
    for s in all:
        s.close()
    return len(ports)


def serve(port):
    """Echoes what each connection to a port sends, for both families."""
    s = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
    keep[port] = s

    def echo(c):
        with c:
            while data := c.recv(1 << 16):
                c.sendall(data)

    def accept():
        while True:
            threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def udp(addr, port):
    """Asks an echo of datagrams."""
    with socket.socket(family(addr), socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        for _ in range(LIMIT):
            s.sendto(b"hello", (addr, port))
            try:
                return s.recv(16)
            except TimeoutError:
                pass


def quiet():
    """Waits until each connection has come to its end; says which has not."""
    until = time.monotonic() + LIMIT
    while True:
        left = []
        for name in "/proc/net/tcp", "/proc/net/tcp6":
            with open(name) as f:
                # The column "st": any state except TIME_WAIT and LISTEN
                # (include/net/tcp_states.h).
                left += [line for line in list(f)[1:] if line.split()[3] not in ("06", "0A")]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.01)


def bound(addr, port, kind, own):
    """What a socket hears that has bound a port of its own choice."""
    with socket.socket(family(addr), kind) as s:
        s.settimeout(LIMIT)
        s.bind(("", own))
        try:
            if kind == socket.SOCK_STREAM:
                s.connect((addr, port))
            s.sendto(b"hello", (addr, port))
            return s.recv(16)
        except OSError as e:
            return errno.errorcode.get(e.errno, str(e))


for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except Exception as e:
        print(type(e).__name__, e, flush=True)
