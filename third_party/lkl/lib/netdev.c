// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network devices on host descriptors.
 */
#include "netdev.h"
#include "host_call.h"
#include "uring.h"
#include "wire.h"
#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#define LEGACY_FRAME	(65536 + 64)	/* including the headers before its IP packet */
#define CRUMBS		1000

/**
 * struct lkl_netdev - a device
 * @fd: its descriptor
 * @id: -1 until added
 * @tap: the descriptor is a tap or a tun, so offloads must be set on it
 * @packet: properties of a packet socket
 * @wire: the end of a wire, or NULL; @fd is the epoll with its bells
 * @bells: there may be bells to answer
 * @flags: LKL_NET_*
 * @events: LKL_NETEV_* not yet handled by the kernel
 * @crumbs: number of frames above 64 KiB to send as packets: the host has
 *	refused one
 * @down: an error or hang-up occurred; not polled level-triggered any more
 * @mac: hardware address
 */
struct lkl_netdev {
	int fd;
	int id;
	int tap;
	struct packet_socket packet;
	struct wire *wire;
	int bells;
	unsigned int flags;
	unsigned int events;
	int down;
	int crumbs;
	unsigned char mac[6];
};

static struct lkl_netdev *devs[LKL_NET_MAX];
static int booted;

static unsigned int offload_flags(unsigned int offload)
{
	unsigned int f = 0;

	if (offload & LKL_OFFLOAD_CSUM)
		f |= LKL_NET_CSUM;
	if (offload & LKL_OFFLOAD_HOST_TSO4)
		f |= LKL_NET_CSUM | LKL_NET_TSO4;
	if (offload & LKL_OFFLOAD_HOST_TSO6)
		f |= LKL_NET_CSUM | LKL_NET_TSO6;
	if (offload & LKL_OFFLOAD_HOST_BIG)
		f |= LKL_NET_BIG;
	if (offload & LKL_OFFLOAD_GUEST_CSUM)
		f |= LKL_NET_RXCSUM;
	if (offload & (LKL_OFFLOAD_GUEST_TSO4 | LKL_OFFLOAD_GUEST_TSO6))
		f |= LKL_NET_RXCSUM | LKL_NET_GRO;
	return f;
}

/*
 * Tells the host which offloads we accept. Always set, because a persistent tap
 * keeps the setting, and its next user would get frames that it cannot handle.
 */
static int set_tap_offload(struct lkl_netdev *nd)
{
	unsigned int off = 0;
	int len = LKL_VNET_HDR_LEN;

	if (nd->flags & LKL_NET_RXCSUM)
		off |= TUN_F_CSUM;
	if (nd->flags & LKL_NET_GRO)
		off |= TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
	if ((nd->flags & LKL_NET_VNET && ioctl(nd->fd, TUNSETVNETHDRSZ, &len) < 0) ||
	    ioctl(nd->fd, TUNSETOFFLOAD, off) < 0)
		return -errno;
	return 0;
}

/*
 * Linux accepts such packets since 6.3, and can allocate memory for them since
 * 6.6.
 */
static int host_takes_big(void)
{
	unsigned long major, minor;
	struct utsname u;
	char *end;

	if (uname(&u))
		return 0;
	major = strtoul(u.release, &end, 10);
	minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
	return major > 6 || (major == 6 && minor >= 6);
}

static struct lkl_netdev *create(int fd, int tap, unsigned int flags,
				 const struct packet_socket *packet)
{
	struct lkl_netdev *nd;
	int fl, err;

	nd = calloc(1, sizeof(*nd));
	if (!nd)
		return NULL;
	nd->fd = fd;
	nd->id = -1;
	nd->tap = tap;
	nd->flags = flags;
	if (!tap || !(flags & LKL_NET_TSO4) || !host_takes_big())
		nd->flags &= ~LKL_NET_BIG;
	if (packet)
		nd->packet = *packet;
	if (tap) {
		err = set_tap_offload(nd);
		if (err)
			goto fail;
	}
	fl = fcntl(fd, F_GETFL);
	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0) {
		err = -errno;
		goto fail;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return nd;
fail:
	free(nd);
	errno = -err;
	return NULL;
}

static struct lkl_netdev *wire_create(int fd, int flags)
{
	struct lkl_netdev *nd;
	unsigned int f = LKL_NET_VNET;

	if (flags & ~(LKL_NETDEV_WIRE | LKL_NETDEV_VNET_HDR | LKL_NETDEV_OFFLOAD) ||
	    !(flags & LKL_NETDEV_VNET_HDR)) {
		errno = EINVAL;
		return NULL;
	}
	if (flags & LKL_NETDEV_OFFLOAD)
		f |= offload_flags(LKL_OFFLOAD_ALL);
	nd = create(fd, 0, f, NULL);
	if (!nd)
		return NULL;
	nd->wire = wire_new(fd);
	if (!nd->wire) {
		free(nd);
		errno = ENOMEM;
		return NULL;
	}
	return nd;
}

API struct lkl_netdev *lkl_netdev_fd_create(int fd, int flags)
{
	int short_head = flags & LKL_NETDEV_VNET10;
	int vnet = flags & LKL_NETDEV_VNET_HDR || short_head, tap, ret;
	struct packet_socket packet;
	unsigned int f = 0;
	struct ifreq ifr;

	if (flags & LKL_NETDEV_WIRE)
		return wire_create(fd, flags);
	memset(&ifr, 0, sizeof(ifr));
	tap = ioctl(fd, TUNGETIFF, &ifr) == 0;
	ret = packet_probe(fd, &packet);
	if (ret) {
		errno = -ret;
		return NULL;
	}
	if (flags & LKL_NETDEV_RAWIP || (tap && ifr.ifr_flags & IFF_TUN) ||
	    packet.type == SOCK_DGRAM)
		f |= LKL_NET_RAWIP;
	if (flags & ~(LKL_NETDEV_VNET_HDR | LKL_NETDEV_OFFLOAD | LKL_NETDEV_RAWIP |
		      LKL_NETDEV_BIG | LKL_NETDEV_VNET10) ||
	    (short_head && (tap || packet.type)) ||
	    (flags & (LKL_NETDEV_OFFLOAD | LKL_NETDEV_BIG) && !vnet) ||
	    (tap && (!(ifr.ifr_flags & IFF_TUN) != !(f & LKL_NET_RAWIP) ||
		     !(ifr.ifr_flags & IFF_NO_PI) ||
		     !(ifr.ifr_flags & IFF_VNET_HDR) != !vnet)) ||
	    (packet.type && !packet.vnet != !vnet)) {
		errno = EINVAL;
		return NULL;
	}
	if (vnet)
		f |= LKL_NET_VNET;
	if (short_head || (packet.vnet && packet.vnet < LKL_VNET_HDR_LEN))
		f |= LKL_NET_VNET10;
	if (flags & LKL_NETDEV_OFFLOAD)
		f |= offload_flags(LKL_OFFLOAD_ALL);
	if (flags & LKL_NETDEV_BIG)
		f |= LKL_NET_BIG;
	return create(fd, tap, f, &packet);
}

API struct lkl_netdev *lkl_netdev_tap_create(const char *ifname, int offload)
{
	unsigned int flags = offload_flags(offload);
	struct lkl_netdev *nd;
	int fd, vnet, err;

	if (strlen(ifname) >= IFNAMSIZ) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	fd = tap_open(ifname, flags != 0, &vnet);
	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	nd = create(fd, 1, flags | (vnet ? LKL_NET_VNET : 0), NULL);
	if (nd)
		return nd;
	err = errno;
	close(fd);
	errno = err;
	return NULL;
}

static long do_add(void *arg)
{
	struct lkl_netdev *nd = arg;

	return lklk_net_add(nd->id, nd->mac, nd->flags);
}

static int attach(struct lkl_netdev *nd)
{
	int ret = kernel_call(do_add, nd);

	if (!ret)
		ret = event_device(nd->fd, nd->id);
	return ret;
}

API int lkl_netdev_add(struct lkl_netdev *nd, struct lkl_netdev_args *args)
{
	int id, ret;

	if (!nd || nd->id >= 0)
		return -EINVAL;
	for (id = 0; id < LKL_NET_MAX && devs[id]; id++)
		;
	if (id == LKL_NET_MAX)
		return -ENOSPC;
	if (args && args->offload) {
		nd->flags &= offload_flags(args->offload) | LKL_NET_VNET |
			     LKL_NET_VNET10 | LKL_NET_RAWIP;
		if (!(nd->flags & LKL_NET_TSO4))
			nd->flags &= ~LKL_NET_BIG;
		if (nd->tap) {
			ret = set_tap_offload(nd);
			if (ret)
				return ret;
		}
	}
	if (args && args->mac) {
		memcpy(nd->mac, args->mac, 6);
	} else {
		lklh_getrandom(nd->mac, 6);
		nd->mac[0] = (nd->mac[0] & 0xfe) | 2;
	}
	nd->id = id;
	/* a leader may inspect all devices */
	__atomic_store_n(&devs[id], nd, __ATOMIC_RELEASE);
	if (booted) {
		ret = attach(nd);
		if (ret) {
			devs[id] = NULL;
			nd->id = -1;
			return ret;
		}
	}
	return id;
}

static long do_nothing(void *arg __attribute__((unused)))
{
	return 0;
}

/* A call that enters the kernel handles interrupts. */
static void settle(void *arg)
{
	kernel_call(do_nothing, arg);
}

struct join_args {
	struct wire *wire;
	int bell;
};

static long do_join(void *arg)
{
	struct join_args *a = arg;

	return wire_add(a->wire, a->bell);
}

API int lkl_netdev_wire_join(int id, int bell)
{
	struct join_args a = { .bell = bell };
	int ret;

	if (id < 0 || id >= LKL_NET_MAX || !devs[id] || !devs[id]->wire)
		return -ENODEV;
	a.wire = devs[id]->wire;
	ret = booted ? kernel_call(do_join, &a) : do_join(&a);
	if (!ret && booted) {
		/* The peer may have written frames already. */
		netdev_event(id, EPOLLIN);
		settle(NULL);
	}
	return ret;
}

/**
 * netdevs_boot - give the kernel the devices added before the boot
 */
int netdevs_boot(void)
{
	int id, ret;

	booted = 1;
	for (id = 0; id < LKL_NET_MAX; id++) {
		if (!devs[id])
			continue;
		ret = attach(devs[id]);
		if (ret)
			return ret;
	}
	return 0;
}

static long do_remove(void *arg)
{
	lklk_net_remove(((struct lkl_netdev *)arg)->id);
	return 0;
}

API void lkl_netdev_remove(int id)
{
	struct lkl_netdev *nd;

	if (id < 0 || id >= LKL_NET_MAX || !devs[id])
		return;
	nd = devs[id];
	if (booted) {
		event_forget(nd->fd);
		kernel_call(do_remove, nd);
		/*
		 * Its pending frames must not be taken for those of another
		 * device.
		 */
		writer_settle(settle, NULL);
	}
	devs[id] = NULL;
	nd->id = -1;
}

API void lkl_netdev_free(struct lkl_netdev *nd)
{
	if (!nd || nd->id >= 0)
		return;
	wire_free(nd->wire);
	if (nd->fd >= 0)
		close(nd->fd);
	free(nd);
}

API void lkl_netdev_prepare(void)
{
	uring_prepare();
}

static long do_ifindex(void *arg)
{
	return lklk_net_ifindex(*(int *)arg);
}

API int lkl_netdev_get_ifindex(int id)
{
	if (id < 0 || id >= LKL_NET_MAX || !devs[id])
		return -ENODEV;
	return kernel_call(do_ifindex, &id);
}

/**
 * netdevs_halt - the kernel has ended: close its descriptors
 *
 * The caller still owns the structs and frees them with lkl_netdev_free().
 */
void netdevs_halt(void)
{
	int id;

	uring_stop();
	writer_stop();
	for (id = 0; id < LKL_NET_MAX; id++) {
		if (!devs[id])
			continue;
		wire_free(devs[id]->wire);
		devs[id]->wire = NULL;
		close(devs[id]->fd);
		devs[id]->fd = -1;
		devs[id]->id = -1;
		devs[id] = NULL;
	}
	booted = 0;
}

/**
 * netdev_event - handle events of a descriptor
 * @events: of epoll or poll, which use the same bits
 */
void netdev_event(int id, unsigned int events)
{
	struct lkl_netdev *nd;
	unsigned int ev = 0;

	if (id < 0 || id >= LKL_NET_MAX || !devs[id])
		return;
	nd = devs[id];
	if (nd->wire)
		__atomic_store_n(&nd->bells, 1, __ATOMIC_SEQ_CST);
	if (events & EPOLLIN)
		ev |= LKL_NETEV_RX | (coalesce_sends() ? LKL_NETEV_MANY : 0);
	if (events & EPOLLOUT)
		ev |= LKL_NETEV_TX;
	if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
		ev |= LKL_NETEV_HUP;
		nd->down = 1;
	} else {
		nd->down = 0;
	}
	__atomic_fetch_or(&nd->events, ev, __ATOMIC_SEQ_CST);
	lklh_irq_raise(LKL_IRQ_NET);
}

static unsigned int bells(struct lkl_netdev *nd)
{
	int more = 0;
	unsigned int ev = wire_events(nd->wire, &more);

	if (unlikely(more)) {	/* the epoll reports them only once */
		__atomic_store_n(&nd->bells, 1, __ATOMIC_SEQ_CST);
		lklh_net_more(nd->id);
	}
	return ev;
}

unsigned int lklh_net_events(int id)
{
	struct lkl_netdev *nd = devs[id];
	unsigned int ev;

	if (!nd)
		return 0;
	ev = __atomic_exchange_n(&nd->events, 0, __ATOMIC_SEQ_CST);
	if (nd->wire && __atomic_exchange_n(&nd->bells, 0, __ATOMIC_SEQ_CST))
		ev = bells(nd);
	return ev;
}

void lklh_net_more(int id)
{
	if (!devs[id])
		return;
	__atomic_fetch_or(&devs[id]->events, LKL_NETEV_RX, __ATOMIC_SEQ_CST);
	events_more();
}

/**
 * netdevs_more - give another turn to devices that ran out of budget
 */
int netdevs_more(void)
{
	int id, more = 0;

	for (id = 0; id < LKL_NET_MAX; id++)
		if (devs[id] && devs[id]->events)
			more = 1;
	if (more)
		lklh_irq_raise(LKL_IRQ_NET);
	return more;
}

/**
 * netdevs_pollfds - list descriptors for a call that waits in loop mode
 *
 * Only for frames: a sender that waits for room tries again at its next timer.
 */
int netdevs_pollfds(struct pollfd *fds, int *ids, int max)
{
	int id, n = 0;

	for (id = 0; id < LKL_NET_MAX && n < max; id++) {
		if (!devs[id] || devs[id]->down)
			continue;
		fds[n].fd = devs[id]->fd;
		fds[n].events = POLLIN;
		fds[n].revents = 0;
		ids[n++] = id;
	}
	return n;
}

/**
 * netdevs_hold - let no frame wake the process, or each again (coalesce.c)
 */
void netdevs_hold(int on)
{
	struct lkl_netdev *nd;
	int id;

	for (id = 0; id < LKL_NET_MAX; id++) {
		nd = __atomic_load_n(&devs[id], __ATOMIC_ACQUIRE);
		if (nd)
			event_hold(nd->fd, id, on);
	}
}

/* Tells coalesce.c of a frame. */
static void saw(const struct lkl_netdev *nd, int way, const struct lkl_iov *iov,
		int cnt, long len)
{
	unsigned int head = nd->flags & LKL_NET_RAWIP ? 0 : ETH_HLEN;

	if (nd->flags & LKL_NET_VNET)
		head += nd->flags & LKL_NET_VNET10 ? LKL_VNET_HDR_LEN - 2 :
						     LKL_VNET_HDR_LEN;
	if (len > 0)
		coalesce_seen(way, iov, cnt, len, head);
	else if (way && len == -EAGAIN)
		coalesce_stop();
}

/*
 * The end of a SOCK_SEQPACKET socket looks like an empty message, but is also a
 * hang-up.
 */
static int hung_up(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) != 0;
}

static long device_read(struct lkl_netdev *nd, const struct lkl_iov *iov, int cnt,
			struct lkl_net_meta *meta)
{
	long n;

	if (nd->wire)
		return wire_read(nd->wire, iov, cnt);
	if (nd->packet.type)
		return packet_read(nd->fd, &nd->packet, iov, cnt,
				   nd->flags & LKL_NET_RAWIP, meta);
	/* If the frame fits in one buffer, avoid the vector. */
	do
		n = cnt == 1 ? host_call(SYS_read, nd->fd, (long)iov->base, iov->len, 0, 0, 0) :
			       host_call(SYS_readv, nd->fd, (long)iov, cnt, 0, 0, 0);
	while (n == -EINTR);
	if (unlikely(n == 0) && !hung_up(nd->fd))
		n = -ENOMSG;
	if (loop_mode && n > 0)
		writer_count(n);
	return n;
}

long lklh_net_read(int id, const struct lkl_iov *iov, int cnt,
		   struct lkl_net_meta *meta)
{
	long n = device_read(devs[id], iov, cnt, meta);

	saw(devs[id], 0, iov, cnt, n);
	return n;
}

/* A tap reports new room only if it has been asked since it was full. */
static void ask_for_room(struct lkl_netdev *nd)
{
	struct pollfd p = { .fd = nd->fd, .events = POLLOUT };

	if (!nd->tap || poll(&p, 1, 0) <= 0 || !(p.revents & POLLOUT))
		return;
	__atomic_fetch_or(&nd->events, LKL_NETEV_TX, __ATOMIC_SEQ_CST);
	events_more();
}

static long device_write(struct lkl_netdev *nd, const struct lkl_iov *iov, int cnt,
			 unsigned short proto)
{
	long n;

	if (nd->wire) {
		n = wire_write(nd->wire, iov, cnt);
		wire_flush(nd->wire);
		return n;
	}
	if (nd->packet.type)
		return packet_write(nd->fd, &nd->packet, iov, cnt, proto);
	do
		n = cnt == 1 ? host_call(SYS_write, nd->fd, (long)iov->base, iov->len, 0, 0, 0) :
			       host_call(SYS_writev, nd->fd, (long)iov, cnt, 0, 0, 0);
	while (n == -EINTR);
	if (unlikely(n == -EAGAIN))
		ask_for_room(nd);
	return n;
}

long lklh_net_write(int id, const struct lkl_iov *iov, int cnt,
		    unsigned short proto)
{
	long n = device_write(devs[id], iov, cnt, proto);

	saw(devs[id], 1, iov, cnt, n);
	return n;
}

void lklh_net_write_burst(int id, struct lkl_net_out *out, int n)
{
	struct lkl_netdev *nd = devs[id];
	int i = 0, sent;

	if (nd->wire) {
		for (; i < n; i++)
			out[i].ret = (int)wire_write(nd->wire, out[i].iov, out[i].cnt);
		wire_flush(nd->wire);
	} else if (n > 1 && !nd->packet.type) {
		i = uring_write(nd->fd, out, n);
		if (i && unlikely(out[i - 1].ret == -EAGAIN))
			ask_for_room(nd);
	}
	for (sent = 0; sent < i; sent++)
		saw(nd, 1, out[sent].iov, out[sent].cnt, out[sent].ret);
	for (; i < n; i++)
		out[i].ret = (int)lklh_net_write(id, out[i].iov, out[i].cnt,
						 out[i].proto);
}

int lklh_net_queue(int id, const struct lkl_iov *iov, int cnt, void *frame)
{
	struct lkl_netdev *nd = devs[id];
	unsigned int len = 0;
	int i, ret = LKL_NETQ_NO;

	/* Errors of a packet socket are reported to writers. */
	if (!nd->tap || !loop_mode)
		return LKL_NETQ_NO;
	for (i = 0; i < cnt; i++)
		len += iov[i].len;
	if (unlikely(nd->crumbs && len > LEGACY_FRAME)) {
		nd->crumbs--;
		writer_drain();
	} else {
		ret = writer_put(id, nd->fd, iov, cnt, len, frame);
	}
	if (ret != LKL_NETQ_FULL)
		writer_count(len);
	if (ret == LKL_NETQ_COPIED || ret == LKL_NETQ_KEPT)
		saw(nd, 1, iov, cnt, len);
	return ret;
}

int lklh_net_written(int *id, void **frame, int *ret)
{
	int got = writer_take(id, frame, ret);

	if (unlikely(got && (*ret == -ENOBUFS || *ret == -EMSGSIZE) && devs[*id]))
		devs[*id]->crumbs = CRUMBS;
	return got;
}

unsigned int lklh_net_poll(int id)
{
	struct lkl_netdev *nd = devs[id];
	struct pollfd p = { .fd = nd->fd, .events = POLLIN | POLLOUT };

	if (nd->wire)
		return bells(nd);
	if (nd->packet.type && !packet_up(nd->fd, &nd->packet))
		return LKL_NETEV_HUP;
	if (poll(&p, 1, 0) < 0)
		return LKL_NETEV_HUP;
	return (p.revents & POLLIN ? LKL_NETEV_RX : 0) |
	       (p.revents & POLLOUT ? LKL_NETEV_TX : 0) |
	       (p.revents & (POLLERR | POLLHUP) ? LKL_NETEV_HUP : 0);
}
