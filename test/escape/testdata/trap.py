# SPDX-License-Identifier: Apache-2.0
#
# Serves a control socket of another user, who makes the run directory "web" in
# root appear to be in use. It prints the data that a client sends. The
# directory's owner does not change.

import fcntl, os, socket, sys
root, uid = sys.argv[1], int(sys.argv[2])
os.makedirs(root + "/web", exist_ok=True)
lock = open(root + "/web/lock", "w"); fcntl.lockf(lock, fcntl.LOCK_EX)
open(root + "/web/state.json", "w").write('{"name":"web","stack":"mptcp"}')
s = socket.socket(socket.AF_UNIX); s.bind(root + "/web/ctl.sock")
os.chmod(root + "/web/ctl.sock", 0o666)
os.setresuid(uid, uid, uid)
s.listen()  # the credentials that a client sees are those of this moment
print("ready", flush=True)
while True:
    c, _ = s.accept()
    said = c.recv(4096)
    if said: print("somebody says", said, flush=True)
