/* SPDX-License-Identifier: GPL-2.0-only */
/* A circular doubly linked list with the links embedded in the objects. */
#ifndef LKLHOST_LIST_H
#define LKLHOST_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name)	{ &(name), &(name) }

#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

#define list_for_each_safe(pos, tmp, head)				\
	for ((pos) = (head)->next, (tmp) = (pos)->next;			\
	     (pos) != (head);						\
	     (pos) = (tmp), (tmp) = (pos)->next)

#define list_for_each(pos, head) \
	for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

/** list_init - make @l an empty list, or an unlinked element */
static inline void list_init(struct list *l)
{
	l->next = l;
	l->prev = l;
}

/** list_empty - whether @l is an empty list, or an unlinked element */
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/** list_add_tail - append @l to @head */
static inline void list_add_tail(struct list *l, struct list *head)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/** list_del - unlink @l; does nothing if it is in no list */
static inline void list_del(struct list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}

#endif
