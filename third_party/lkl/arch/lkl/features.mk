# SPDX-License-Identifier: GPL-2.0-only
#
# What this kernel has, for asm/lkl_compat.h. Versions are no guide, because stable
# releases and distributions take over features.

# feature,file,word
has = $(if $(shell grep -qsw '$(3)' $(srctree)/$(2) && echo y),-DLKL_HAS_$(1))

KBUILD_CPPFLAGS += $(call has,RAW_ATOMICS,include/linux/atomic/atomic-arch-fallback.h,raw_atomic_xchg)
KBUILD_CPPFLAGS += $(call has,ZONE_LIMITS,include/linux/mm.h,arch_zone_limits_init)
KBUILD_CPPFLAGS += $(call has,ZERO_PAGE,include/linux/pgtable.h,arch_setup_zero_pages)
KBUILD_CPPFLAGS += $(call has,CORE_FREE_ALL,mm/mm_init.c,__weak mem_init)
KBUILD_CPPFLAGS += $(call has,MAX_MAPNR,include/linux/mm.h,set_max_mapnr)
KBUILD_CPPFLAGS += $(call has,CPUIDLE_TEXT,include/asm-generic/vmlinux.lds.h,CPUIDLE_TEXT)
KBUILD_CPPFLAGS += $(call has,IPV4_GSO_MAX,include/linux/netdevice.h,gso_ipv4_max_size)
KBUILD_CPPFLAGS += $(call has,FRAGS_READABLE,include/linux/skbuff.h,skb_frags_readable)
KBUILD_CPPFLAGS += $(call has,MPTCP_QUEUE,net/mptcp/protocol.h,receive_queue)
KBUILD_CPPFLAGS += $(call has,MPTCP_SKB_CB,net/mptcp/protocol.h,mptcp_skb_cb)
KBUILD_CPPFLAGS += $(call has,MPTCP_PM_NL_WORK,net/mptcp/protocol.h,mptcp_pm_nl_work)
KBUILD_CPPFLAGS += $(call has,MPTCP_EXTRA_SUBFLOWS,net/mptcp/protocol.h,extra_subflows)
KBUILD_CPPFLAGS += $(call has,SKB_CONSUMED,include/net/dropreason-core.h,SKB_CONSUMED)
KBUILD_CPPFLAGS += $(call has,QUEUE_PURGE,include/net/dropreason-core.h,QUEUE_PURGE)
KBUILD_CPPFLAGS += $(call has,TCP_OLD_SEQUENCE,include/net/dropreason-core.h,TCP_OLD_SEQUENCE)
KBUILD_CPPFLAGS += $(call has,KFREE_SKB_SOCKET,include/trace/events/skb.h,rx_sk)
KBUILD_CPPFLAGS += $(call has,RST_REASON,include/trace/events/tcp.h,sk_rst_reason)
KBUILD_CPPFLAGS += $(call has,RETRANSMIT_ERROR,include/trace/events/tcp.h,int err)
