// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory faults: EFAULT for a bad user pointer, panic for the kernel's own.
 */
#include <linux/extable.h>
#include <linux/uaccess.h>
#include <linux/panic.h>
#include <linux/printk.h>
#include <asm/context.h>
#include <asm/lkl.h>

/* Stack pointer to resume a long user copy, while one is in progress */
unsigned long lkl_ucopy_sp;
void lkl_ucopy_fault(void);

static void __noreturn die(unsigned long addr, unsigned long pc)
{
	pr_emerg("Memory fault at address %lx, in %pS\n", addr, (void *)pc);
	panic("Memory fault in the kernel");
}

/**
 * lklk_fault - the thread that runs the kernel got SIGSEGV or SIGBUS
 * @addr: address that could not be accessed
 * @pc: in: the instruction; out: where to continue
 * @sp: in and out: stack pointer
 * @args: out: two arguments for the function at @pc
 *
 * Called in a signal handler, on its stack.
 */
int lklk_fault(unsigned long addr, unsigned long *pc, unsigned long *sp,
	       unsigned long *args)
{
	const struct exception_table_entry *e;

	if (lkl_ucopy_sp) {
		*pc = (unsigned long)lkl_ucopy_fault;
		*sp = lkl_ucopy_sp;
		return 1;
	}
	e = search_exception_tables(*pc);
	if (e) {
		*pc = e->fixup;
		return 1;
	}
	args[0] = addr;
	args[1] = *pc;
	*pc = (unsigned long)die;
	/* below the red zone */
	*sp = lkl_call_sp(*sp - 256);
	return 1;
}
