# SPDX-License-Identifier: Apache-2.0
#
# Sends a greeting to a control socket as another user, and prints the answer.
# Arguments: the socket, the user, the greeting.

import os, socket, sys
fd = os.open(sys.argv[1], os.O_PATH)
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
try:
    s.connect("/proc/self/fd/%d" % fd)
    s.sendall(bytes.fromhex(sys.argv[3]))
    print("answered" if s.recv(100) else "shut")
except PermissionError: print("denied")
except (ConnectionResetError, BrokenPipeError): print("shut")
