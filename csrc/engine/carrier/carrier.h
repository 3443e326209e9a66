/* SPDX-License-Identifier: GPL-2.0-only */
/* Carriers, the descriptors that the target holds: carrier.c and carrier_pool.c. */
#ifndef LKLHOST_CARRIER_H
#define LKLHOST_CARRIER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

struct call;
struct conn;
struct stat;
struct stream;

/* Events watched on our end of a stream's carrier; EPOLLOUT only on demand. */
#define CARRIER_EVENTS	(EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET)

/* Letters in carrier names: the end that a name belongs to. */
#define NAME_TARGET	't'	/* the target's end */
#define NAME_INBOX	'i'	/* the target's end of a datagram carrier */
#define NAME_DGRAM	'd'	/* our end of a datagram carrier */
#define NAME_PEER	'p'	/* a remote datagram peer */
#define NAME_MEETING	'm'	/* where streams connect to us */

/* carrier.c */
extern unsigned int carriers_roomy;

socklen_t carrier_name(struct sockaddr_un *un, char kind, uint32_t id);
bool carrier_parse(const struct sockaddr_un *un, socklen_t len, char *kind,
		   uint32_t *id);
int carrier_make(int type, uint32_t id);
int carrier_pair(int type, uint32_t id, int sv[2]);
int carrier_watch(struct conn *conn, int fd);
void carrier_bigbuf(int fd, int size);
void carrier_note(struct conn *conn, int fd);
bool carrier_is_old(int fd);
bool carrier_gone(struct conn *conn);
bool carrier_is_shut(int dup);
bool carrier_may_send(int dup);
int carrier_token(void);
void carriers_find_gone(void);
int carrier_init(void);
void carrier_stop(void);
int carrier_meet(struct stream *s, int dup);
int carrier_cork(struct stream *s, int dup);
void carrier_uncork(struct stream *s);
void carrier_drop(struct conn *conn);
int carrier_borrow(struct conn *conn);

/* conn_table.c */
bool fd_stat(int fd, struct stat *st);
uint64_t fd_ino(int fd);
uint64_t fd_cookie(int fd);

/* carrier_pool.c */
struct conn *carrier_pool_get(int flags, int *fd);
bool carrier_pool_close(struct conn *conn);
void carrier_pool_stop(void);

/* fd_replace.c */
int fd_replace_cloexec(const struct call *c, int fd);
int fd_replace_all(struct call *c, int fd, uint64_t ino);

/* orphan_fd.c */
struct orphan_fd;
void orphan_fd_add(const struct call *c, int num, uint64_t ino,
		   const struct sockaddr_storage *ss, socklen_t len);
struct orphan_fd *orphan_fd_find(const struct call *c);
int64_t orphan_fd_give(struct call *c, struct orphan_fd *l);
void orphan_fd_stop(void);

/* scm_rights.c: recvmsg(2) and recvmmsg(2) on a unix socket that is no carrier */
int64_t scm_rights_call(struct call *c);

/* getfd.c */
void getfd_init(void);
int64_t getfd_call(struct call *c);
pid_t pidfd_pid(int fd);

/* inode_map.c */
uint64_t conn_carrier_ino(uint64_t stack_ino);
void inode_map_translate(const struct conn *conn, char *buf, size_t len);

/* memory.c */
bool memory_full(void);
bool memory_short(void);

/* carrier_opts.c */
void carrier_option(struct call *c, int name, int len);
void carrier_options(const struct stream *s, int fd);

#endif
