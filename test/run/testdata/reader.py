# SPDX-License-Identifier: Apache-2.0
#
# A server that receives data from one client: 64 kB, then a pause, given in
# seconds. It prints "end", the number of bytes, and their hash. Its receive
# buffer is small, so that data waits at the sender. With an endless pause, it
# reads from SIGUSR1 on.

import hashlib, signal, socket, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
pause = float(sys.argv[2])
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((sys.argv[1], 7000)); l.listen(); print("ready", flush=True)
c, _ = l.accept(); print("accepted", flush=True)
if pause > 1000: signal.sigwait([signal.SIGUSR1]); pause = 0
n, h = 0, hashlib.sha256()
while True:
    try: d = c.recv(65536)
    except OSError as e: print(e); break
    if not d: break
    n += len(d); h.update(d); time.sleep(pause)
print("end", n, h.hexdigest(), flush=True)
