// SPDX-License-Identifier: GPL-2.0-only
/*
 * Remote datagram peers: unix sockets whose names represent the peers'
 * addresses.
 *
 * Theory of operation
 *
 * A datagram for the target is sent to its carrier from a socket that is bound
 * to a name. The number in the name identifies the origin: the sender's address
 * and the ancillary data (IP_PKTINFO, TTL, TOS ...). The target's queue thus
 * keeps datagram and origin together, whichever call the target uses to read.
 * Origins are cached. An entry may be reused for another origin only after the
 * target has read all datagrams sent from its socket (SIOCOUTQ).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "base/list.h"
#include "base/loop.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/dgram/dgram.h"
#include "engine/dgram/peer.h"

#define PEERS		1024
#define PEER_HASH	2048
#define EVICT_TRIES	16

struct peer {
	struct source src;	/* its socket */
	struct list lru;
	struct peer *next;	/* next entry with the same hash */
	struct origin origin;
	uint32_t hash;
	bool watched;		/* the loop knows it */
};

static struct peer *peers;	/* PEERS entries, by the number in the name */
static uint32_t used;
static struct peer *table[PEER_HASH];
static struct list lru = LIST_INIT(lru);
static void (*on_room)(void);

/**
 * level_kept - whether the target may have requested ancillary data of this
 * level
 */
static int level_kept(int level)
{
	return level == IPPROTO_IP || level == IPPROTO_IPV6 ||
	       level == IPPROTO_UDP || level == SOL_SOCKET ||
	       level == SOL_NETLINK;
}

/**
 * origin_set - set an origin from the result of recvmsg
 *
 * Timestamps differ in every datagram, so each datagram with one uses an entry.
 */
void origin_set(struct origin *o, const struct msghdr *mh)
{
	struct cmsghdr *cm;

	memset(o, 0, offsetof(struct origin, ctl));
	o->namelen = mh->msg_namelen < PEER_NAME_MAX ? mh->msg_namelen :
						       PEER_NAME_MAX;
	if (o->namelen)
		memcpy(o->name, mh->msg_name, o->namelen);
	for (cm = CMSG_FIRSTHDR(mh); cm;
	     cm = CMSG_NXTHDR((struct msghdr *)(uintptr_t)mh, cm)) {
		size_t len = CMSG_ALIGN(cm->cmsg_len);

		if (!level_kept(cm->cmsg_level) ||
		    o->ctllen + len > PEER_CTL_MAX)
			continue;
		memset(o->ctl + o->ctllen + len - sizeof(size_t), 0,
		       sizeof(size_t));		/* alignment padding */
		memcpy(o->ctl + o->ctllen, cm, cm->cmsg_len);
		o->ctllen += (uint32_t)len;
	}
}

/** origin_size - size of the fields that are set, which are at the start */
size_t origin_size(const struct origin *o)
{
	return offsetof(struct origin, ctl) + o->ctllen;
}

/** origin_same - whether two origins are equal */
bool origin_same(const struct origin *a, const struct origin *b)
{
	return a->ctllen == b->ctllen && !memcmp(a, b, origin_size(a));
}

/** origin_hash - compute the FNV-1a hash of an origin */
static uint32_t origin_hash(const struct origin *o)
{
	const unsigned char *p = (const unsigned char *)o;
	uint32_t h = 2166136261u;
	size_t i, n = origin_size(o);

	for (i = 0; i < n; i++)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

/** unhash - remove a peer from the table */
static void unhash(struct peer *p)
{
	struct peer **pp = &table[p->hash % PEER_HASH];

	while (*pp != p)
		pp = &(*pp)->next;
	*pp = p->next;
}

/** peer_new - create an entry with a socket, or return NULL */
static struct peer *peer_new(void)
{
	struct sockaddr_un un;
	struct peer *p;

	if (!peers)
		peers = calloc(PEERS, sizeof(*peers));
	if (!peers || used == PEERS)
		return NULL;
	p = &peers[used];
	p->src.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->src.fd < 0)
		return NULL;
	carrier_bigbuf(p->src.fd, DGRAM_ROOM);
	if (bind(p->src.fd, (struct sockaddr *)&un,
		 carrier_name(&un, NAME_PEER, used))) {
		close(p->src.fd);
		return NULL;
	}
	used++;
	list_init(&p->lru);
	return p;
}

/**
 * peer_evict - remove the least recently used entry without unread datagrams
 */
static struct peer *peer_evict(void)
{
	struct list *pos = lru.next;
	int i;

	for (i = 0; i < EVICT_TRIES && pos != &lru; i++, pos = pos->next) {
		struct peer *p = container_of(pos, struct peer, lru);
		int unread = 1;

		if (!ioctl(p->src.fd, SIOCOUTQ, &unread) && !unread) {
			list_del(&p->lru);
			unhash(p);
			return p;
		}
	}
	return NULL;
}

/** find - find the entry of origin @o, whose hash is @h */
static struct peer *find(const struct origin *o, uint32_t h)
{
	struct peer *p = table[h % PEER_HASH];

	while (p && (p->hash != h || !origin_same(&p->origin, o)))
		p = p->next;
	return p;
}

/**
 * peer_socket - get the socket that sends datagrams of origin @o, or -ENOBUFS
 */
int peer_socket(const struct origin *o)
{
	uint32_t h = origin_hash(o);
	struct peer *p = find(o, h);

	if (!p) {
		p = peer_new();
		if (!p)
			p = peer_evict();
		if (!p)
			return -ENOBUFS;
		p->origin = *o;
		p->hash = h;
		p->next = table[h % PEER_HASH];
		table[h % PEER_HASH] = p;
	}
	list_del(&p->lru);
	list_add_tail(&p->lru, &lru);
	return p->src.fd;
}

/** room_event - handle that the target has read most of a peer's datagrams */
static void room_event(struct source *src, uint32_t events)
{
	(void)src;
	(void)events;
	on_room();
}

/**
 * peer_want_out - call @fn once when the socket of origin @o, whose send buffer
 * is full, accepts data again
 */
void peer_want_out(const struct origin *o, void (*fn)(void))
{
	struct peer *p = find(o, origin_hash(o));

	on_room = fn;
	if (!p)
		return;
	p->src.fn = room_event;
	if (p->watched)
		loop_mod(&p->src, EPOLLOUT | EPOLLONESHOT);
	else
		p->watched = !loop_add(&p->src, EPOLLOUT | EPOLLONESHOT);
}

/** peer_origin - get the origin for the number in a name, or NULL */
const struct origin *peer_origin(uint32_t id)
{
	return id < used ? &peers[id].origin : NULL;
}

/** peers_count - get the number of sockets for peers */
unsigned int peers_count(void)
{
	return used;
}

/** peers_stop - close all sockets */
void peers_stop(void)
{
	while (used)
		close(peers[--used].src.fd);
	free(peers);
	peers = NULL;
	memset(table, 0, sizeof(table));
	list_init(&lru);
}
