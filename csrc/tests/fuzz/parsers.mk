# SPDX-License-Identifier: GPL-2.0-only
#
# Fuzzers of the code that parses bytes from outside, see tests/fuzz/parsers/fuzz.h.
#
# FUZZ=1 builds them with clang and libFuzzer. Otherwise they replay their corpus, with
# the sanitizers (SAN=1) or without.

P := $(OBJ)/parsers
LKL_SRC := ../third_party/lkl
PARSERS := ctl link_host link_program view frames messages proc_text packet rawip

# All of lklhost except main() and the files that a fuzzer includes.
host_but = $(filter-out $(1:%=$(OBJ)/%.o),$(LIBOBJS))
LOOP := $(addprefix $(P)/,fake.o loop.o clock.o)
LOOP_INCLUDES := base/later base/loop stack/run
CLIENTS := $(addprefix $(P)/,clients.o server.o zygote.o) $(LOOP)
CLIENTS_INCLUDE := control/ctl_server target/exec process/zygote_link $(LOOP_INCLUDES)
WRAP := host_launcher_gone host_stop tree_signal engine_start target_release

$(P)/ctl: $(P)/ctl.o $(CLIENTS) $(call host_but,$(CLIENTS_INCLUDE))
$(P)/link_host: $(P)/link_host.o $(CLIENTS) \
	$(call host_but,$(CLIENTS_INCLUDE) engine/link/link engine/link/link_start)
$(P)/ctl $(P)/link_host: LDFLAGS += $(WRAP:%=-Wl,--wrap=%)
LINK_PROGRAM := $(addprefix control/,ctl_call ctl_calls ctl_request) base/fd_pass base/lklhost stack/stack
$(P)/link_program: $(addprefix $(P)/,link_program.o fake.o clock.o) $(LINK_PROGRAM:%=$(OBJ)/%.o)
$(P)/view: $(P)/view.o $(LOOP) $(call host_but,$(LOOP_INCLUDES) view/serve)
$(P)/frames: $(P)/frames.o $(LOOP) $(call host_but,$(LOOP_INCLUDES) mirror/frames)
$(P)/frames: LDFLAGS += -Wl,--wrap=links_has
$(P)/messages: $(P)/messages.o $(LOOP) \
	$(call host_but,$(LOOP_INCLUDES) engine/call/target_mem)
$(P)/proc_text: $(P)/proc_text.o $(OBJ)/engine/common/proc_text.o
$(P)/packet: $(P)/packet.o
$(P)/packet.o: CPPFLAGS += -I$(LKL_SRC)/include -I$(LKL_SRC)/lib

# The stack's driver, with kernel.h in place of the kernel's headers.
RAWIP := $(addprefix $(P)/kernel/,rawip.o rx.o)
HEADERS := $(addprefix $(P)/kernel/include/,$(addprefix linux/,etherdevice.h mm.h \
	netdevice.h rtnetlink.h skbuff.h compiler.h if_arp.h) \
	$(addprefix net/,addrconf.h ip.h ip_tunnels.h ipv6.h))
$(P)/rawip: $(P)/rawip.o $(RAWIP)
$(RAWIP) $(P)/rawip.o: CPPFLAGS := -I$(P)/kernel/include -Itests/fuzz/parsers -MMD -MP
# Kernel files: the kernel's build checks their warnings. Without alignment checks, because
# headers follow 14 bytes of Ethernet, as in the kernel.
$(RAWIP): WARN := -w
$(RAWIP): CFLAGS += -fno-sanitize=alignment
$(RAWIP) $(P)/rawip.o: $(HEADERS) $(P)/kernel/include/asm/lkl.h
$(P)/kernel/%.o: $(LKL_SRC)/arch/lkl/drivers/%.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(HEADERS):
	@mkdir -p $(@D)
	echo '#include "kernel.h"' >$@
$(P)/kernel/include/asm/%.h: $(LKL_SRC)/arch/lkl/include/asm/%.h
	@mkdir -p $(@D)
	cp $< $@
$(P)/kernel/include/asm/lkl.h: $(addprefix $(P)/kernel/include/asm/,host.h lkl_compat.h)

$(PARSERS:%=$(P)/%): $(if $(FUZZ),,$(P)/replay.o)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# They include files, in which names may shadow others.
$(P)/%.o: WARN += -Wno-shadow
$(P)/%.o: tests/fuzz/parsers/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

parsers: $(PARSERS:%=$(P)/%)

# With the sanitizers, which detect errors that an ordinary program survives.
replay: parsers
	$(foreach p,$(PARSERS),$(P)/$(p) $(wildcard tests/fuzz/corpus/$(p)/*) &&) true

.PHONY: parsers replay

-include $(wildcard $(P)/*.d $(P)/kernel/*.d)
