# SPDX-License-Identifier: Apache-2.0
# Connections to published ports. With "server": in a run; port 80 sends the client's address, and
# then back what it gets, port 81 is closed, and port 82 accepts no connection after the first ones.
# With "client": on the host.
import select, socket, struct, sys, threading

LIMIT = 60
LIMIT_ENTERING = 224  # of a process with 2,048 files
EVICTED = 76
RESET = struct.pack("ii", 1, 0)

def read(c):
    parts = []
    while part := c.recv(1 << 20): parts.append(part)
    return b"".join(parts)

def serve(c, peer):
    c.settimeout(LIMIT)
    try:
        c.sendall(peer[0].encode() + b"\n")
        data = read(c)
        if data == b"reset":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            c.sendall(data)
    except ConnectionResetError:
        print("reset by the client", flush=True)
    c.close()

def server():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", 80))
    s.listen(1024)
    full = socket.socket()
    full.bind(("0.0.0.0", 82))
    full.listen(0)
    waiting = []
    try:
        while True: waiting.append(socket.create_connection(("127.0.0.1", 82), 1))
    except TimeoutError: pass
    print("ready", flush=True)
    while True: threading.Thread(target=serve, args=s.accept(), daemon=True).start()

def connect(port):
    return socket.create_connection(("127.0.0.1", port), LIMIT)

def exchange(data):
    with connect(8080) as c:
        def send():
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
        t = threading.Thread(target=send)
        t.start()
        address, _, got = read(c).partition(b"\n")
        t.join()
        return address.decode(), got == data

def outcome(port, data=b""):
    try:  # a reset may come before connect() returns
        with connect(port) as c:
            if data:
                c.sendall(data)
                c.shutdown(socket.SHUT_WR)
            return f"{len(read(c))} bytes"
    except ConnectionResetError:
        return "reset"

def client():
    print("data:", *exchange(bytes(range(251)) * 80000))
    results = []
    threads = [threading.Thread(target=lambda i=i: results.append(exchange(b"%d" % i * 1000)[1])) for i in range(200)]
    for t in threads: t.start()
    for t in threads: t.join()
    print("many:", results.count(True))
    print("closed port:", outcome(8081))
    print("reset by the server:", outcome(8080, b"reset"))
    c = connect(8080)
    c.recv(1)  # it is accepted
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    c.close()
    waiting = [connect(8082) for _ in range(LIMIT_ENTERING + EVICTED)]
    gone = select.poll()
    for c in waiting: gone.register(c, select.POLLHUP)
    while len(gone.poll(LIMIT * 1000)) not in (0, EVICTED): pass
    print("beside waiting ones:", *exchange(b"x"), flush=True)
    sys.stdin.read()

globals()[sys.argv[1]]()
