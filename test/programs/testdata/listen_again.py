# SPDX-License-Identifier: Apache-2.0
#
# Listens, accepts one connection and closes the listener, 200 times.

import select, socket
for i in range(200):
    s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("::", 7000))
    s.listen(5)
    if select.select([s], [], [], 20)[0]:
        s.accept()[0].close()
    s.close()
print("ok")
