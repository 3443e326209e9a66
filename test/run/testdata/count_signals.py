# SPDX-License-Identifier: Apache-2.0
#
# Counts SIGINT and SIGQUIT until SIGTERM.

import signal, sys
these = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, these)
print("ready")
got = 0
while signal.sigwait(these) != signal.SIGTERM:
    got += 1
    print("got", got)
sys.exit(42)
