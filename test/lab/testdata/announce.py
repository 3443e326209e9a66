# SPDX-License-Identifier: Apache-2.0
# Announces a router with the prefix 2001:db8:1::/64 and the NAT64 2001:db8:64::/96 (PREF64,
# RFC 8781) on eth0.
import socket, struct

s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
s.settimeout(0.2)
address = lambda a: socket.inet_pton(socket.AF_INET6, a)
message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
message += struct.pack("!BBBBIII", 3, 4, 64, 0xc0, 1800, 1800, 0) + address("2001:db8:1::")
message += struct.pack("!BBH", 38, 2, 1800 // 8 << 3) + address("2001:db8:64::")[:12]
while True:
    s.sendto(message, ("ff02::1", 0, 0, socket.if_nametoindex("eth0")))
    try:
        while s.recv(2000)[0] != 133:   # a solicitation is answered at once
            pass
    except TimeoutError:
        pass
