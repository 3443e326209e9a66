# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Functions of demo.sh and demo-tap.sh, which source this file. They set $demo, the name in
# error messages, $megabytes, the size of the file, and $rate, that of each path in Mbit/s.
# A script defines inventory and cleanup, which removes $dir.

: "${demo:?}" "${megabytes:?}" "${rate:?}"
dir= # the file, nginx's files, observations
job= # process ID of curl while it runs

say() { printf '%s\n' "$*"; }
title() { if [ -t 1 ]; then printf '\n\e[1m%s\e[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
die() { printf '%s: %s\n' "$demo" "$*" >&2; exit 1; }

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

# begin: makes cleanup run at the end, the folder, and the file that curl downloads.
begin() {
	trap cleanup EXIT
	# A plain exit is not enough: if the signal arrives while the EXIT trap is running,
	# exit would end that trap.
	trap 'cleanup; exit 130' INT
	trap 'cleanup; exit 143' TERM
	dir=$(mktemp -d)
	head -c "${megabytes}MB" /dev/urandom >"$dir/file"
	want=$(sha256sum <"$dir/file")
}

# await_curl: waits for the end of curl.
await_curl() {
	wait "$job" || die "curl ended with status $?: $(cat "$dir/errors")"
	job=
}

# finish WHAT NOTE: checks the file, its rate and what is left. WHAT is a path or link.
finish() {
	title 'Result'
	[ "$(sha256sum <"$dir/got")" = "$want" ] || die 'the checksum differs'
	say "  $megabytes MB fetched, sha256 ${want:0:16}... is right"
	awk -v bytes="$(cat "$dir/speed")" -v rate="$rate" -v paths="$1" -v note="$2" 'BEGIN {
		mbit = bytes * 8 / 1e6
		printf "  %.0f Mbit/s over %ss of %d Mbit/s: %.2f times one %s%s\n", mbit, paths, rate, mbit / rate, paths, note
		exit !(mbit > 1.2 * rate) }' || die "the rate is not above 1.2 times one $1: the machine is too busy for two"
	inventory >"$dir/after"
	diff "$dir/before" "$dir/after" >"$dir/left" || die "left behind: $(cat "$dir/left")"
}
