# SPDX-License-Identifier: Apache-2.0
# Connections that cannot use MPTCP, or stop using it: 300 kB each way are compared.
#   fallback.py serve              in the server's namespace
#   fallback.py ADDRESS OWN PATHS [CASE...]  on the stack with 1 or 2 paths, without some
#       cases; prints what is wrong
# On the second path, what a middlebox changes on the first one is sent again.
import errno, random, socket, subprocess, sys, threading

SIZE = 300_000
DATA = {who: random.Random(who).randbytes(SIZE) for who in ("stack", "server")}
MPTCP, TCP = 262, socket.IPPROTO_TCP
STRIP = "-j TCPOPTSTRIP --strip-options 30"
FIRST = "-m statistic --mode nth --every 1000000 --packet 0"
CHANGE = "meta length > 1000 counter numgen inc mod 1000000 0 counter @th,800,32 set 0xdeadbeef"  # once
NO_SYN = "filter INPUT --dport {} --syn -j DROP"

# name: how the server joins in, its protocol, its rules
CASES = {
    "mptcp": ("listen", MPTCP),
    "plain listener": ("listen", TCP),
    "plain client": ("connect", TCP),
    "mptcp client": ("connect", MPTCP),
    "stripped": ("listen", MPTCP, f"mangle PREROUTING --dport {{}} {STRIP}"),
    "stripped from the answer": ("listen", MPTCP, f"mangle OUTPUT --sport {{}} --tcp-flags SYN SYN {STRIP}"),
    "stripped from data": ("listen", MPTCP, f"mangle PREROUTING --dport {{}} ! --tcp-flags SYN SYN {STRIP}"),
    "stripped from the listener's data": ("connect", MPTCP, f"mangle PREROUTING --sport {{}} ! --tcp-flags SYN SYN {STRIP}"),
    "stripped from the client's data": ("connect", MPTCP, f"mangle OUTPUT --dport {{}} ! --tcp-flags SYN SYN {STRIP}"),
    "reset": ("listen", MPTCP, f"filter INPUT --dport {{}} --syn {FIRST} -j REJECT --reject-with tcp-reset"),
    "crossing": ("cross", TCP, NO_SYN),
    "crossing with mptcp": ("cross", MPTCP, NO_SYN),
    "crossing, ended by data": ("cross", TCP, NO_SYN, f"filter OUTPUT --sport {{}} --tcp-flags ALL ACK {FIRST} -j DROP"),
    "fast open": ("listen", TCP),
    "fast open of the client": ("open", TCP),
    "itself": (None, 0),
    "itself, IPv6": (None, 0),
    "changed on the way to the server": ("listen", MPTCP, f"nft prerouting tcp dport {{}} {CHANGE}"),
    "changed on the way from the server": ("listen", MPTCP, f"nft output tcp sport {{}} {CHANGE}"),
    # The last case, because the stack makes its next connections without MPTCP.
    "dropped with the option": ("listen", MPTCP, "filter INPUT --dport {} --syn --tcp-option 30 -j DROP"),
}
PORTS = {name: 7000 + n for n, name in enumerate(CASES)}

def make(proto, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_STREAM, proto)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.settimeout(20)
    return s

def listen(proto, port):
    s = make(proto)
    s.bind(("", port))
    s.setsockopt(TCP, socket.TCP_FASTOPEN, 5)
    s.listen()
    return s

def counters():
    """Return the counters of MPTCP in the namespace that are not 0."""
    with open("/proc/net/netstat") as f:
        names, values = (line.split()[1:] for line in f if line.startswith("MPTcpExt"))
    return {n: int(v) for n, v in zip(names, values) if v != "0"}

def checksums(on):
    """Let new connections of the namespace have checksums or not; count those that were wrong."""
    with open("/proc/sys/net/mptcp/checksum_enabled", "w") as f:
        f.write(str(int(on)))
    return sum(v for n, v in counters().items() if n in ("DataCsumErr", "MPFailRx", "MPRstRx"))

def join(s):
    """Send bytes back and forth until the server has a second subflow."""
    for _ in range(100_000):
        joined = s.getsockopt(284, 1, 8)[0] > 0  # SOL_MPTCP, MPTCP_INFO
        s.sendall(b"2" if joined else b"1")
        if s.recv(1) == b"2":
            return
    raise OSError("no second subflow")

def exchange(s, me, to, early=b""):
    """Send all of me, receive all of to, and return what is wrong."""
    def send():
        s.sendall(DATA[me][len(early):])
        if me != to:
            s.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    got = b""
    try:
        while len(got) < SIZE or me != to:
            part = s.recv(1 << 16)
            if not part:
                break
            got += part
    except OSError as e:
        return f"{e} after {len(got)} bytes"
    sender.join(20)
    s.close()
    want = DATA[to]
    if got == want:
        return ""
    at = next((n for n, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), SIZE))
    return f"{len(got)} of {SIZE} bytes, the first difference at {at}"

def fast_open(s, address, me):
    early = DATA[me][:1000]
    s.setblocking(True)
    s.sendto(early, socket.MSG_FASTOPEN, address)
    s.settimeout(20)
    return early

def serve():
    for name, (_, _, *rules) in CASES.items():
        for rule in rules:
            table, chain, *match = rule.format(PORTS[name]).split()
            if table == "nft":
                text = f"table ip change{PORTS[name]} {{ chain c {{ type filter hook {chain} priority 0; {' '.join(match)}; }}; }}"
                subprocess.run(["nft", text], check=True)
                continue
            subprocess.run(["iptables", "-w", "-t", table, "-A", chain, "-p", "tcp", *match], check=True)
    with listen(TCP, 6999) as control:
        print("ready", flush=True)
        control, (stack, _) = control.accept()
    control.settimeout(60)
    orders = control.makefile("rw")
    for line in orders:
        name = line.strip()
        how, proto, *_ = CASES[name]
        port, early, changed = PORTS[name], b"", name.startswith("changed")
        try:
            before = changed and checksums(True)
            if how == "listen":
                with listen(proto, port) as l:
                    print("listens", file=orders, flush=True)
                    s, _ = l.accept()
                    if changed:
                        join(s)
            else:
                s = make(proto)
                if how == "cross":
                    s.bind(("", port))
                if how == "open":
                    early = fast_open(s, (stack, port), "server")
                else:
                    s.connect((stack, port))
            s.settimeout(20)
            wrong = exchange(s, "server", "stack", early)
            if changed and checksums(False) == before:
                rules = subprocess.run(["nft", "list", "table", "ip", f"change{port}"], capture_output=True, text=True)
                wrong += f"no wrong checksum; {' '.join(rules.stdout.split())}; {counters()}"
        except OSError as e:
            wrong = f"{how}: {e}"
        print("result", wrong, file=orders, flush=True)

def stack_side(name, server, own, orders):
    how, port = CASES[name][0], PORTS[name]
    if how is None:
        s = make(0, socket.AF_INET6 if name.endswith("6") else socket.AF_INET)
        s.bind(("::1" if name.endswith("6") else "127.0.0.1", port))
        s.connect(s.getsockname())
        return exchange(s, "stack", "stack")
    early = b""
    if how in ("connect", "open"):
        with listen(0, port) as l:
            print(name, file=orders, flush=True)
            s, _ = l.accept()
            s.settimeout(20)
    elif how == "cross":
        s = make(0)
        s.bind((own, port))
        s.setblocking(False)
        if (err := s.connect_ex((server, port))) != errno.EINPROGRESS:
            return f"connect: {errno.errorcode[err]}"
        print(name, file=orders, flush=True)
        s.settimeout(20)
    else:
        print(name, file=orders, flush=True)
        orders.readline()
        s = make(0)
        if name == "reset":
            if (err := s.connect_ex((server, port))) != errno.ECONNREFUSED:
                return f"connect: {err}"
            s = make(0)
        if name == "fast open":
            early = fast_open(s, (server, port), "stack")
        else:
            s.connect((server, port))
        if name.startswith("changed"):
            byte = b""
            while byte != b"2":
                byte = s.recv(1)
                s.sendall(byte)
    return exchange(s, "stack", "server", early)

if sys.argv[1] == "serve":
    serve()
else:
    server, own, paths, *without = sys.argv[1:]
    control = make(0)
    control.connect((server, 6999))
    control.settimeout(60)
    orders = control.makefile("rw")
    names = [name for name in CASES if name not in without and name.startswith("changed") == (paths == "2")]
    for name in names:
        try:
            wrong = stack_side(name, server, own, orders)
        except OSError as e:
            wrong = str(e)
        if CASES[name][0]:
            wrong += next(line for line in orders if line.startswith("result "))[7:].strip()
        if wrong:
            print(f"{name}: {wrong}", flush=True)
    print("compared", len(names))
