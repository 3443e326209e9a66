# SPDX-License-Identifier: Apache-2.0
#
# A server whose children lack the stack. Argument: a web server.

import errno, os, socket, sys
s = socket.create_connection((sys.argv[1], 80), 10)
for call in (lambda: s.recv(1), lambda: s.send(b"x"), socket.socket):
    pid = os.fork()
    if pid == 0:
        try: call()
        except OSError as e: os._exit(e.errno)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == errno.ENETDOWN << 8
s.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
assert s.makefile("rb").read().endswith(b"hello\n")
raise SystemExit(3)
