# SPDX-License-Identifier: Apache-2.0
#
# A client of the web server and, if it is given an address for it, of the
# database. Some of its connections send requests, others are silent; they use
# IPv4 and IPv6.

import itertools, socket, sys, time
web, redis = sys.argv[1], sys.argv[2]
def ask(addr, port, what, want):
    c = socket.create_connection((addr, port), 60)
    f = c.makefile("rb")
    def again():
        c.sendall(what)
        got = b""
        while not got.endswith(want): got += f.read(1) or sys.exit("%s port %d closes" % (addr, port))
    again()
    return again
get = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
asks = [ask(web, 80, get, b"hello\n"), ask("fd74:1::2", 80, get, b"hello\n")]
if redis:
    ping = b"PING\r\n"
    asks += [ask(redis, 6379, ping, b"+PONG\r\n"), ask("fd74:1::2", 6379, ping, b"+PONG\r\n")]
    silent = ask(redis, 6379, ping, b"+PONG\r\n"), ask("fd74:1::2", 6379, ping, b"+PONG\r\n")
print("served", flush=True)
for a in itertools.cycle(asks):
    a()
    time.sleep(0.01)
