# SPDX-License-Identifier: Apache-2.0
#
# Kills the zygote, takes its process id for a program of its own, and prints
# which network that program has.

import os, signal, socket, sys, time
if os.fork(): os._exit(0) # the first process ends, so that lklhost adopts this one
os.setsid()
def stat(pid): return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
def mounts(pid): return os.readlink(f"/proc/{pid}/ns/mnt")
def until(f):
    end = time.monotonic() + 20
    while not f():
        if time.monotonic() > end: print("too late", flush=True); os._exit(1)
        time.sleep(0.01)
def adopted():
    try: return open(f"/proc/{os.getppid()}/comm").read() == "lklhost\n"
    except OSError: return False # the parent has just ended
until(adopted)
host = os.getppid()
def is_zygote(p): # another child may end while its name is read
    try: return open(f"/proc/{p}/comm").read() == "lklhost\n" and mounts(p) == mounts("self")
    except FileNotFoundError: return False
zygote = [int(p) for p in open(f"/proc/{host}/task/{host}/children").read().split() if is_zygote(p)]
assert len(zygote) == 1, zygote
os.kill(zygote[0], signal.SIGKILL)
until(lambda: not os.path.exists(f"/proc/{zygote[0]}"))
for i in range(1000):
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(zygote[0] - 1))
    if not (pid := os.fork()):
        if os.getpid() != zygote[0]: os._exit(2)
        try: print("connected", socket.create_connection((sys.argv[1], 80), 10).getpeername(), flush=True)
        except OSError as e: print(e, flush=True)
        os._exit(0)
    if os.waitpid(pid, 0)[1] == 0: break
print("end", flush=True)
