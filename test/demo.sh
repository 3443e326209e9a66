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
demo=demo megabytes=200 rate=100 # size of the file; rate of each path, in Mbit/s
bin=${LKLRUN_BIN:-$(dirname "$0")/../bin}
name=demo-$$
# shellcheck source=test/demo-lib.sh
. "$(dirname "$0")/demo-lib.sh"

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
begin
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

await_curl
finish path ', although one was cut for a while'
say '  nothing left behind: devices, processes, mounts and instances as before'
