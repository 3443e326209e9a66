# SPDX-License-Identifier: Apache-2.0
"""Compares rates, round trips and retransmissions in virtual time with those in real time.

compare.py LKLRUN [RUNS]   runs lab.json, 3 times in real time, on an idle machine

The round trips are those that TCP measures: of a handshake on the idle wire, and the mean
during the transfer. How many packets a full queue drops depends on microseconds: if a delay
differs by 0.5 ms, CUBIC over MPTCP sends 52 or 253 again. Therefore the retransmissions are
compared in a lab in which only the wires lose packets: with the same seed, they lose the same
ones in both times.

The status is 1 if a median in virtual time differs from that in real time by more than 2 %.
It takes less than four minutes.
"""

import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 0.02
SEED = 7  # of lab.json
CHUNK = 50000
CASES = [("vanilla", "cubic"), ("vanilla", "bbr"), ("mptcp", "cubic")]
LABS = [  # variables of lab.json, and the results to compare
    ({}, ["rate", "idle_rtt", "rtt"]),
    ({"connections": "8", "loss": "1%", "limit": "4000"}, ["retransmitted"]),
]


def serve():
    def receive(conn):
        while conn.recv(1 << 16):
            pass
        conn.close()

    with socket.create_server(("", 80), backlog=64) as listener:
        while True:
            threading.Thread(target=receive, args=listener.accept()[:1]).start()


def smoothed_rtt(conn):
    """tcpi_rtt of struct tcp_info in ms; of the first path with MPTCP"""
    info = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return struct.unpack_from("I", info, 68)[0] / 1000


def transfer(conn, size, rtts):
    for _ in range(size // CHUNK):
        conn.sendall(bytes(CHUNK))
        rtts.append(smoothed_rtt(conn))
    conn.shutdown(socket.SHUT_WR)
    conn.recv(1)
    conn.close()


def send(size, connections):
    idle, rtts = [], []
    for _ in range(6):  # the first one takes ARP, too
        with socket.create_connection(("server", 80)) as conn:
            idle.append(smoothed_rtt(conn))
    conns = [socket.create_connection(("server", 80)) for _ in range(connections)]
    began = time.monotonic()
    threads = [threading.Thread(target=transfer, args=(c, size // connections, rtts)) for c in conns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"rate={size * 8e-6 / (time.monotonic() - began):.2f}")
    print(f"idle_rtt={statistics.median(idle[1:]):.2f}")
    print(f"rtt={statistics.mean(rtts):.2f}")


def medians(lklrun, results, variables, words):
    lab = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lab.json")
    with tempfile.TemporaryDirectory() as folder:
        command = [lklrun, "matrix", "-q", "-o", "json", "--results", folder, *words]
        for name in variables:
            command += ["--var", name + "=" + variables[name]]
        done = subprocess.run([*command, lab], stdout=subprocess.PIPE, timeout=150, check=True)
    runs = json.loads(done.stdout)["cells"][0]["runs"]
    return {name: statistics.median(float(r["values"][name]) for r in runs) for name in results}


def main(lklrun, runs):
    differ = False
    for variables, results in LABS:
        for stack, cc in CASES:
            every = {"stack": stack, "cc": cc, **variables}
            real = medians(lklrun, results, every, ["-n", runs])
            virtual = medians(lklrun, results, every, ["--time", "virtual", "--seeds", f"{SEED}..{SEED}"])
            for name in results:
                off = virtual[name] / real[name] - 1
                differ = differ or abs(off) > LIMIT
                print(f"{stack:8} {cc:6} {name:14} {real[name]:10.2f} {virtual[name]:10.2f} {100 * off:+6.1f} % {'differs' * (abs(off) > LIMIT)}", flush=True)
    return differ


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "send":
        send(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "3"))
