// SPDX-License-Identifier: GPL-2.0-only
/* Kbuild requires this file, but no assembler code needs an offset. */
int main(void)
{
	return 0;
}
