// SPDX-License-Identifier: GPL-2.0-only
/* Kbuild wants this file; nothing in assembler needs an offset. */
int main(void)
{
	return 0;
}
