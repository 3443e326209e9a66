/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_PGTABLE_H
#define _ASM_LKL_PGTABLE_H

#include <asm-generic/pgtable-nopud.h>
#include <asm/lkl_compat.h>
#include <asm/page.h>

/* There is no MMU: these definitions only let the generic headers compile. */
#define pgd_present(pgd)	(1)
#define pgd_none(pgd)		(0)
#define pgd_bad(pgd)		(0)
#define pgd_clear(pgdp)
#define pmd_offset(a, b)	((void *)0)

#define PAGE_NONE		__pgprot(0)
#define PAGE_SHARED		__pgprot(0)
#define PAGE_COPY		__pgprot(0)
#define PAGE_READONLY		__pgprot(0)
#define PAGE_KERNEL		__pgprot(0)

#define swapper_pg_dir		((pgd_t *)0)

extern void *lkl_zero_page;

#define VMALLOC_START		0
#define VMALLOC_END		(~0UL)

#endif
