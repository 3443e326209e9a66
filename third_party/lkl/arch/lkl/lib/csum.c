// SPDX-License-Identifier: GPL-2.0-only
/* The Internet checksum, one CPU word at a time, with carry. */
#include <linux/types.h>
#include <asm/checksum.h>
#include <asm/lkl_compat.h>
#include LKL_UNALIGNED_H
#include <asm/csum_cpu.h>

static inline unsigned long add_word(unsigned long a, unsigned long b)
{
	a += b;
	return a + (a < b);
}

/**
 * do_csum - one's complement sum of a buffer, folded to 16 bits
 * @buff: any alignment: unaligned loads run at full speed, and the sum does not
 *	depend on the alignment of the words
 * @len: bytes
 */
unsigned int do_csum(const unsigned char *buff, int len)
{
	const int word = sizeof(unsigned long);
	unsigned long sum = 0;
	unsigned int fold;
	u64 wide;

	while (len >= 64) {
		sum = lkl_csum_block(buff, sum);
		buff += 64;
		len -= 64;
	}
	while (len >= word) {
		sum = add_word(sum, get_unaligned((const unsigned long *)buff));
		buff += word;
		len -= word;
	}
	if (len) {
		unsigned long last = 0;
		int i;

		for (i = 0; i < len; i++)
			last |= (unsigned long)buff[i] << (i * 8);
		sum = add_word(sum, last);
	}

	wide = sum;
	wide = (wide & 0xffffffff) + (wide >> 32);
	wide = (wide & 0xffffffff) + (wide >> 32);
	fold = (wide & 0xffff) + ((u32)wide >> 16);
	return (fold & 0xffff) + (fold >> 16);
}
