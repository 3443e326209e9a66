#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds liblkl.so and liblkl.a into a cache outside the clone and copies them to
# $OUT. The archive is the same library for static linking: position-independent, with
# only lkl_*() visible, for any C library.
#
# The cache, ${XDG_CACHE_HOME:-~/.cache}/lklrun:
#   linux-ID/          kernel source, unpacked once, never changed
#   build-ID-CC/       object tree, reused so that a change takes seconds
#   HASH/liblkl.*      result, by a hash of all its inputs
#   lock*              one build of a kind at a time
#
# LKL_ARCH=amd64|arm64|arm builds for a device: liblkl.so then depends on no other
# library. The default is this machine. For another CPU it uses Debian's cross compiler.
#
# LKL_HZ=100|250|300 builds a kernel with another tick, for comparison. It uses an object
# tree of its own (build-ID-CC-hzN), which takes as long as the first build.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lklrun
hz=${LKL_HZ:-}
package=linux-source-6.12
tarball=/usr/src/$package.tar.xz

die() {
	echo "lkl: $*" >&2
	exit 1
}

case $hz in
'' | 100 | 250 | 300) ;;
*) die "LKL_HZ=$hz: expected 100, 250 or 300" ;;
esac

# Compiler, directory in arch/lkl, bits and flags of the target.
target() {
	triple=$(${CC:-gcc} -dumpmachine)
	case ${LKL_ARCH:-$triple} in
	amd64 | x86_64-*) arch=amd64 want=x86_64-linux-gnu ;;
	arm64 | aarch64-*) arch=arm64 want=aarch64-linux-gnu ;;
	arm | arm-*) arch=arm want=arm-linux-gnueabihf ;;
	*) die "LKL_ARCH=${LKL_ARCH:-$triple}: expected amd64, arm64 or arm" ;;
	esac
	bits=64 cpu=$arch cross='' pages='' flags='' device=''
	[ "${triple%%-*}" = "${want%%-*}" ] || cross=$want-
	if [ -n "$cross" ]; then
		cc=${cross}gcc
	else
		cc=${CC:-gcc}
	fi
	command -v "$cc" >/dev/null ||
		die "$cc is missing: apt install gcc-$want"
	[ -z "${LKL_ARCH:-}" ] || device=1
	case $arch in
	# A device may have pages of 16 KiB.
	amd64)	cpu=x86_64 pages=${device:+-Wl,-z,max-page-size=16384} ;;
	# Supports pages of up to 64 KiB. The vector registers belong to
	# the callers (arch/lkl/arm64/switch.S), x18 to the platform.
	arm64)	flags='-mgeneral-regs-only -ffixed-x18 -mno-outline-atomics'
		pages=-Wl,-z,max-page-size=65536 ;;
	# Avoid glibc's inline functions, one of which uses a double.
	arm)	bits=32 flags='-marm -mgeneral-regs-only -D__NO_INLINE__'
		pages=-Wl,-z,max-page-size=65536 ;;
	esac
}

# The files of a directory, without those of other CPUs.
ours() {
	find "$@" -type d \( -name x86_64 -o -name arm64 -o -name arm \) \
		! -name "$cpu" -prune -o -type f -print | LC_ALL=C sort
}

# Identifies the kernel without reading it.
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

# All inputs of the library.
input_hash() {
	{
		echo "$id${hz:+ hz $hz}${device:+ device}"
		$cc -dumpmachine
		$cc --version | head -n1
		"${cross}ld" --version | head -n1
		cd "$here"
		ours arch lib include build.sh | xargs sha256sum
	} | sha256sum | cut -c1-20
}

deliver() {
	mkdir -p "$out"
	for f in liblkl.so liblkl.a; do
		cmp -s "$cache/$hash/$f" "$out/$f" && continue
		cp "$cache/$hash/$f" "$out/.$f.$$"
		mv "$out/.$f.$$" "$out/$f"
	done
}

# Unpacks the kernel without parts that no library needs.
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

# Links to the original tree, with our architecture as real files in it.
overlay() {
	mkdir -p "$work/tree/arch"
	for f in "$src"/*; do
		[ "${f##*/}" = arch ] || ln -sfn "$f" "$work/tree/${f##*/}"
	done
	for f in "$src"/arch/*; do
		ln -sfn "$f" "$work/tree/arch/${f##*/}"
	done
	# A header that is added or removed can change the result of #include, and
	# kbuild's dependencies do not cover that: start over.
	(cd "$here/arch/lkl" && ours . | grep '\.h$') > "$work/headers.new"
	if ! cmp -s "$work/headers.new" "$work/headers"; then
		rm -rf "$work/obj"
		mv "$work/headers.new" "$work/headers"
	fi
	# unchanged files keep their times
	(cd "$here/arch/lkl" && ours .) | while read -r f; do
		cmp -s "$here/arch/lkl/$f" "$work/tree/arch/lkl/$f" && continue
		mkdir -p "$(dirname "$work/tree/arch/lkl/$f")"
		cp "$here/arch/lkl/$f" "$work/tree/arch/lkl/$f"
	done
	(cd "$work/tree/arch/lkl" && find . -type f) | while read -r f; do
		[ -f "$here/arch/lkl/$f" ] || rm -f "$work/tree/arch/lkl/$f"
	done
}

# The fixes for the kernel: arch/lkl/fixes/list without its comments.
fixes() {
	grep -v '^#' "$here/arch/lkl/fixes/list"
}

# A fix is only valid for the function that it was written for. kbuild would not report a
# missing file, and the fix could damage another version of the function.
check_fixes() {
	fixes | while read -r fix file function sum; do
		[ -f "$src/$file" ] ||
			die "$src has no $file, which arch/lkl/fixes/$fix mends: expected Linux 6.12.117 or a later 6.12.y"
		is=$(sed -n "/^[a-z].*\<$function(/,/^}/p" "$src/$file" | sha256sum | cut -c1-16)
		[ "$is" = "$sum" ] ||
			die "$function() in $src/$file is not the one that arch/lkl/fixes/$fix mends: see whether it still needs it, and put $is into arch/lkl/fixes/list"
	done
}

kernel() {
	mkdir -p "$work/obj"
	k="make -s -C $work/tree O=$work/obj ARCH=lkl CC=$cc"
	k="$k CROSS_COMPILE=$cross"
	k="$k KBUILD_BUILD_USER=lkl KBUILD_BUILD_HOST=lkl KBUILD_BUILD_VERSION=1"
	# kbuild's flags for one object
	k="$k $(fixes | while read -r fix file _; do
		echo "CFLAGS_$(basename "$file" .c).o=--include=$work/tree/arch/lkl/fixes/$fix"
	done | tr '\n' ' ')"
	if ! cmp -s "$here/arch/lkl/configs/lkl_defconfig" "$work/obj/.defconfig" ||
	   ! cmp -s "$here/arch/lkl/Kconfig" "$work/obj/.kconfig"; then
		$k lkl_defconfig 2>&1 | grep -v erofs/Kconfig || :
		cp "$here/arch/lkl/configs/lkl_defconfig" "$work/obj/.defconfig"
		cp "$here/arch/lkl/Kconfig" "$work/obj/.kconfig"
		if [ -n "$hz" ]; then
			"$src/scripts/config" --file "$work/obj/.config" \
				-d HZ_1000 -e "HZ_$hz"
			$k olddefconfig
		fi
	fi
	echo "  KERNEL  $($k kernelversion) (a few minutes the first time)"
	$k -j"${JOBS:-$(nproc)}" lkl_object
}

library() {
	cflags="-O2 -fPIC -fvisibility=hidden -ftls-model=initial-exec -Wall -Wextra -Werror -I$here/include $flags"
	objs=
	for f in "$here"/lib/*.c; do
		o=$tmp/$(basename "$f" .c).o
		$cc $cflags -c "$f" -o "$o"
		objs="$objs $o"
	done
	# Hide the kernel's names: it has its own memcpy, printf and panic.
	# Its constants contain addresses, so they are not read-only before relocation.
	# The attributes of 32-bit Arm would forbid a wchar_t of another size elsewhere.
	"${cross}objcopy" --wildcard --keep-global-symbol='lklk_*' \
		--keep-global-symbol=lkl_dead --keep-global-symbol=lkl_net_sent \
		--keep-global-symbol=_text \
		--rename-section .rodata=.data.lkl_rodata \
		--remove-section=.ARM.attributes \
		--add-section .note.GNU-stack=/dev/null \
		--set-section-flags .note.GNU-stack=readonly \
		"$work/obj/lkl.o" "$tmp/kernel.o"

	# Symbols for the kernel's own messages, in the steps of
	# scripts/link-vmlinux.sh: an empty table, one of the right size, the final one.
	: > "$tmp/syms"
	for pass in 0 1 2; do
		"$work/obj/scripts/kallsyms" "$tmp/syms" > "$tmp/kallsyms.S"
		# it contains an address, and text relocations must be avoided
		sed -i 's/\.section \.rodata, "a"/.section .data.kallsyms, "aw"/' \
			"$tmp/kallsyms.S"
		echo '.section .note.GNU-stack, "", %progbits' >> "$tmp/kallsyms.S"
		$cc -DBITS_PER_LONG=$bits -c "$tmp/kallsyms.S" -o "$tmp/kallsyms.o"
		$cc -shared -o "$tmp/liblkl.so" "$tmp/kernel.o" $objs "$tmp/kallsyms.o" \
			-Wl,--version-script="$here/lib/liblkl.map" \
			-Wl,-soname,liblkl.so -Wl,-z,noexecstack,-z,defs,-z,text \
			-Wl,-Bsymbolic -Wl,--build-id $pages
		"${cross}nm" -n "$tmp/liblkl.so" | sed -f "$src/scripts/mksysmap" > "$tmp/syms.new"
		[ $pass = 0 ] || ! cmp -s "$tmp/syms" "$tmp/syms.new" || break
		mv "$tmp/syms.new" "$tmp/syms"
	done

	# For programs with any C library: no library names, no symbol versions.
	# Weak: glibc has this symbol in its static part, which must not be linked in.
	"${cross}ld" -r -o "$tmp/lib.o" $objs
	"${cross}objcopy" --weaken-symbol=pthread_atfork "$tmp/lib.o"
	[ -z "$device" ] ||
		$cc -shared -nostdlib -o "$tmp/liblkl.so" "$tmp/kernel.o" "$tmp/lib.o" \
			"$tmp/kallsyms.o" -lgcc \
			-Wl,--version-script="$here/lib/liblkl.map" \
			-Wl,-soname,liblkl.so -Wl,-z,noexecstack,-z,text \
			-Wl,-Bsymbolic -Wl,--build-id $pages

	# Offsets in the kernel's code, which kallsyms contains, are the same there.
	"${cross}nm" -D --defined-only "$tmp/liblkl.so" | awk '{ print $3 }' > "$tmp/api"
	"${cross}ld" -r -o "$tmp/all.o" "$tmp/kernel.o" $objs "$tmp/kallsyms.o"
	"${cross}objcopy" --keep-global-symbols="$tmp/api" --remove-section=.comment \
		"$tmp/all.o" "$tmp/lkl.o"
	"${cross}ar" rcsD "$tmp/liblkl.a" "$tmp/lkl.o"
}

target
out=${OUT:-$here/../../build/stack}
id=$(source_id)
hash=$(input_hash)
if [ ! -f "$cache/$hash/liblkl.a" ]; then
	mkdir -p "$cache"
	src=${LINUX_SOURCE:+$(cd "${LINUX_SOURCE:-.}" && pwd)}
	src=${src:-$cache/linux-$id}
	name=$($cc -dumpmachine)-$($cc -dumpfullversion)${hz:+-hz$hz}
	(flock 9 && unpack) 9> "$cache/lock"
	exec 9> "$cache/lock-$name"
	flock -n 9 || { echo "lkl: another build runs, waiting for it" >&2; flock 9; }
	if [ ! -f "$cache/$hash/liblkl.a" ]; then
		work=$cache/build-$id-$name
		tmp=$cache/tmp-$name
		check_fixes
		rm -rf "$tmp"
		mkdir -p "$tmp" "$work"
		overlay
		kernel
		library
		echo "  LD      liblkl.so"
		mkdir -p "$cache/$hash"
		mv "$tmp/liblkl.so" "$cache/$hash/liblkl.so"
		mv "$tmp/liblkl.a" "$cache/$hash/liblkl.a"
		rm -rf "$tmp"
	fi
fi
deliver
