#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program of the kernel's tests on two hosts at once, and compares the
# data that each received with the data that the other sent.
#
# usage: pair.sh FAR near|far FAMILY DIRECTORY PROGRAM [ARG]...
#
# FAR is "native" for a second namespace at the other end of a veth pair, or a
# command that starts a program on a stack ("lklrun --stack vanilla"), which is
# connected by a tap. The second argument is the side that listens. The script
# has a namespace for itself (runner.go).
set -u

far=$1 listener=$2 family=$3 dir=$4
shift 4
port=10000
near_addr=10.9.0.1 far_addr=10.9.0.2
[ "$family" = 4 ] || { near_addr=fd09::1 far_addr=fd09::2; }

on_near() { "$@"; }
if [ "$far" = native ]; then
	ip netns add far
	ip link add near0 type veth peer name far0 netns far
	ip -n far link set far0 up
	ip -n far addr add 10.9.0.2/24 dev far0
	ip -n far addr add fd09::2/64 dev far0 nodad
	on_far() { ip netns exec far "$@"; }
	table_far() { ip netns exec far cat /proc/net/tcp /proc/net/tcp6; }
else
	ip tuntap add dev near0 mode tap
	# shellcheck disable=SC2086 # FAR is a command line
	on_far() { $far --name pair --if tap:near0,ip=10.9.0.2/24,ip6=fd09::2/64 -- "$@"; }
	table_far() { "$(dirname "${far%% *}")/lklctl" -n pair cat /proc/net/tcp /proc/net/tcp6; }
fi
table_near() { cat /proc/net/tcp /proc/net/tcp6; }
ip addr add 10.9.0.1/24 dev near0
ip addr add fd09::1/64 dev near0 nodad
ip link set near0 up

# listening SIDE: reports whether a socket listens on the port on that side
# (state 0A).
listening() {
	"table_$1" 2>/dev/null | grep -q ":$(printf %04X $port) [0-9A-F:]* 0A "
}

connector=near addr=$far_addr
[ "$listener" = far ] || connector=far addr=$near_addr
any=0.0.0.0
[ "$family" = 4 ] || any=::
[ "$family" = 4 ] || set -- "$@" -6

# The host's kernel timestamps received packets only some time after the first
# socket has requested it. That is too late for a test that requests timestamps,
# so this process requests them first.
python3 -c 'import signal, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 29, 1)
signal.pause()' &
keeper=$!
trap 'kill $keeper' EXIT

rm -rf "$dir"
mkdir -p "$dir"
head -c 5000000 /dev/urandom >"$dir/a.in"
head -c 3000001 /dev/urandom >"$dir/b.in"

"on_$listener" "$@" -t 20 -p $port -l $any <"$dir/a.in" >"$dir/a.out" &
pid=$!
end=$((SECONDS + 30))
until listening "$listener"; do
	kill -0 $pid 2>/dev/null && [ $SECONDS -lt $end ] || { echo "pair: nobody listens" >&2; exit 1; }
done

ret=0
"on_$connector" "$@" -t 20 -p $port "$addr" <"$dir/b.in" >"$dir/b.out" ||
	{ echo "pair: the connecting side: status $?" >&2; ret=1; }
wait $pid || { echo "pair: the listening side: status $?" >&2; ret=1; }
cmp "$dir/a.in" "$dir/b.out" && cmp "$dir/b.in" "$dir/a.out" || ret=1
rm -rf "$dir"
exit $ret
