# SPDX-License-Identifier: Apache-2.0
#
# Tries every way to access another process, whose descriptor 0 is a socket, and
# prints the ways that worked.

import ctypes, os, socket, sys
c = ctypes.CDLL(None, use_errno=True)
pid, at = int(sys.argv[1]), int(sys.argv[2])
class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
buf = ctypes.create_string_buffer(4)
worked = []
if c.process_vm_readv(pid, ctypes.byref(Vec(ctypes.addressof(buf), 4)), 1, ctypes.byref(Vec(at, 4)), 1, 0) == 4: worked.append("process_vm_readv")
if c.syscall(438, os.pidfd_open(pid), 0, 0) >= 0: worked.append("pidfd_getfd")
try: os.readlink(f"/proc/{pid}/fd/0"); worked.append("fd")
except OSError: pass
try: os.open(f"/proc/{pid}/mem", os.O_RDWR); worked.append("mem")
except OSError: pass
if c.ptrace(16, pid, 0, 0) == 0: worked.append("ptrace")
print(*worked)
