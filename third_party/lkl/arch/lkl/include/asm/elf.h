/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_ELF_H
#define _ASM_LKL_ELF_H

/* No ELF file is ever loaded, but <linux/elf.h> needs the names. */
#define elf_check_arch(x)	0
#if defined(__x86_64__)
#define ELF_ARCH	EM_X86_64
#elif defined(__aarch64__)
#define ELF_ARCH	EM_AARCH64
#elif defined(__arm__)
#define ELF_ARCH	EM_ARM
#endif
#ifdef CONFIG_64BIT
#define ELF_CLASS	ELFCLASS64
#else
#define ELF_CLASS	ELFCLASS32
#endif
#define ELF_DATA	ELFDATA2LSB
#define ELF_NGREG	1
#define ELF_EXEC_PAGESIZE	PAGE_SIZE
#define ELF_HWCAP	0
#define ELF_PLATFORM	NULL

typedef unsigned long elf_greg_t;
typedef elf_greg_t elf_gregset_t[ELF_NGREG];
typedef unsigned long elf_fpregset_t;

#endif
