# SPDX-License-Identifier: Apache-2.0
#
# Prints its name for each line received, as long as the connection lasts.

import socket, sys, threading
l = socket.create_server(("", 8000), backlog=128)
print("ready", flush=True)
def serve(c):
    for line in c.makefile():
        c.sendall((sys.argv[1] + "\n").encode())
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
