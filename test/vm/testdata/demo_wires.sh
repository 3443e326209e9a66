# SPDX-License-Identifier: Apache-2.0
#
# Sets up the demo's wires (test/demo.sh) and its server on the machine. The
# links are slower than in the demo, because the machine is; $1 is their rate, $2 the file's size.

set -eu
ip netns add server
ip -n server link set lo up
for i in 0 1; do
	n=$((i + 1))
	ip link add v$i type veth peer name s$i netns server
	ip link add br$i type bridge
	ip tuntap add tap$i mode tap
	for d in v$i tap$i; do ip link set $d master br$i up; done
	ip link set br$i up
	ip -n server addr add 10.71.$n.1/24 dev s$i
	ip -n server link set s$i up
	tc -n server qdisc add dev s$i root tbf rate $1 burst 64kb latency 50ms
	tc qdisc add dev v$i root tbf rate $1 burst 64kb latency 50ms
done
ip netns exec server sysctl -qw net.mptcp.enabled=1
ip -n server mptcp limits set subflow 1 add_addr_accepted 0
ip -n server mptcp endpoint add 10.71.2.1 dev s1 signal
mkdir -p /srv/demo
head -c "$2" /dev/urandom >/srv/demo/file
cat >/srv/demo/conf <<END
user root; pid /srv/demo/pid; error_log /srv/demo/error.log;
events { }
http { access_log off; sendfile on; server { listen 80; root /srv/demo; } }
END
ip netns exec server mptcpize run nginx -e /srv/demo/error.log -c /srv/demo/conf
sha256sum </srv/demo/file
