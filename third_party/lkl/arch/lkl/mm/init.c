// SPDX-License-Identifier: GPL-2.0-only
/* The arena: one anonymous mapping of the host, entirely ZONE_NORMAL. */
#include <linux/init.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <asm/lkl.h>

unsigned long lkl_mem_start, lkl_mem_end;
void *lkl_zero_page;

void __init arch_zone_limits_init(unsigned long *max_zone_pfns)
{
	max_zone_pfns[ZONE_NORMAL] = max_low_pfn;
}

void __init arch_setup_zero_pages(void)
{
	lkl_setup_zero_page();
}

void __init lkl_paging_init(void)
{
	memblock_add(LKL_PHYS_BASE, lkl_mem_end - lkl_mem_start);
	min_low_pfn = ARCH_PFN_OFFSET;
	max_low_pfn = PFN_DOWN(__pa(lkl_mem_end));
	max_pfn = max_low_pfn;
	high_memory = (void *)lkl_mem_end;
	lkl_set_max_mapnr(max_low_pfn - min_low_pfn);

	/* not a static array: only the arena has struct pages */
	lkl_zero_page = memblock_alloc(PAGE_SIZE, PAGE_SIZE);
	lkl_zones_init();
}

void __init mem_init(void)
{
	lkl_free_memory();
}

/* Init sections are in the shared object, not in the arena. */
void free_initmem(void)
{
}
