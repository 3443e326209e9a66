# SPDX-License-Identifier: Apache-2.0
#
# The target of a Talker. It evaluates each line of its input and prints the
# value.

import socket, sys
keep = {}
for line in sys.stdin:
    try: print(repr(eval(line)))
    except Exception as e: print(type(e).__name__, e)
