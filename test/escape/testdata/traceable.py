# SPDX-License-Identifier: Apache-2.0
#
# Lets every process of its user trace it, on hosts that forbid this by default
# (PR_SET_PTRACER, Documentation/admin-guide/LSM/Yama.rst).

import ctypes, time
c = ctypes.CDLL(None)
c.prctl(0x59616d61, ctypes.c_ulong(-1))
b = ctypes.create_string_buffer(4)
print(ctypes.addressof(b), flush=True)
time.sleep(1000)
