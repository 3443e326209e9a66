/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_IRQFLAGS_H
#define _ASM_LKL_IRQFLAGS_H

/*
 * Interrupts are synchronous. Other host threads only set bits in
 * lkl_irq_pending; the owner of the CPU runs the handlers when it enables
 * interrupts. Code is never interrupted elsewhere.
 */
#define ARCH_IRQ_DISABLED	0
#define ARCH_IRQ_ENABLED	1

extern unsigned long lkl_irq_flags;
extern unsigned int lkl_irq_pending;

void lkl_irq_run(void);

static inline unsigned long arch_local_save_flags(void)
{
	return lkl_irq_flags;
}

static inline void arch_local_irq_restore(unsigned long flags)
{
	lkl_irq_flags = flags;
	if (flags && __builtin_expect(*(volatile unsigned int *)&lkl_irq_pending, 0))
		lkl_irq_run();
}

static inline unsigned long arch_local_irq_save(void)
{
	unsigned long flags = lkl_irq_flags;

	lkl_irq_flags = ARCH_IRQ_DISABLED;
	__asm__ __volatile__("" : : : "memory");
	return flags;
}

static inline void arch_local_irq_disable(void)
{
	lkl_irq_flags = ARCH_IRQ_DISABLED;
	__asm__ __volatile__("" : : : "memory");
}

static inline void arch_local_irq_enable(void)
{
	__asm__ __volatile__("" : : : "memory");
	arch_local_irq_restore(ARCH_IRQ_ENABLED);
}

#define arch_local_save_flags	arch_local_save_flags
#define arch_local_irq_restore	arch_local_irq_restore
#define arch_local_irq_save	arch_local_irq_save
#define arch_local_irq_disable	arch_local_irq_disable
#define arch_local_irq_enable	arch_local_irq_enable

#include <asm-generic/irqflags.h>

#endif
