# SPDX-License-Identifier: Apache-2.0
# Prints whether getsockopt() succeeds, for a new, a listening and a connected socket.
import errno, socket

LEVELS = {"socket": socket.SOL_SOCKET, "ip": socket.IPPROTO_IP, "ipv6": socket.IPPROTO_IPV6, "tcp": socket.IPPROTO_TCP}
VARYING = {
    ("ip", 14),        # IP_MTU: whether a route is cached
    ("tcp", 31),       # TCP_ULP: subflows have one, "mptcp"
    ("tcp", 35),       # TCP_ZEROCOPY_RECEIVE: the error differs
    ("socket", 42),    # SO_PEEK_OFF: not with MPTCP under preload
}

def outcome(sock, level, option):
    try:
        return len(sock.getsockopt(level, option, 64))
    except OSError as e:
        return errno.errorcode[e.errno]

for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    l = socket.create_server((host, 0), family=family)
    with socket.create_connection(l.getsockname()[:2]) as c:
        s, _ = l.accept()
        for name, sock in ("new", socket.socket(family)), ("listening", l), ("connected", c), ("accepted", s):
            for level, number in LEVELS.items():
                for option in range(1, 85):
                    if (level, option) not in VARYING and (level, family) != ("ipv6", socket.AF_INET):
                        print(family.name, name, level, option, outcome(sock, number, option))
