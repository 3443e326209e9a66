// SPDX-License-Identifier: GPL-2.0-only
/*
 * Boot, shutdown, /proc/cpuinfo.
 */
#include <linux/init.h>
#include <linux/irq.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/panic_notifier.h>
#include <linux/random.h>
#include <linux/reboot.h>
#include <linux/seq_file.h>
#include <linux/syscalls.h>
#include <asm/context.h>
#include <asm/lkl.h>
#include <asm/setup.h>

int lkl_dead;


static int on_panic(struct notifier_block *nb, unsigned long unused, void *msg)
{
	lkl_die_jump(LKL_DEAD_PANIC);
}

static struct notifier_block panic_block = {
	.notifier_call	= on_panic,
	.priority	= INT_MIN,
};

void __init setup_arch(char **cmdline_p)
{
	u8 seed[64];

	if (IS_ENABLED(CONFIG_BONDING))	/* no bond0 by itself */
		strlcat(boot_command_line, " bonding.max_bonds=0",
			COMMAND_LINE_SIZE);
	*cmdline_p = boot_command_line;
	parse_early_param();
	atomic_notifier_chain_register(&panic_notifier_list, &panic_block);

	/* otherwise sequence numbers and MPTCP keys could be guessed */
	lklh_getrandom(seed, sizeof(seed));
	add_bootloader_randomness(seed, sizeof(seed));
	memzero_explicit(seed, sizeof(seed));

	lkl_paging_init();
}

void __init init_IRQ(void)
{
}

void machine_halt(void)
{
	lkl_die_jump(LKL_DEAD_HALT);
}

void machine_power_off(void)
{
	lkl_die_jump(LKL_DEAD_HALT);
}

void machine_restart(char *cmd)
{
	lkl_die_jump(LKL_DEAD_HALT);
}

long lklk_halt(struct lkl_hthread *me)
{
	long params[6] = { LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2,
			   LINUX_REBOOT_CMD_HALT };

	return lklk_syscall(me, __NR_reboot, params);
}

static void *c_start(struct seq_file *m, loff_t *pos)
{
	return *pos ? NULL : (void *)1;
}

static void *c_next(struct seq_file *m, void *v, loff_t *pos)
{
	++*pos;
	return NULL;
}

static void c_stop(struct seq_file *m, void *v)
{
}

static int c_show(struct seq_file *m, void *v)
{
	seq_puts(m, "processor\t: 0\nmodel name\t: Linux kernel library\n\n");
	return 0;
}

const struct seq_operations cpuinfo_op = {
	.start	= c_start,
	.next	= c_next,
	.stop	= c_stop,
	.show	= c_show,
};
