#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds liblkl.so into a cache outside the clone and copies it to $OUT.
#
# The cache, ${XDG_CACHE_HOME:-~/.cache}/lklrun:
#   linux-ID/          kernel source, unpacked once, never written to
#   build-ID-CC/       object tree, reused so that a change costs seconds
#   HASH/liblkl.so     result, by a hash of everything it is made from
#   lock               one build at a time
#
# LKL_HZ=100|250|300 is the tick of another kernel than the usual one, to compare:
# it has an object tree of its own (build-ID-CC-hzN), which takes as long again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/../../build/stack}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lklrun
cc=${CC:-gcc}
hz=${LKL_HZ:-}
package=linux-source-6.12
tarball=/usr/src/$package.tar.xz

die() {
	echo "lkl: $*" >&2
	exit 1
}

# Which kernel, without reading it.
source_id() {
	if [ -n "${LINUX_SOURCE:-}" ]; then
		[ -f "$LINUX_SOURCE/Kbuild" ] ||
			die "$LINUX_SOURCE is no kernel source"
		dir=$(cd "$LINUX_SOURCE" && pwd)
		{ echo "$dir"; stat -c '%Y %n' "$dir" "$dir/Makefile"
		  git -C "$dir" rev-parse HEAD 2>/dev/null || :; } | sha256sum | cut -c1-12
	elif [ -f "$tarball" ]; then
		stat -L -c '%s-%Y' "$tarball"
	else
		die "the kernel source is missing: apt install $package (or LINUX_SOURCE=DIR)"
	fi
}

# Everything the library is made from.
input_hash() {
	{
		echo "$id${hz:+ hz $hz}"
		$cc -dumpmachine
		$cc --version | head -n1
		ld --version | head -n1
		cd "$here"
		find arch lib include build.sh -type f | LC_ALL=C sort | xargs sha256sum
	} | sha256sum | cut -c1-20
}

deliver() {
	mkdir -p "$out"
	cmp -s "$cache/$hash/liblkl.so" "$out/liblkl.so" && return
	cp "$cache/$hash/liblkl.so" "$out/.liblkl.so.$$"
	mv "$out/.liblkl.so.$$" "$out/liblkl.so"
}

# What no library needs is left in the archive.
unpack() {
	[ -d "$src" ] && return
	echo "  UNPACK  $tarball"
	rm -rf "$src.tmp"
	mkdir -p "$src.tmp"
	tar -xJf "$tarball" --strip-components=1 -C "$src.tmp" \
		--exclude='*/drivers/gpu/*.[chS]' --exclude='*/drivers/media/*.[ch]' \
		--exclude='*/drivers/net/ethernet/*.[ch]' \
		--exclude='*/drivers/net/wireless/*.[ch]' \
		--exclude='*/drivers/scsi/*.[ch]' --exclude='*/drivers/infiniband/*.[ch]' \
		--exclude='*/drivers/staging/*.[ch]' \
		--exclude='*/Documentation/*.rst' --exclude='*/Documentation/*.yaml' \
		--exclude='*/Documentation/*.txt' --exclude='*/sound/*.[chS]' \
		--exclude='*/arch/*.dts' --exclude='*/arch/*.dtsi' \
		--exclude='*/tools/testing/*.[ch]' --exclude='*/tools/perf/*'
	mv "$src.tmp" "$src"
}

# The pristine tree by links, with our architecture as real files in it.
overlay() {
	mkdir -p "$work/tree/arch"
	for f in "$src"/*; do
		[ "${f##*/}" = arch ] || ln -sfn "$f" "$work/tree/${f##*/}"
	done
	for f in "$src"/arch/*; do
		ln -sfn "$f" "$work/tree/arch/${f##*/}"
	done
	# A header that comes or goes changes which one is meant, and kbuild's
	# dependencies do not know: start over.
	(cd "$here/arch/lkl" && find . -name '*.h' | LC_ALL=C sort) > "$work/headers.new"
	if ! cmp -s "$work/headers.new" "$work/headers"; then
		rm -rf "$work/obj"
		mv "$work/headers.new" "$work/headers"
	fi
	# times stay as they are where nothing has changed
	(cd "$here/arch/lkl" && find . -type f) | while read -r f; do
		cmp -s "$here/arch/lkl/$f" "$work/tree/arch/lkl/$f" && continue
		mkdir -p "$(dirname "$work/tree/arch/lkl/$f")"
		cp "$here/arch/lkl/$f" "$work/tree/arch/lkl/$f"
	done
	(cd "$work/tree/arch/lkl" && find . -type f) | while read -r f; do
		[ -f "$here/arch/lkl/$f" ] || rm "$work/tree/arch/lkl/$f"
	done
}

kernel() {
	mkdir -p "$work/obj"
	k="make -s -C $work/tree O=$work/obj ARCH=lkl CC=$cc"
	k="$k KBUILD_BUILD_USER=lkl KBUILD_BUILD_HOST=lkl KBUILD_BUILD_VERSION=1"
	# kbuild's flags of one object: what of the kernel needs mending
	k="$k CFLAGS_subflow.o=--include=$work/tree/arch/lkl/fixes/mptcp_subflow.inc"
	if ! cmp -s "$here/arch/lkl/configs/lkl_defconfig" "$work/obj/.defconfig" ||
	   ! cmp -s "$here/arch/lkl/Kconfig" "$work/obj/.kconfig"; then
		$k lkl_defconfig 2>&1 | grep -v erofs/Kconfig || :
		cp "$here/arch/lkl/configs/lkl_defconfig" "$work/obj/.defconfig"
		cp "$here/arch/lkl/Kconfig" "$work/obj/.kconfig"
		if [ -n "$hz" ]; then
			"$src/scripts/config" --file "$work/obj/.config" \
				-d HZ_1000 -e "HZ_$hz"
			$k olddefconfig
			grep -qx "CONFIG_HZ=$hz" "$work/obj/.config" ||
				die "LKL_HZ=$hz: expected 100, 250 or 300"
		fi
	fi
	echo "  KERNEL  $($k kernelversion) (a few minutes the first time)"
	$k -j"${JOBS:-$(nproc)}" lkl_object
}

library() {
	cflags="-O2 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -I$here/include"
	objs=
	for f in "$here"/lib/*.c; do
		o=$tmp/$(basename "$f" .c).o
		$cc $cflags -c "$f" -o "$o"
		objs="$objs $o"
	done
	# The kernel's names are its own: it has a memcpy, a printf and a panic.
	# Its constants hold addresses, so they are not read-only before relocation.
	objcopy --wildcard --keep-global-symbol='lklk_*' \
		--keep-global-symbol=lkl_dead --keep-global-symbol=lkl_net_sent \
		--keep-global-symbol=_text \
		--rename-section .rodata=.data.lkl_rodata \
		"$work/obj/lkl.o" "$tmp/kernel.o"

	# Symbols for the kernel's own messages, as scripts/link-vmlinux.sh does it:
	# an empty table, one of the right size, the right one.
	: > "$tmp/syms"
	for pass in 0 1 2; do
		"$work/obj/scripts/kallsyms" "$tmp/syms" > "$tmp/kallsyms.S"
		# it holds an address, and text relocations are not welcome
		sed -i 's/\.section \.rodata, "a"/.section .data.kallsyms, "aw"/' \
			"$tmp/kallsyms.S"
		$cc -DBITS_PER_LONG=64 -c "$tmp/kallsyms.S" -o "$tmp/kallsyms.o"
		$cc -shared -o "$tmp/liblkl.so" "$tmp/kernel.o" $objs "$tmp/kallsyms.o" \
			-Wl,--version-script="$here/lib/liblkl.map" \
			-Wl,-soname,liblkl.so -Wl,-z,noexecstack,-z,defs,-z,text \
			-Wl,-Bsymbolic -Wl,--build-id
		nm -n "$tmp/liblkl.so" | sed -f "$src/scripts/mksysmap" > "$tmp/syms.new"
		[ $pass = 0 ] || ! cmp -s "$tmp/syms" "$tmp/syms.new" || break
		mv "$tmp/syms.new" "$tmp/syms"
	done
}

id=$(source_id)
hash=$(input_hash)
if [ ! -f "$cache/$hash/liblkl.so" ]; then
	mkdir -p "$cache"
	exec 9> "$cache/lock"
	flock -n 9 || { echo "lkl: another build runs, waiting for it" >&2; flock 9; }
	if [ ! -f "$cache/$hash/liblkl.so" ]; then
		src=${LINUX_SOURCE:+$(cd "${LINUX_SOURCE:-.}" && pwd)}
		src=${src:-$cache/linux-$id}
		work=$cache/build-$id-$($cc -dumpmachine)-$($cc -dumpfullversion)${hz:+-hz$hz}
		tmp=$cache/tmp
		rm -rf "$tmp"
		mkdir -p "$tmp" "$work"
		unpack
		overlay
		kernel
		library
		echo "  LD      liblkl.so"
		mkdir -p "$cache/$hash"
		mv "$tmp/liblkl.so" "$cache/$hash/liblkl.so"
		rm -rf "$tmp"
	fi
fi
deliver
