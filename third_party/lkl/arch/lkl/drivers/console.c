// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel log goes to the host's print operation.
 */
#include <linux/console.h>
#include <linux/init.h>
#include <asm/lkl.h>

void (*lkl_print)(const char *str, int len);

static void console_write(struct console *con, const char *str, unsigned int len)
{
	if (lkl_print)
		lkl_print(str, len);
}

static struct console lkl_console = {
	.name	= "lkl",
	.write	= console_write,
	.flags	= CON_PRINTBUFFER | CON_ENABLED,
	.index	= -1,
};

static int __init console_setup(void)
{
	register_console(&lkl_console);
	return 0;
}
console_initcall(console_setup);
