# SPDX-License-Identifier: GPL-2.0-only
#
# Tests of the libraries for programs on another processor: `make ARCH=arm64 check-preload`
# runs the programs of PRELOADED with qemu-user, linked with glibc and with musl. The
# output is compared with that of the same program on this machine's own kernel, so
# errors of qemu-user in host calls do not matter.
#
# LKL names the stack library of that processor, if it is not that of LKLDIR. Needs root.

ROOT ?= ../build/root-$(ARCH)
DEBIAN_arm64 := arm64
DEBIAN_amd64 := amd64
MUSL_arm64 := aarch64
MUSL_amd64 := x86_64
D := $(OBJ)/tests-glibc
M := $(OBJ)/tests-musl
MUSL_DIR := $(SYSROOT)/usr/lib/$(MUSL_$(ARCH))-linux-musl
DEVICE_LKL := $(abspath $(if $(filter file,$(origin LKL)),$(LKLDIR)/liblkl.so,$(LKL)))
DEVICE_CFLAGS := $(INCLUDES) -O2 -g -std=gnu11 $(WARN)
ON_GLIBC := preload_only conform conform_dgram preload_mix preload_names
# Without preload_only: it checks programs that it starts, which use glibc.
ON_MUSL := conform conform_dgram preload_mix preload_names

$(D)/%: tests/%.c tests/conform.h
	@mkdir -p $(@D)
	$(CROSS)gcc $(DEVICE_CFLAGS) -o $@ $< -lpthread

# Debian's musl has no shared library next to its headers to link with.
$(M)/%: tests/%.c tests/conform.h tests/musl_gaps.h
	@mkdir -p $(@D)
	$(CC) $(DEVICE_CFLAGS) $(if $(filter arm64,$(ARCH)),-mno-outline-atomics) -fPIE -include tests/musl_gaps.h -r -o $@.o $<
	$(CROSS)gcc -nostdlib -pie -Wl,-dynamic-linker,/lib/ld-musl-$(MUSL_$(ARCH)).so.1 -o $@ \
		$(MUSL_DIR)/Scrt1.o $(MUSL_DIR)/crti.o $@.o $(ROOT)/lib/ld-musl-$(MUSL_$(ARCH)).so.1 -lgcc $(MUSL_DIR)/crtn.o

# A program whose C library has the form of bionic's, tests/bionic. BIONIC names the libc.so of
# Android systems, for the checks of their code and of the functions that they must contain.
B := $(OBJ)/tests-bionic
BIONIC ?=

# Execute-only code must not share a page with the tables that the loader reads.
$(B)/libc.so: tests/bionic/stubs.S $(B)/libbase.so
	$(CROSS)gcc -shared -nostdlib -Wl,-soname,libc.so -Wl,-z,separate-code -Wl,--no-as-needed -o $@ $^
$(B)/libbase.so: tests/bionic/base.c
	@mkdir -p $(@D)
	$(CROSS)gcc $(DEVICE_CFLAGS) -fPIC -shared -Wl,-soname,libbase.so -o $@ $< -ldl
$(B)/libdl.so:
	@mkdir -p $(@D)
	$(CROSS)gcc -shared -nostdlib -Wl,-soname,libdl.so -o $@ -x c /dev/null
$(B)/program: tests/bionic/program.c $(B)/libc.so
	$(CROSS)gcc $(DEVICE_CFLAGS) -Wl,--no-as-needed -o $@ $< $(B)/libc.so $(B)/libbase.so

$(B)/patch_file: tests/bionic/patch_file.c $(PRELOAD)/$(CPU)/patch.c $(PRELOAD)/$(CPU)/entry.S
	@mkdir -p $(@D)
	$(CROSS)gcc $(DEVICE_CFLAGS) -static -o $@ $^

.PHONY: root check-preload check-bionic
check-bionic: export LKL := $(DEVICE_LKL)
check-bionic: export QEMU_LD_PREFIX := $(abspath $(ROOT))
check-bionic: $(if $(filter arm64,$(ARCH)),root)
	$(MAKE) --no-print-directory $(OUT)/liblklpreload-bionic.so $(addprefix $(B)/,program libdl.so patch_file)
	python3 -B tests/test_bionic.py $(OUT)/liblklpreload-bionic.so $(B) $(BIONIC)

root:
	../.ci/sysroot $(ARCH) $(SYSROOT)
	../.ci/fetch-debs --deps $(DEBIAN_$(ARCH)) $(ROOT) libc6 musl curl
	../.ci/binfmt

check-preload: export LKL := $(DEVICE_LKL)
check-preload: export QEMU_LD_PREFIX := $(abspath $(ROOT))
check-preload: root
	$(MAKE) --no-print-directory $(OUT)/liblklpreload.so
	$(MAKE) --no-print-directory ARCH= OUT=../bin OBJ=../build/csrc $(addprefix ../build/csrc/tests/,$(ON_GLIBC))
	$(MAKE) --no-print-directory $(addprefix $(D)/,$(ON_GLIBC)) $(addprefix $(M)/,$(ON_MUSL))
	python3 -B tests/test_imports.py $(ROOT) $(abspath $(OUT)/liblklpreload.so) $(DEVICE_LKL)
	REFERENCE=../build/csrc/tests python3 -B tests/test_preload.py $(abspath $(OUT)/liblklpreload.so) $(ON_GLIBC:%=$(D)/%)
	REFERENCE=../build/csrc/tests python3 -B tests/test_preload.py $(abspath $(OUT)/liblklpreload.so) "" $(ON_MUSL:%=$(M)/%)
