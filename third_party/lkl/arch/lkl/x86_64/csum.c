// SPDX-License-Identifier: GPL-2.0-only
/*
 * The Internet checksum with 64-bit add-with-carry.
 */
#include <linux/types.h>
#include <linux/unaligned.h>
#include <asm/checksum.h>

static inline u64 add64(u64 a, u64 b)
{
	a += b;
	return a + (a < b);
}

/**
 * do_csum - one's complement sum of a buffer, folded to 16 bits
 * @buff: any alignment: x86 loads unaligned words at full speed, and the sum
 *	does not depend on where the words start in memory
 * @len: bytes
 */
unsigned int do_csum(const unsigned char *buff, int len)
{
	u64 sum = 0;
	unsigned int fold;

	while (len >= 64) {
		asm("addq 0*8(%[p]), %[s]\n\t"
		    "adcq 1*8(%[p]), %[s]\n\t"
		    "adcq 2*8(%[p]), %[s]\n\t"
		    "adcq 3*8(%[p]), %[s]\n\t"
		    "adcq 4*8(%[p]), %[s]\n\t"
		    "adcq 5*8(%[p]), %[s]\n\t"
		    "adcq 6*8(%[p]), %[s]\n\t"
		    "adcq 7*8(%[p]), %[s]\n\t"
		    "adcq $0, %[s]"
		    : [s] "+r" (sum)
		    : [p] "r" (buff), "m" (*(const char (*)[64])buff));
		buff += 64;
		len -= 64;
	}
	while (len >= 8) {
		sum = add64(sum, get_unaligned((const u64 *)buff));
		buff += 8;
		len -= 8;
	}
	if (len) {
		u64 last = 0;
		int i;

		for (i = 0; i < len; i++)
			last |= (u64)buff[i] << (i * 8);
		sum = add64(sum, last);
	}

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	fold = (sum & 0xffff) + ((u32)sum >> 16);
	return (fold & 0xffff) + (fold >> 16);
}
