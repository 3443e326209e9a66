# SPDX-License-Identifier: Apache-2.0
#
# Serves the listener that systemd-socket-activate hands over.

import os, socket
assert (os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"]) == (str(os.getpid()), "1")
s = socket.socket(fileno=3)
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and s.type == socket.SOCK_STREAM and s.getsockname()[1] == 7000
s.setblocking(True)
while True:
    c, a = s.accept()
    c.sendall(c.recv(100).upper())
    c.close()
