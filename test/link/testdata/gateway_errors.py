# SPDX-License-Identifier: Apache-2.0
# Usage: gateway_errors.py "tcp|udp ADDRESS PORT"...
# Prints the error of a connection, or of a datagram, for each destination.
import errno, socket, sys

for line in sys.argv[1:]:
    protocol, address, port = line.split()
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET,
                      socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    s.settimeout(10)
    try:
        s.connect((address, int(port)))
        if protocol == "udp":
            s.send(b"x")
            s.recv(10)
        result = "OK"
    except TimeoutError:
        result = "TIMEOUT"
    except OSError as e:
        result = errno.errorcode[e.errno]
    s.close()
    print(line, result, flush=True)
