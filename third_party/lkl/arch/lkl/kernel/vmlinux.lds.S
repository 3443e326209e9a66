/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout of lkl.o. It is a relocatable object, so only the order inside the
 * sections and the symbols around them matter.
 */
#define RUNTIME_DISCARD_EXIT
#include <asm-generic/vmlinux.lds.h>
#include <asm/lkl_compat.h>
#include <asm/thread_info.h>
#include <asm/cache.h>

jiffies = jiffies_64;

SECTIONS
{
	.lkl.text : {
		_text = .;
		_stext = .;
		HEAD_TEXT
		TEXT_TEXT
		SCHED_TEXT
		LOCK_TEXT
		LKL_CPUIDLE_TEXT
		KPROBES_TEXT
		IRQENTRY_TEXT
		SOFTIRQENTRY_TEXT
		*(.fixup)
		_sinittext = .;
		INIT_TEXT
		_einittext = .;
		EXIT_TEXT
		_etext = .;
	}

	RO_DATA(4096)
	EXCEPTION_TABLE(16)

	.init.data : {
		__init_begin = .;
		INIT_DATA
		INIT_SETUP(16)
		INIT_CALLS
		CON_INITCALL
		__init_end = .;
	}
	.exit.data : { EXIT_DATA }
	PERCPU_SECTION(L1_CACHE_BYTES)

	_sdata = .;
	RW_DATA(L1_CACHE_BYTES, PAGE_SIZE, THREAD_SIZE)
	_edata = .;

	BSS_SECTION(0, PAGE_SIZE, 8)
	_end = .;

	STABS_DEBUG
	DWARF_DEBUG
	ELF_DETAILS
	DISCARDS
}
