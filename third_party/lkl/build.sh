#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds liblkl.so and liblkl.a into a cache outside the clone and copies them to
# $OUT. The archive is the same library for static linking: position-independent, with
# only lkl_*() visible, for any C library.
#
# The cache, ${XDG_CACHE_HOME:-~/.cache}/lklrun:
#   linux-ID/          kernel source, unpacked once, never changed
#   work-ID-CC/        tree of links with our files, and the object tree, reused so that a
#                      change takes seconds
#   HASH/liblkl.*      result, by a hash of all its inputs
#   live-ID-CC/        result of a directory given by LINUX_SOURCE, which may change
#   lock*              one build of a kind at a time
#
# LKL_KERNEL=6.1|6.12|7.3 selects Debian's package linux-source-VERSION. The default is
# 6.12. LINUX_SOURCE=DIR uses a source tree instead, which is not changed.
#
# LKL_ARCH=amd64|arm64|arm builds for a device: liblkl.so then depends on no other
# library. The default is this machine. For another CPU it uses Debian's cross compiler.
#
# LKL_PATCHES and LKL_CONFIG name further patches, and files with kernel options, one per
# line. LKL_FIXES=try omits those of the patches in patches/VERSION/series that do not fit
# the kernel, with a message, instead of refusing the kernel. LKL_FIXES=none omits all.
#
# LKL_VERBOSE=1 prints the name of each file that is compiled. LKL_CHECK=1 only checks
# whether the kernel and the patches fit.
#
# LKL_HZ=100|250|300 builds a kernel with another tick, for comparison. It uses an object
# tree of its own (work-ID-CC-hzN), which takes as long as the first build.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lklrun
hz=${LKL_HZ:-}
quiet=-s
[ -z "${LKL_VERBOSE:-}" ] || quiet=--no-print-directory
oldest=6.1

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

# Refuses a version that the architecture does not support.
recent() {
	[ "$(printf '%s\n' $oldest "$version" | sort -V | head -n1)" = $oldest ] ||
		die "$1: expected $oldest or later"
}

# Finds the kernel: $src, $id and $version. $live: the source may change at any time.
find_kernel() {
	live=''
	if [ -n "${LINUX_SOURCE:-}" ]; then
		[ -f "$LINUX_SOURCE/Kbuild" ] ||
			die "$LINUX_SOURCE is no kernel source"
		src=$(cd "$LINUX_SOURCE" && pwd) live=1
		version=$(sed -n 's/^VERSION = //p' "$src/Makefile").$(sed -n 's/^PATCHLEVEL = //p' "$src/Makefile")
		case $version in
		[0-9]*.[0-9]*) ;;
		*) die "$src/Makefile has no VERSION and PATCHLEVEL: $src is no kernel source" ;;
		esac
		recent "$src is Linux $version"
		for f in .config include/config include/generated; do
			[ ! -e "$src/$f" ] ||
				die "$src contains a build ($f), which would mix with this one: make -C $src mrproper, or use a clean checkout (git worktree add)"
		done
		id=$(echo "$src" | sha256sum | cut -c1-12)
	else
		version=${LKL_KERNEL:-6.12}
		recent "Linux $version"
		tarball=/usr/src/linux-source-$version.tar.xz
		[ -f "$tarball" ] || tarball=$cache/linux-source-$version.tar.xz
		[ -f "$tarball" ] ||
			die "the kernel source is missing: apt install linux-source-$version (or use the directory of a kernel source)"
		id=$(stat -L -c '%s-%Y' "$tarball")
		src=$cache/linux-$id
	fi
	series=$here/patches/$version
}

# All inputs of the library, except a source that may change.
input_hash() {
	{
		echo "$version $id${hz:+ hz $hz}${device:+ device}"
		lines "${LKL_PATCHES:-}" "${LKL_CONFIG:-}" | while read -r f; do
			sha256sum < "$f"
		done
		[ "${LKL_FIXES:-}" != none ] || echo 'no fixes'
		$cc -dumpmachine
		$cc --version | head -n1
		"${cross}ld" --version | head -n1
		cd "$here"
		ours arch lib include build.sh | xargs sha256sum
		[ ! -d "$series" ] || ours "patches/$version" patches/*.patch | xargs sha256sum
	} | sha256sum | cut -c1-20
}

# Whether the cache has the library. One without some of the fixes does not count if all
# of them are required.
built() {
	[ -f "$cache/$hash/liblkl.info" ] || return
	[ "${LKL_FIXES:-}" = try ] || ! grep -q '^missing=' "$cache/$hash/liblkl.info"
}

# The lines of the arguments.
lines() {
	printf '%s\n' "$@" | sed '/^$/d'
}

deliver() {
	mkdir -p "$out"
	for f in liblkl.so liblkl.a liblkl.info; do
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
	# A library has neither DMA nor I/O memory, so these drivers are useless. Other
	# architectures' headers stay, because patches for new socket options change them.
	set --
	for d in accel clk comedi crypto dma gpu hid hwmon i2c iio infiniband input media mfd mmc \
		mtd net/ethernet net/wireless pci phy pinctrl platform power regulator s390 scsi \
		soc spi staging usb video; do
		set -- "$@" --exclude="*/drivers/$d/*.[chS]"
	done
	XZ_DEFAULTS=-T0 tar -xJf "$tarball" --strip-components=1 -C "$src.tmp" --anchored "$@" \
		--exclude='*/Documentation/*.rst' --exclude='*/Documentation/*.yaml' \
		--exclude='*/Documentation/*.txt' --exclude='*/sound/*.[chS]' \
		--exclude='*/arch/*.dts' --exclude='*/arch/*.dtsi' \
		--exclude='*/tools/testing/*.[ch]' --exclude='*/tools/perf/*'
	mv "$src.tmp" "$src"
}

# Links a directory's entries to the original, except those that are real files or
# directories in the tree.
link_entries() {
	for f in "$src/$1"*; do
		t=$work/tree/$1${f##*/}
		if [ -L "$t" ]; then
			[ "$(readlink "$t")" = "$f" ] || ln -sfn "$f" "$t"
		elif [ ! -e "$t" ]; then
			ln -s "$f" "$t"
		fi
	done
	find "$work/tree/$1" -maxdepth 1 -xtype l -delete
}

# Makes a directory of the tree a real one with links, and the directories above it.
real_dir() {
	case $1 in */*) real_dir "${1%/*}" ;; esac
	[ ! -L "$work/tree/$1" ] || rm "$work/tree/$1"
	mkdir -p "$work/tree/$1"
	link_entries "$1/"
}

# Links to the original tree, with our architecture and the patched files as real files.
overlay() {
	mkdir -p "$work/tree"
	link_entries ''
	real_dir arch
	[ ! -L "$work/tree/arch/lkl" ] || die "$src has an architecture lkl: expected an unmodified kernel"
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

	# A file that was patched once stays a copy, because the original's time is older
	# than the object.
	{ cat "$work/patched" 2>/dev/null || :; (cd "$tmp/patched" && find . -type f | cut -c3-); } | sort -u > "$tmp/list"
	mv "$tmp/list" "$work/patched"
	while read -r file; do
		real_dir "$(dirname "$file")"
		from=$tmp/patched/$file to=$work/tree/$file
		[ -f "$from" ] || from=$src/$file
		if [ ! -f "$from" ]; then
			rm -f "$to"
		elif [ -L "$to" ] || ! cmp -s "$from" "$to"; then
			rm -f "$to"
			cp "$from" "$to"
			touch "$to"
		fi
	done < "$work/patched"
}

# Checks a patch of the series against the kernel: one line on standard output says what
# does not fit. A patch is only valid for the functions that it was written for. It could
# apply to another version of a function and damage it.
misfit() {
	sed -n "\\,^$1\$,,/^[^#]/{/^#= /p}" "$series/series" | while read -r _ file function sum; do
		if [ ! -f "$src/$file" ]; then
			echo "$src has no $file, which ${1##*/} mends"
			return
		fi
		is=$(sed -n "/^\\([a-z].*[ *]\\)\\{0,1\\}$function(/,/^}/p" "$src/$file" | sha256sum | cut -c1-16)
		if [ "$is" != "$sum" ]; then
			echo "$function() in $src/$file is not the one that ${1##*/} mends: see whether it still needs the patch, and put $is into $series/series"
			return
		fi
	done
}

# Refuses a kernel that lacks what the architecture uses of the files in arch/lkl/needs.
needs() {
	grep -v '^#' "$here/arch/lkl/needs" | while read -r user file words; do
		[ -f "$src/$file" ] ||
			die "$src has no $file, which arch/lkl/$user includes: change the include for this kernel"
		for word in $words; do
			grep -qwE "$word" "$src/$file" ||
				die "$src/$file has no $word, which arch/lkl/$user uses: map its new name in arch/lkl/include/asm/lkl_compat.h"
		done
	done || exit 1
}

# The kernel's files that patches change.
patched() {
	cat "$@" | sed -n 's,^[-+][-+][-+] [ab]/\([^	]*\).*,\1,p' | sort -u
}

# Applies the patches to a copy of the files that they change, $tmp/patched, and writes
# down which ones: $tmp/fixes.
apply_patches() {
	set --
	: > "$tmp/fixes"
	: > "$tmp/series"
	if [ "${LKL_FIXES:-}" = none ]; then
		:
	elif [ ! -d "$series" ]; then
		echo "lkl: no fixes are known for Linux $version (third_party/lkl/patches)" >&2
	else
		grep -v '^#' "$series/series" > "$tmp/series" || :
	fi
	while read -r p; do
		why=$(misfit "$p")
		name=$(basename "$p" .patch)
		if [ -z "$why" ]; then
			set -- "$@" "$series/$p"
			echo "fix=$name" >> "$tmp/fixes"
		elif [ "${LKL_FIXES:-}" = try ]; then
			echo "lkl: without $name: $why" >&2
			echo "missing=$name" >> "$tmp/fixes"
		else
			die "$why"
		fi
	done < "$tmp/series"
	IFS='
'
	for p in ${LKL_PATCHES:-}; do
		set -- "$@" "$p"
	done
	unset IFS
	rm -rf "$tmp/patched"
	mkdir -p "$tmp/patched"
	patched "$@" /dev/null | while read -r f; do
		[ -f "$src/$f" ] || continue
		mkdir -p "$tmp/patched/$(dirname "$f")"
		cp "$src/$f" "$tmp/patched/$f"
	done
	for p; do
		patch -f -E -p1 -F0 --no-backup-if-mismatch -r - -d "$tmp/patched" < "$p" > "$tmp/patch.log" 2>&1 ||
			die "$p does not apply to Linux $version in $src: $(awk '/^patching file/ { f = $3 ": " } /FAILED|find file|Only garbage/ { print f $0; exit }' "$tmp/patch.log")"
	done
}

# Whether the configuration has an option's value, or does not have the option.
effective() { # LINE
	case $1 in
	'# '*' is not set') set -- "${1#\# }" && set -- "${1% is not set}=n" ;;
	'#'*) return 0 ;; # a comment
	esac
	case $1 in
	*=n) ! grep -q "^${1%=n}=" "$work/obj/.config" ;;
	*) grep -qxF "$1" "$work/obj/.config" ;;
	esac
}

# The kernel's options: ours, those of LKL_CONFIG, and what follows from them.
configure() {
	set -- "$here/arch/lkl/configs/lkl_defconfig"
	[ -n "$device" ] || set -- "$@" "$here/arch/lkl/configs/lab"
	{
		cat "$@"
		[ -z "$hz" ] || printf '%s\n' '# CONFIG_HZ_1000 is not set' "CONFIG_HZ_$hz=y"
		lines "${LKL_CONFIG:-}" | while read -r f; do cat "$f"; done
	} > "$tmp/options"
	if [ -z "$live" ] && cmp -s "$tmp/options" "$work/obj/.options" &&
	   cmp -s "$here/arch/lkl/Kconfig" "$work/obj/.kconfig"; then
		return
	fi
	# Without .options, the next build does not use the result of one that fails here.
	cmp -s "$tmp/options" "$work/obj/.options" || cp "$tmp/options" "$work/obj/.config"
	rm -f "$work/obj/.options"
	$k olddefconfig 2>&1 | grep -v 'erofs/Kconfig\|EROFS_FS\|reassigning to symbol' || :
	[ -f "$work/obj/.config" ] || die "make olddefconfig failed in $work/tree"
	lines "${LKL_CONFIG:-}" | while read -r f; do
		grep -E '^(# )?CONFIG_' "$f" | while IFS= read -r option; do
			effective "$option" ||
				die "$option of $f has no effect: Linux $version does not have this option, or it depends on the value of another option"
		done
	done
	# What an option stands for may depend on another one in a later version. Some of
	# these options are newer than the oldest version. LKL_CONFIG may switch any off.
	lost=$(grep -oh '^CONFIG_[A-Z0-9_]*=y' "$@" |
		grep -v LEGACY | grep -vxF -f "$work/obj/.config" | tr '\n' ' ')
	[ -z "$lost" ] || [ -n "${LKL_CONFIG:-}" ] || echo "lkl: Linux $version does not take these options: $lost" >&2
	cp "$tmp/options" "$work/obj/.options"
	cp "$here/arch/lkl/Kconfig" "$work/obj/.kconfig"
}

# Prints the names that the compiled files of a directory register: KEY=NAME.
offers() { # KEY DIR STRUCTURE FIELD
	"${cross}ar" t "$work/obj/$2/built-in.a" | sed "s,.*/,,; s,^,$work/tree/$2/,; s,\\.o\$,.c," | while read -r f; do
		[ ! -f "$f" ] || awk -v type="$3" -v field="\\.$4[ \t]*=[ \t]*\"" '
			match($0, "struct " type " [a-zA-Z0-9_]+") { split(substr($0, RSTART, RLENGTH), w, " "); name = w[3] }
			name && $0 ~ field { split($0, w, "\""); print name, w[2]; name = "" }
			/^}/ { name = "" }' "$f"
	done | while read -r name value; do
		# some structures are for internal use
		! grep -qsE "register[a-z_]*\\(&$name\\)" "$work/tree/$2"/*.c || echo "$1=$value"
	done | LC_ALL=C sort -u
}

kernel() {
	mkdir -p "$work/obj"
	k="make $quiet -C $work/tree O=$work/obj ARCH=lkl CC=$cc"
	k="$k CROSS_COMPILE=$cross"
	k="$k KBUILD_BUILD_USER=lkl KBUILD_BUILD_HOST=lkl KBUILD_BUILD_VERSION=1"
	configure
	echo "  KERNEL  $($k -s kernelversion) (a few minutes the first time)"
	$k -j"${JOBS:-$(nproc)}" lkl_object
}

library() {
	cflags="-O2 -fPIC -fvisibility=hidden -ftls-model=initial-exec -Wall -Wextra -Werror -I$here/include $flags"
	objs=$(for f in "$here"/lib/*.c; do echo "$tmp/$(basename "$f" .c).o"; done)
	printf '%s\n' "$here"/lib/*.c | xargs -d '\n' -P "${JOBS:-$(nproc)}" -I{} \
		sh -c 'out=$1 f=$2; shift 2; "$@" -c "$f" -o "$out/$(basename "$f" .c).o"' sh "$tmp" {} $cc $cflags
	# Hide the kernel's names: it has its own memcpy, printf and panic.
	# Its constants contain addresses, so they are not read-only before relocation.
	# The attributes of 32-bit Arm would forbid a wchar_t of another size elsewhere.
	# On a device, no debugger has the kernel's symbols. Without the unwind tables, a bundle
	# is 3 % smaller.
	"${cross}objcopy" ${device:+--remove-section=.eh_frame} --wildcard --keep-global-symbol='lklk_*' \
		--keep-global-symbol=lkl_dead --keep-global-symbol=lkl_net_sent \
		--keep-global-symbol=_text \
		--rename-section .rodata=.data.lkl_rodata \
		--remove-section=.ARM.attributes \
		--add-section .note.GNU-stack=/dev/null \
		--set-section-flags .note.GNU-stack=readonly \
		"$work/obj/lkl.o" "$tmp/kernel.o"

	# Symbols for the kernel's own messages, in the steps of
	# scripts/link-vmlinux.sh: an empty table, one of the right size, the final one.
	# Versions differ in the option for tables with offsets. Older ones accept no empty
	# table, and have a shell script that makes the list.
	printf '%s\n' '0 T _text' '0 T _stext' '8 T _etext' > "$tmp/syms"
	relative=$(sed -n 's/.*{"\(base-relative\|pc-relative\)".*/--\1/p' "$src/scripts/kallsyms.c")
	for pass in 0 1 2; do
		"$work/obj/scripts/kallsyms" $relative "$tmp/syms" > "$tmp/kallsyms.S"
		# it contains an address, and text relocations must be avoided
		sed -i 's/\.section \.rodata, "a"/.section .data.kallsyms, "aw"/' \
			"$tmp/kallsyms.S"
		echo '.section .note.GNU-stack, "", %progbits' >> "$tmp/kallsyms.S"
		$cc -DBITS_PER_LONG=$bits -c "$tmp/kallsyms.S" -o "$tmp/kallsyms.o"
		$cc -shared -o "$tmp/liblkl.so" "$tmp/kernel.o" $objs "$tmp/kallsyms.o" \
			-Wl,--version-script="$here/lib/liblkl.map" \
			-Wl,-soname,liblkl.so -Wl,-z,noexecstack,-z,defs,-z,text \
			-Wl,-Bsymbolic -Wl,--build-id $pages
		if head -n1 "$src/scripts/mksysmap" | grep -q sed; then
			"${cross}nm" -n "$tmp/liblkl.so" | sed -f "$src/scripts/mksysmap" > "$tmp/syms.new"
		else
			NM=${cross}nm sh "$src/scripts/mksysmap" "$tmp/liblkl.so" "$tmp/syms.new"
		fi
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
	{
		echo "kernel=$($k -s kernelversion)"
		cat "$tmp/fixes"
		offers congestion net/ipv4 tcp_congestion_ops name
		offers scheduler net/mptcp mptcp_sched_ops name
		offers qdisc net/sched Qdisc_ops id
	} > "$tmp/liblkl.info"
	# lklrun stack show reads it from the library.
	"${cross}objcopy" --add-section .lkl.info="$tmp/liblkl.info" "$tmp/liblkl.so"
}

target
out=${OUT:-$here/../../build/stack}
find_kernel
if [ -n "${LKL_CHECK:-}" ]; then
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	[ -n "$live" ] || (flock 9 && unpack) 9> "$cache/lock"
	needs
	apply_patches
	echo "Linux $version"
	sed 's/^fix=/with the fix /; s/^missing=/without the fix /' "$tmp/fixes"
	exit
fi
# Each set of options in configs/ has an object tree of its own.
set=$(lines "${LKL_CONFIG:-}" | sed -n "s,^$here/arch/lkl/configs/,-,p" | tr -d '\n')
name=$id-$($cc -dumpmachine)-$($cc -dumpfullversion)${hz:+-hz$hz}${device:+-device}$set
hash=$(input_hash)
[ -z "$live" ] || hash=live-$name
if [ -n "$live" ] || ! built; then
	mkdir -p "$cache"
	[ -n "$live" ] || (flock 9 && unpack) 9> "$cache/lock"
	exec 9> "$cache/lock-$name"
	flock -n 9 || { echo "lkl: another build runs, waiting for it" >&2; flock 9; }
	if [ -n "$live" ] || ! built; then
		work=$cache/work-$name
		tmp=$cache/tmp-$name
		rm -rf "$tmp"
		mkdir -p "$tmp" "$work"
		needs
		apply_patches
		overlay
		kernel
		library
		echo "  LD      liblkl.so"
		mkdir -p "$cache/$hash"
		for f in liblkl.so liblkl.a liblkl.info; do
			mv "$tmp/$f" "$cache/$hash/$f"
		done
		rm -rf "$tmp"
	fi
fi
deliver
