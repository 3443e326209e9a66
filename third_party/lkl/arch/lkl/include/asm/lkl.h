/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations shared by the files of this architecture. */
#ifndef _ASM_LKL_LKL_H
#define _ASM_LKL_LKL_H

#include <linux/compiler.h>
#include <linux/virtio_net.h>
#include <asm/host.h>
#include <asm/lkl_compat.h>

struct napi_struct;
struct net_device;
struct page;
struct sk_buff;
struct task_struct;

extern struct lkl_hthread *lkl_runner;
extern void (*lkl_print)(const char *str, int len);

int lkl_host_task(void *arg);
void lkl_floating_entry(void);
void lkl_new_task(struct lkl_hthread *t);
void __noreturn lkl_init_loop(void);
void __noreturn lkl_die_jump(int why);
void lkl_timer_interrupt(void);
void lkl_net_interrupt(void);
void lkl_rawip_setup(struct net_device *dev);
void lkl_rawip_registered(struct net_device *dev);
int lkl_rawip_protocol(const void *packet);
unsigned int lkl_rawip_headers(const void *packet, unsigned int len);
void lkl_net_finish_csum(struct sk_buff *skb);

/**
 * struct lkl_rx - memory for the frames that a device receives
 * @chunk: memory for the next frames, NULL if not allocated
 * @fill: used part of @chunk[0]
 */
#define LKL_RX_CHUNKS	4
struct lkl_rx {
	struct page *chunk[LKL_RX_CHUNKS];
	unsigned int fill;
};

int lkl_rx_room(struct lkl_rx *rx, struct lkl_iov *iov);
struct sk_buff *lkl_rx_packet(struct lkl_rx *rx, struct napi_struct *napi,
			      unsigned int len, unsigned int link);
void lkl_rx_free(struct lkl_rx *rx);

#define LKL_BURST_IOVS	4	/* virtio-net header, linear part, two fragments */

/**
 * struct lkl_burst - frames that are written together
 * @n: their number
 * @out: as the host library expects them
 * @frame: what @out refers to: the packet, its virtio-net header, its memory
 */
struct lkl_burst {
	int n;
	struct lkl_net_out out[LKL_NET_BURST];
	struct {
		struct sk_buff *skb;
		struct virtio_net_hdr_v1 hdr;
		struct lkl_iov iov[LKL_BURST_IOVS];
	} frame[LKL_NET_BURST];
};

bool lkl_burst_add(struct lkl_burst *b, struct sk_buff *skb,
		   const struct lkl_iov *iov, int cnt, int proto);
void lkl_paging_init(void);

/* Some versions declare these. */
void arch_zone_limits_init(unsigned long *max_zone_pfns);
void arch_setup_zero_pages(void);

#endif
