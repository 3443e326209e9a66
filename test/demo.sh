#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo: an unmodified curl downloads a file from an unmodified nginx over two
# rate-limited paths at once. Both run on Linux stacks of their own, joined by
# virtual wires. One path is cut during the download, and comes back. No root, and
# no change to the host.
#
#     client                                     server
#     curl    eth0 10.0.1.1 ─ a ─ 100 Mbit/s ─ 10.0.1.2 eth0    nginx
#             eth1 10.0.2.1 ─ b ─ 100 Mbit/s ─ 10.0.2.2 eth1
set -eu -o pipefail

PATH=$PATH:/usr/sbin:/sbin # for nginx
megabytes=200 rate=100 # size of the file; rate of each path, in Mbit/s
bin=${LKLRUN_BIN:-$(dirname "$0")/../bin}
name=demo-$$
dir= # the file, nginx's files, observations
job= # process ID of curl while it runs

say() { printf '%s\n' "$*"; }
title() { if [ -t 1 ]; then printf '\n\e[1m%s\e[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
die() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# wait_for LIMIT-SECONDS WHAT CMD...: retries CMD until it succeeds.
wait_for() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ -z "$job" ] || [ -d "/proc/$job" ] || die "curl ended early: $(cat "$dir/errors")"
		[ $SECONDS -lt $end ] || die "$what: not within the limit"
		pause "${job:-$$}"
	done
}

# pause PID: waits until a process ends, or for a tenth of a second.
pause() { timeout 0.1 tail --pid="$1" -s 0.05 -f /dev/null || :; }

lklctl() { "$bin/lklctl" "$@"; }

# run CMD...: prints a command as a user would type it, and runs it.
run() {
	title "$*"
	"$bin/$1" "${@:2}" | sed 's/^/  /'
}

# inventory lists everything that a run could leave on the host.
inventory() {
	ls /sys/class/net
	# shellcheck disable=SC2009 # with the arguments, as ps shows them
	ps -e -o comm= -o args= | grep -E "^(lklrun|lklhost|lklctl|nginx|curl) .*$name" || :
	grep lklrun /proc/mounts || :
	lklctl list -o json | grep -F "\"$name" || :
	find "${TMPDIR:-/tmp}" -maxdepth 1 -user "$(id -u)" -name 'lklrun-lab*' 2>/dev/null || :
}

cleanup() {
	trap '' INT TERM
	set +e
	if [ -n "$job" ]; then
		kill $job 2>/dev/null
		wait $job 2>/dev/null
	fi
	rm -rf "$dir"
}

# --- the server: an ordinary nginx ---------------------------------------------
trap cleanup EXIT
# A plain exit is not enough: if the signal arrives while the EXIT trap is running, exit would
# end that trap.
trap 'cleanup; exit 130' INT
trap 'cleanup; exit 143' TERM
dir=$(mktemp -d)
head -c "${megabytes}MB" /dev/urandom >"$dir/file"
want=$(sha256sum <"$dir/file")
cat >"$dir/nginx.conf" <<END
daemon off; master_process off;
pid $dir/nginx.pid; error_log $dir/error.log;
events { }
http {
	access_log off; sendfile on;
	client_body_temp_path $dir; proxy_temp_path $dir; fastcgi_temp_path $dir; uwsgi_temp_path $dir; scgi_temp_path $dir;
	server { listen 80; root $dir; }
}
END

# --- the lab: two stacks and two wires -------------------------------------------
lab=(lab --name "$name" --paths 2 --rate "${rate}mbit" --delay 5ms --server "exec nginx -e $dir/error.log -c $dir/nginx.conf")
inventory >"$dir/before"
title "Two paths of $rate Mbit/s between two stacks; nginx on the server"
"$bin/lklrun" "${lab[@]}" --explain | grep -A 3 '^wire' | sed 's/^/  /'
title "lklrun lab --paths 2 --rate ${rate}mbit --delay 5ms --server nginx -- curl -o file http://server/file"
"$bin/lklrun" "${lab[@]}" -- curl -m 120 -s -o "$dir/got" -w '%{speed_download}' http://server/file >"$dir/speed" 2>"$dir/errors" &
job=$!

got() { [ "$(stat -c %s "$dir/got")" -ge "$1" ]; } # curl has received this many bytes
paths() { [ "$(lklctl mptcp -n "$name.client" -o json | grep -c '"state": "ESTAB')" -ge "$1" ]; }
wait_for 30 'a fifth of the file' got $((megabytes * 200000))
run lklctl mptcp -n "$name.client"
lklctl counters -n "$name.client" eth0.rx_bytes eth1.rx_bytes -o json >"$dir/bytes"
say '  received so far:' "$(tr -d '{}\n' <"$dir/bytes")"

run lklrun lab set -n "$name" a down
wait_for 30 'the download over the other path' got $(($(stat -c %s "$dir/got") + megabytes * 100000))
say '  the download continues over the other path'
run lklctl mptcp -n "$name.client"
run lklrun lab set -n "$name" a up
wait_for 30 'the path is in use again' paths 3
run lklctl mptcp -n "$name.client"

wait "$job" || die "curl ended with status $?: $(cat "$dir/errors")"
job=

title 'Result'
[ "$(sha256sum <"$dir/got")" = "$want" ] || die 'the checksum differs'
say "  $megabytes MB fetched, sha256 ${want:0:16}... is right"
awk -v bytes="$(cat "$dir/speed")" -v rate="$rate" 'BEGIN {
	mbit = bytes * 8 / 1e6
	printf "  %.0f Mbit/s over paths of %d Mbit/s: %.2f times one path, although one was cut for a while\n", mbit, rate, mbit / rate
	exit !(mbit > 1.2 * rate) }' || die 'the rate is not above 1.2 times one path: the machine is too busy for two'
inventory >"$dir/after"
diff "$dir/before" "$dir/after" >"$dir/left" || die "left behind: $(cat "$dir/left")"
say '  nothing left behind: devices, processes, mounts and instances as before'
