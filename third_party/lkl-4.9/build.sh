#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds liblkl.so of LKL for Linux 4.9 and copies it to $OUT.
#
# Nothing of its source is here: npm's package lkl holds a copy of it, which is
# fetched once, held against the checksum below and kept in the cache,
# ${XDG_CACHE_HOME:-~/.cache}/lklrun:
#   lkl-1.0.3.tgz      the package
#   HASH/liblkl.so     result, by a hash of all it is made from
#   lock               one build at a time
# The tree is unpacked, edited and built in a folder that goes afterwards.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/../../build/stack-4.9}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lklrun
cc=${CC:-gcc}
package=lkl@1.0.3
tarball=$cache/lkl-1.0.3.tgz
# The registry's "integrity" of it, in hexadecimal.
sha512=c7d471c176906de12c2acd10774b59599889af19e4531b9e198e7a66b1e2b0b9b3ba0b4581c54aaa10799391f623d0ba6902016b6514132cbff7359c02301aa9

die() {
	echo "lkl-4.9: $*" >&2
	exit 1
}

# Everything the library is made from.
input_hash() {
	{
		echo $sha512
		$cc -dumpmachine
		$cc --version | head -n1
		ld --version | head -n1
		sha256sum < "$here/build.sh"
	} | sha256sum | cut -c1-20
}

right() {
	echo "$sha512  $1" | sha512sum --check --status
}

fetch() {
	[ -f "$tarball" ] && right "$tarball" && return
	command -v npm > /dev/null || die "npm is missing: apt install npm"
	echo "  FETCH   $package"
	(cd "$tmp" && npm pack "$package" --loglevel=error > /dev/null 2>&1) ||
		die "npm pack $package failed: is the registry within reach?"
	right "$tmp/lkl-1.0.3.tgz" ||
		die "$package from the registry is not the package that was meant (sha512)"
	mv "$tmp/lkl-1.0.3.tgz" "$tarball"
}

# edit FILE EXPRESSION - sed, that must change something
edit() {
	sed -i.was "$2" "$tree/$1"
	! cmp -s "$tree/$1" "$tree/$1.was" || die "$1 is not as expected"
	rm "$tree/$1.was"
}

# What today's tools want to be different, and the file systems that make a
# boot last 1.6 s (they measure checksums) and no network stack needs.
edits() {
	edit tools/lkl/lib/virtio_net_raw.c \
		's,<linux/if_packet.h>,<netpacket/packet.h>,'
	edit tools/build/Build.include "s/printf '\\\\#/printf '#/"
	edit arch/lkl/scripts/headers_install.py '1s/python$/python3/'
	edit arch/lkl/defconfig '/BTRFS_FS\|XFS_FS\|XFS_POSIX/d'
}

build() {
	make -s -C "$tree/tools/lkl" -j"${JOBS:-$(nproc)}" shared CC="$cc" \
		KALLSYMS_EXTRA_PASS=1 KCFLAGS=-w LDLIBS=-Wl,-z,noexecstack \
		> "$tmp/log" 2>&1 || {
		tail -n 20 "$tmp/log" >&2
		die "the build failed"
	}
}

hash=$(input_hash)
if [ ! -f "$cache/$hash/liblkl.so" ]; then
	mkdir -p "$cache"
	exec 9> "$cache/lock"
	flock -n 9 || { echo "lkl-4.9: another build runs, waiting for it" >&2; flock 9; }
	if [ ! -f "$cache/$hash/liblkl.so" ]; then
		tmp=$cache/tmp-4.9
		tree=$tmp/package/src/linux
		rm -rf "$tmp"
		mkdir -p "$tmp"
		fetch
		tar -xzf "$tarball" -C "$tmp" package/src/linux
		edits
		echo "  KERNEL  4.9 (two minutes the first time)"
		build
		echo "  LD      liblkl.so of 4.9"
		mkdir -p "$cache/$hash"
		strip --strip-debug -o "$cache/$hash/.liblkl.so" "$tree/tools/lkl/liblkl.so"
		mv "$cache/$hash/.liblkl.so" "$cache/$hash/liblkl.so"
		rm -rf "$tmp"
	fi
fi
mkdir -p "$out"
if ! cmp -s "$cache/$hash/liblkl.so" "$out/liblkl.so"; then
	cp "$cache/$hash/liblkl.so" "$out/.liblkl.so.$$"
	mv "$out/.liblkl.so.$$" "$out/liblkl.so"
fi
