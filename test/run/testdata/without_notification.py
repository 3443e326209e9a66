# SPDX-License-Identifier: Apache-2.0
#
# Runs a command on a host without seccomp user notification. It installs a
# filter that answers seccomp(2) as a kernel without it does.

import ctypes, os, struct, sys
ALLOW, ERRNO = 0x7fff0000, 0x00050000
LD, JEQ, JSET, RET = 0x20, 0x15, 0x45, 0x06
code = [
    (LD, 0, 0, 0), (JEQ, 0, 5, 317),      # seccomp
    (LD, 0, 0, 16), (JEQ, 0, 1, 2),       # GET_ACTION_AVAIL
    (RET, 0, 0, ERRNO | 95),
    (LD, 0, 0, 24), (JSET, 1, 0, 8),      # NEW_LISTENER
    (RET, 0, 0, ALLOW), (RET, 0, 0, ERRNO | 22),
]
text = b"".join(struct.pack("HBBI", *c) for c in code)
buf = ctypes.create_string_buffer(text)
prog = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buf))
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(317, 1, 0, prog):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
