#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo with taps: an unmodified curl on its own Linux stack fetches a file over
# two rate-limited links at once. The server uses the MPTCP of the host's kernel.
#
#     namespace client                          namespace server
#     lklrun: eth0 10.71.1.2 ─ tap0 ─ br0 ─ veth ─ [100 Mbit/s] ─ s0 10.71.1.1 ┐
#             eth1 10.71.2.2 ─ tap1 ─ br1 ─ veth ─ [100 Mbit/s] ─ s1 10.71.2.1 ┴ nginx
#
# DEMO_CLIENT=host fetches with the host kernel's own MPTCP instead, over the same
# wires. This gives a reference value, and shows that the wires work.
set -eu -o pipefail
cd "$(dirname "$0")/.."

demo=demo-tap megabytes=200 rate=100 # size of the file; rate of each link, in Mbit/s
client=lkl-demo-c-$$ server=lkl-demo-s-$$ name=demo-$$
# shellcheck source=test/demo-lib.sh
. test/demo-lib.sh

in_client() { ip netns exec $client "$@"; }
in_server() { ip netns exec $server "$@"; }

# inventory lists everything that a run could leave on the host: devices, namespaces,
# processes, mounts, firewall rules, run directories.
inventory() {
	ip -o link | sed 's/^[0-9]*: //; s/[@:].*//'
	in_client ip -o link | sed 's/^[0-9]*: /client: /; s/[@:] .*//'
	ip netns list | awk '{ print "netns", $1 }'
	# shellcheck disable=SC2009 # with the name of the program, as ps shows it
	ps -e -o comm= -o args= | grep -E "^(lklrun|lklhost) .*$name" | sed 's/^/process /' || :
	ip netns pids $client | sed 's/^/client: process /'
	awk '{ print "mount", $2 }' /proc/mounts
	{ nft list ruleset; in_client nft list ruleset; } 2>/dev/null | sed 's/^/nft /'
	find /run/lklrun -path "*/$name*" 2>/dev/null || :
}

cleanup() {
	trap '' INT TERM
	set +e
	[ -z "$job" ] || kill "$job" 2>/dev/null || :
	for ns in $client $server; do
		ip netns pids $ns 2>/dev/null | xargs -r kill 2>/dev/null || :
	done
	[ -z "$job" ] || wait "$job" 2>/dev/null || :
	for ns in $client $server; do
		local end=$((SECONDS + 5))
		while [ -n "$(ip netns pids $ns 2>/dev/null)" ] && [ $SECONDS -lt $end ]; do :; done
		ip netns pids $ns 2>/dev/null | xargs -r kill -9 2>/dev/null || :
		ip netns del $ns 2>/dev/null || :
	done
	wait # for the subshells whose commands were killed
	rm -rf "$dir"
}

[ "$(id -u)" = 0 ] || die 'makes network namespaces, so it wants root: sudo make demo-tap'
[ "$(sysctl -n net.mptcp.enabled 2>/dev/null)" = 1 ] ||
	die 'the server side needs a host kernel with MPTCP: sysctl net.mptcp.enabled says no'
begin
chmod 755 "$dir"

# --- two namespaces, two links ---------------------------------------------
ip netns add $client
ip netns add $server
in_client ip link set lo up
in_server ip link set lo up
for i in 0 1; do
	in_client ip link add v$i type veth peer name s$i netns $server
	in_client ip link add br$i type bridge
	in_client ip tuntap add tap$i mode tap
	in_client ip link set v$i master br$i up
	in_client ip link set tap$i master br$i up
	in_client ip link set br$i up
	in_server ip addr add 10.71.$((i + 1)).1/24 dev s$i
	in_server ip link set s$i up
	in_server tc qdisc add dev s$i root tbf rate ${rate}mbit burst 256kb latency 50ms
	in_client tc qdisc add dev v$i root tbf rate ${rate}mbit burst 256kb latency 50ms
done

# --- the server: nginx with MPTCP, started by mptcpize ------------------------
in_server sysctl -qw net.mptcp.enabled=1
in_server ip mptcp limits set subflow 1 add_addr_accepted 0
in_server ip mptcp endpoint add 10.71.2.1 dev s1 signal
cat >"$dir/nginx.conf" <<END
daemon off; master_process off; user root;
pid $dir/nginx.pid; error_log $dir/error.log;
events { }
http { access_log off; sendfile on; server { listen 80; root $dir; } }
END
in_server mptcpize run nginx -e "$dir/error.log" -c "$dir/nginx.conf" >"$dir/nginx.out" 2>&1 &
wait_for 10 'nginx on port 80' in_server curl -m 5 -sfI http://10.71.1.1/file

title "Two links of $rate Mbit/s between two namespaces; nginx under mptcpize on the far side"
in_server ip -br -4 addr show scope global | awk '{ sub(/@.*/, "", $1); print "  server", $1, $3 }'

# --- the client: an unmodified curl --------------------------------------------
fetch=(curl -m 120 -s -o "$dir/got" -w '%{speed_download}' http://10.71.1.1/file)
if [ "${DEMO_CLIENT:-}" = host ]; then
	for i in 0 1; do in_client ip addr add 10.71.$((i + 1)).2/24 dev br$i; done
	in_client ip mptcp limits set subflow 1 add_addr_accepted 1
	run=(mptcpize run "${fetch[@]}")
else
	run=(bin/lklrun --name "$name" --stack mptcp
		--if 'tap:tap0,ip=10.71.1.2/24' --if 'tap:tap1,ip=10.71.2.2/24' -- "${fetch[@]}")
fi
inventory >"$dir/before"
title "${run[*]//$dir\//}"
in_client "${run[@]}" >"$dir/speed" 2>"$dir/errors" &
job=$!

two_subflows() { # the server's kernel has two subflows, and both have sent much
	in_server ss -tinHO state established '( sport = :80 )' >"$dir/ss"
	[ "$(grep -cE 'bytes_acked:[0-9]{7,}' "$dir/ss")" = 2 ]
}
wait_for 20 'two subflows in use' two_subflows
in_server ss -MHn state established '( sport = :80 )' >"$dir/ss-M" || :
if [ "${DEMO_CLIENT:-}" != host ]; then
	title "bin/lklctl -n $name mptcp      (during the transfer, asked of the stack)"
	bin/lklctl -n $name mptcp | tee "$dir/lklctl" | sed 's/^/  /'
	grep -q 10.71.1.2 "$dir/lklctl" && grep -q 10.71.2.2 "$dir/lklctl" ||
		die 'lklctl mptcp did not show a subflow on each link'
fi
# The server's counters disappear with the connection: keep the last output that shows
# both subflows.
while [ -d /proc/$job ]; do
	in_server ss -tinHO state established '( sport = :80 )' >"$dir/ss.now"
	[ "$(wc -l <"$dir/ss.now")" != 2 ] || mv "$dir/ss.now" "$dir/ss"
	pause $job
done
await_curl

# --- the results of the server's kernel ----------------------------------------
title 'What the server saw: ss -M, ss -ti, nstat'
sed 's/^/  /' "$dir/ss-M"
awk -v total=$megabytes '{ b = $0; sub(/.*bytes_acked:/, "", b); sub(/ .*/, "", b)
	printf "  subflow %s -> %s: %d MB\n", $3, $4, b / 1e6
	if (b / 1e6 < total / 4) few = 1 } END { exit few }' "$dir/ss" ||
	die 'one of the subflows carried less than a quarter of the file'
in_server nstat -asz 'MPTcpExtMPCapableACKRX' 'MPTcpExtMPJoinAckRx' | awk '/^MPTcp/ { print "  " $1, $2 }' | tee "$dir/nstat"
grep -q 'MPJoinAckRx 1$' "$dir/nstat" || die 'the server counted no joined subflow'
grep -q 'MPCapableACKRX 1$' "$dir/nstat" || die 'the server counted no MPTCP connection'

finish link ''
say '  nothing left behind: devices, namespaces, processes, mounts, rules, run directory as before'
