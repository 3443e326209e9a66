# SPDX-License-Identifier: Apache-2.0
#
# The target of a Talker: it prints the value of each line of its input.

import socket, sys
keep = {}
for line in sys.stdin:
    try: print(repr(eval(line)))
    except Exception as e: print(type(e).__name__, e)
