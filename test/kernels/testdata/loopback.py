# SPDX-License-Identifier: Apache-2.0
# Connections to this host itself: where a redirected one wanted to go, and how many
# connections TCP has opened for each that the program has made.
#   loopback.py ADDRESS redirect|plain
import socket, struct, subprocess, sys

address, how = sys.argv[1:]

def opened():
    with open("/proc/net/snmp") as f:
        names, values = (line.split() for line in f if line.startswith("Tcp:"))
    return int(values[names.index("ActiveOpens")])

def check(what, got, want):
    if got != want:
        print(f"{what}: {got}, want {want}")

def pair(l, to):
    with socket.create_connection(to, 10) as c:
        s, _ = l.accept()
        for a, b in ((c, s), (s, c)) * 20:
            a.sendall(b"x")
            b.recv(1)
        return s

before, n = opened(), 0
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, address), (socket.AF_INET6, "::ffff:127.0.0.1")):
    with socket.socket(family) as l:
        l.bind((host, 0))
        l.listen()
        l.settimeout(10)
        pair(l, l.getsockname()[:2]).close()
        n += 1
check("opened connections", opened() - before, n)

if how == "redirect":
    for command, family, level, to in (("iptables", socket.AF_INET, socket.SOL_IP, "192.0.2.1"), ("ip6tables", socket.AF_INET6, socket.IPPROTO_IPV6, "::1")):
        with socket.socket(family) as l:
            l.bind(("", 0))
            l.listen()
            l.settimeout(10)
            subprocess.run([command, "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "80", "-j", "REDIRECT", "--to-ports", str(l.getsockname()[1])], check=True)
            s = pair(l, (to, 80))
            value = s.getsockopt(level, 80, 28)   # SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST
            at = value[4:8] if family == socket.AF_INET else value[8:24]
            check("original destination", (socket.inet_ntop(family, at), struct.unpack_from("!H", value, 2)[0]), (to, 80))
print("done")
