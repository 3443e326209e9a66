# SPDX-License-Identifier: Apache-2.0
#
# count_datagrams.py receive ADDRESS: prints the numbers of the datagrams that arrive.
# count_datagrams.py send ADDRESS: sends 1,000 numbered datagrams, then the end.

import socket, sys, time
what, addr = sys.argv[1], sys.argv[2]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if what == "receive":
    s.bind((addr, 9000))
    print("ready", flush=True)
    s.settimeout(30)
    got = []
    while True:
        n = s.recv(64).decode()
        if n == "end":
            break
        got.append(n)
    print(" ".join(got), flush=True)
else:
    for n in range(1000):
        s.sendto(b"%d" % n, (addr, 9000))
        if n % 50 == 0:
            time.sleep(0.005)  # paces the traffic, so that no queue overflows
    end = time.monotonic() + 2
    while time.monotonic() < end:  # the end may be lost, too
        try:
            s.sendto(b"end", (addr, 9000))
        except OSError:
            break  # the receiver has ended, and its end of the wire with it
        time.sleep(0.01)
