/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks the registers across a call of glibc's syscall(), which itself uses
 * only x0 to x8.
 */
#ifndef REGS_ARM64_H
#define REGS_ARM64_H

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/**
 * struct regs - register values: @x: x0 to x7 are the arguments of the call, x9
 * to x17 are arbitrary; @q: all vector registers
 */
struct regs {
	uint64_t x[20];
	uint64_t q[32][2];
};

#define QS(what)							\
	what " q0, q1, [x9]\n" what " q2, q3, [x9, #32]\n"		\
	what " q4, q5, [x9, #64]\n" what " q6, q7, [x9, #96]\n"	\
	what " q8, q9, [x9, #128]\n" what " q10, q11, [x9, #160]\n"	\
	what " q12, q13, [x9, #192]\n" what " q14, q15, [x9, #224]\n"	\
	what " q16, q17, [x9, #256]\n" what " q18, q19, [x9, #288]\n"	\
	what " q20, q21, [x9, #320]\n" what " q22, q23, [x9, #352]\n"	\
	what " q24, q25, [x9, #384]\n" what " q26, q27, [x9, #416]\n"	\
	what " q28, q29, [x9, #448]\n" what " q30, q31, [x9, #480]\n"

#define XS(what, at)							\
	what " x10, x11, [" at ", #80]\n" what " x12, x13, [" at ", #96]\n"	\
	what " x14, x15, [" at ", #112]\n" what " x16, x17, [" at ", #128]\n"

/* long regs_call(long (*fn)(long, ...), const struct regs *in, struct regs *out) */
long regs_call(long (*fn)(long, ...), const struct regs *in, struct regs *out);
__asm__(".text\n.p2align 2\n.globl regs_call\n.type regs_call, %function\nregs_call:\n"
	"stp x29, x30, [sp, #-176]!\n"
	"stp x19, x20, [sp, #16]\nstp x21, x22, [sp, #32]\nstp x23, x24, [sp, #48]\n"
	"stp x25, x26, [sp, #64]\nstp x27, x28, [sp, #80]\n"
	"stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
	"stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
	"mov x19, x0\nmov x20, x1\nmov x21, x2\n"
	"add x9, x20, #160\n" QS("ldp")
	XS("ldp", "x20")
	"ldp x0, x1, [x20]\nldp x2, x3, [x20, #16]\nldp x4, x5, [x20, #32]\n"
	"ldp x6, x7, [x20, #48]\nldr x9, [x20, #72]\n"
	"blr x19\n"
	"str x9, [x21, #72]\n"
	XS("stp", "x21")
	"add x9, x21, #160\n" QS("stp")
	"ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
	"ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
	"ldp x19, x20, [sp, #16]\nldp x21, x22, [sp, #32]\nldp x23, x24, [sp, #48]\n"
	"ldp x25, x26, [sp, #64]\nldp x27, x28, [sp, #80]\n"
	"ldp x29, x30, [sp], #176\nret\n");

/** regs_kept - whether a successful call preserves the registers */
static inline int regs_kept(long nr, long a, long b)
{
	struct regs in, out;
	uint64_t i;

	memset(&in, 0x5a, sizeof(in));
	memset(&out, 0, sizeof(out));
	for (i = 0; i < 32; i++) {
		in.q[i][0] = (i + 1) * 0x0123456789abcdef;
		in.q[i][1] = ~in.q[i][0];
	}
	in.x[0] = (uint64_t)nr;
	in.x[1] = (uint64_t)a;
	in.x[2] = (uint64_t)b;
	return regs_call(syscall, &in, &out) >= 0 &&
	       !memcmp(&in.x[9], &out.x[9], 9 * sizeof(in.x[0])) &&
	       !memcmp(in.q, out.q, sizeof(in.q));
}

#endif
