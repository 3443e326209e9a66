/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_PAGE_H
#define _ASM_LKL_PAGE_H

#include <asm/lkl_compat.h>
#include LKL_PAGE_H

#ifndef __ASSEMBLY__

#define clear_page(page)	memset((page), 0, PAGE_SIZE)
#define copy_page(to, from)	memcpy((to), (from), PAGE_SIZE)
#define clear_user_page(page, vaddr, pg)	clear_page(page)
#define copy_user_page(to, from, vaddr, pg)	copy_page(to, from)

typedef struct { unsigned long pte; } pte_t;
typedef struct { unsigned long pmd[16]; } pmd_t;
typedef struct { unsigned long pgd; } pgd_t;
typedef struct { unsigned long pgprot; } pgprot_t;
typedef struct page *pgtable_t;

#define pte_val(x)	((x).pte)
#define pmd_val(x)	((&x)->pmd[0])
#define pgd_val(x)	((x).pgd)
#define pgprot_val(x)	((x).pgprot)
#define __pte(x)	((pte_t) { (x) })
#define __pmd(x)	((pmd_t) { { (x) } })
#define __pgd(x)	((pgd_t) { (x) })
#define __pgprot(x)	((pgprot_t) { (x) })

/*
 * Physical addresses start at LKL_PHYS_BASE. It is small, because the boot
 * checks every page block below the memory, and not 0, which memblock treats as
 * failure. Only the arena has struct pages: virt_to_page() of static kernel
 * data is wrong; use virt_addr_valid() to check.
 */
extern unsigned long lkl_mem_start, lkl_mem_end;

#define LKL_PHYS_BASE		(4UL << 20)

#define PAGE_OFFSET		lkl_mem_start
#define ARCH_PFN_OFFSET		(LKL_PHYS_BASE >> PAGE_SHIFT)

#define __pa(vaddr)		((unsigned long)(vaddr) - lkl_mem_start + \
				 LKL_PHYS_BASE)
#define __va(paddr)		((void *)((unsigned long)(paddr) - \
				 LKL_PHYS_BASE + lkl_mem_start))

#define virt_to_pfn(kaddr)	(__pa(kaddr) >> PAGE_SHIFT)
#define pfn_to_virt(pfn)	__va((pfn) << PAGE_SHIFT)
#define virt_to_page(addr)	pfn_to_page(virt_to_pfn(addr))
#define page_to_virt(page)	pfn_to_virt(page_to_pfn(page))

#define virt_addr_valid(kaddr)	((unsigned long)(kaddr) >= lkl_mem_start && \
				 (unsigned long)(kaddr) < lkl_mem_end)

#define pfn_valid pfn_valid
static inline int pfn_valid(unsigned long pfn)
{
	return pfn >= ARCH_PFN_OFFSET &&
	       pfn - ARCH_PFN_OFFSET < (lkl_mem_end - lkl_mem_start) >> PAGE_SHIFT;
}

#include <asm-generic/memory_model.h>
#ifndef page_to_phys
#define page_to_phys(page)	(page_to_pfn(page) << PAGE_SHIFT)
#endif
#include <asm-generic/getorder.h>

#endif
#endif
