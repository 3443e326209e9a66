/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Operations that the host provides to the library. Includes only host headers.
 */
#ifndef LKL_HOST_H
#define LKL_HOST_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct lkl_host_operations - callbacks of the embedding program
 * @virtio_devices: unused; present because the structure of upstream LKL starts
 *	with it
 * @print: receives kernel log lines; called on any thread that runs the kernel,
 *	must not call into the library; NULL discards the log
 * @panic: called once when the kernel has panicked, after the log was
 *	printed; may longjmp out or never return. If it returns (or is NULL),
 *	the library is dead: every call returns -EIO
 *
 * The three members have the same places as in upstream LKL, in its old and its
 * new ABI, so one loader can fill them in for both. The library handles
 * threads, clocks and memory itself.
 */
struct lkl_host_operations {
	const char *virtio_devices;
	void (*print)(const char *str, int len);
	void (*panic)(void);
};

/**
 * lkl_host_ops - default operations: print writes to stderr, panic is NULL
 *
 * Fetch it with dlsym() or pass its address to lkl_init().
 */
extern struct lkl_host_operations lkl_host_ops;

#ifdef __cplusplus
}
#endif

#endif
