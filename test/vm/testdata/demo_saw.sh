# SPDX-License-Identifier: Apache-2.0
#
# Prints the counts of the server's kernel: its MPTCP connections, its joined
# subflows, and the bytes sent over each path.

ip netns exec server nstat -asz MPTcpExtMPCapableACKRX MPTcpExtMPJoinAckRx | awk '/^MPTcp/ { print $2 }'
ip netns exec server cat /sys/class/net/s0/statistics/tx_bytes /sys/class/net/s1/statistics/tx_bytes
sha256sum </tmp/got
