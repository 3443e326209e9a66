# SPDX-License-Identifier: Apache-2.0
"""Compares rates, round trips and retransmissions in virtual time with those in real time.

compare.py LKLRUN [RUNS]   runs lab.json, 3 times in real time, on an idle machine

The status is 1 if a median in virtual time differs from that in real time by more than 2 %,
and for retransmissions also by more than 2 packets. It takes less than three minutes.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT = 0.02
CASES = [("vanilla", "cubic"), ("vanilla", "bbr"), ("mptcp", "cubic")]
RESULTS = ["rate", "rtt", "retransmitted"]


def serve():
    with socket.create_server(("", 80)) as listener:
        while True:
            conn, _ = listener.accept()
            while conn.recv(1 << 16):
                pass
            conn.close()


def send(size):
    times = []
    for _ in range(6):  # the first one takes ARP, too
        began = time.monotonic()
        socket.create_connection(("server", 80)).close()
        times.append(time.monotonic() - began)
    print(f"rtt={1000 * statistics.median(times[1:]):.2f}")
    began = time.monotonic()
    with socket.create_connection(("server", 80)) as conn:
        conn.sendall(bytes(size))
        conn.shutdown(socket.SHUT_WR)
        conn.recv(1)
    print(f"rate={size * 8e-6 / (time.monotonic() - began):.2f}")


def medians(lklrun, stack, cc, words):
    lab = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lab.json")
    with tempfile.TemporaryDirectory() as folder:
        command = [lklrun, "matrix", "-q", "-o", "json", "--results", folder, *words]
        command += ["--var", "stack=" + stack, "--var", "cc=" + cc, lab]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=150, check=True)
    runs = json.loads(done.stdout)["cells"][0]["runs"]
    return {name: statistics.median(float(r["values"][name]) for r in runs) for name in RESULTS}


def main(lklrun, runs):
    differ = False
    for stack, cc in CASES:
        real = medians(lklrun, stack, cc, ["-n", runs])
        virtual = medians(lklrun, stack, cc, ["--time", "virtual", "--seeds", "1..3"])
        for name in RESULTS:
            off = abs(virtual[name] - real[name])
            wrong = off > LIMIT * real[name] and (name != "retransmitted" or off > 2)
            differ = differ or wrong
            percent = 100 * (virtual[name] / real[name] - 1) if real[name] else 0
            print(f"{stack:8} {cc:6} {name:14} {real[name]:10.2f} {virtual[name]:10.2f} {percent:+6.1f} % {'differs' * wrong}")
    return differ


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "send":
        send(int(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "3"))
