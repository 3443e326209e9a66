/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the host gives the kernel library. Includes nothing but host headers.
 */
#ifndef LKL_HOST_H
#define LKL_HOST_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct lkl_host_operations - callbacks of the embedding program
 * @virtio_devices: unused, present because the structure of upstream LKL
 *	starts with it
 * @print: receives kernel log lines; called on whatever thread runs the
 *	kernel, must not call into the library; NULL discards the log
 * @panic: called once when the kernel has panicked, after the log was
 *	printed; may longjmp out or never return. If it returns (or is NULL),
 *	the library is dead: every call says -EIO
 *
 * The three members stand where upstream LKL has them, in its old as well as
 * in its new ABI, so one loader can fill them in for both. Threads, clocks and
 * memory are the library's own business and are not operations here.
 */
struct lkl_host_operations {
	const char *virtio_devices;
	void (*print)(const char *str, int len);
	void (*panic)(void);
};

/**
 * lkl_host_ops - the default operations: print writes to stderr, panic is NULL
 *
 * Fetch it with dlsym() or pass its address to lkl_init().
 */
extern struct lkl_host_operations lkl_host_ops;

#ifdef __cplusplus
}
#endif

#endif
