# SPDX-License-Identifier: Apache-2.0
#
# Removes the wires and the server.

kill $(cat /srv/demo/pid)
n=0
while [ -n "$(ip netns pids server)" ] && [ $n -lt 100 ]; do n=$((n + 1)); sleep 0.1; done
ip netns del server
for i in 0 1; do ip link del br$i; ip link del tap$i; ip link del v$i 2>/dev/null || :; done
rm -r /srv/demo /tmp/got
