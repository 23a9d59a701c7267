#include "lib/p2p/p2p_match.h"

#include <stdlib.h>

void p2p_list_add(struct p2p_list *l, struct p2p_message *m)
{
	m->list = l;
	m->next = NULL;
	m->prev = l->last;
	if (l->last)
		l->last->next = m;
	else
		l->first = m;
	l->last = m;
}

void p2p_list_remove(struct p2p_message *m)
{
	struct p2p_list *l = m->list;

	if (!l)
		return;
	if (m->prev)
		m->prev->next = m->next;
	else
		l->first = m->next;
	if (m->next)
		m->next->prev = m->prev;
	else
		l->last = m->prev;
	m->list = NULL;
	m->next = m->prev = NULL;
}

unsigned p2p_bucket(uint64_t tag)
{
	return (unsigned)((tag * 0x9e3779b97f4a7c15u) >> 32) % P2P_BUCKETS;
}

void p2p_match_add(struct p2p_match *t, struct p2p_message *receive)
{
	p2p_list_add(&t->receives[p2p_bucket(receive->tag)], receive);
}

struct p2p_message *p2p_match_receive(const struct p2p_match *t, unsigned from,
				      uint64_t tag)
{
	struct p2p_message *m = t->receives[p2p_bucket(tag)].first;

	while (m && (m->tag != tag || (m->peer != P2P_ANY && m->peer != (int)from)))
		m = m->next;
	return m;
}

struct p2p_entry *p2p_match_keep(struct p2p_match *t, unsigned from, uint64_t tag,
				 size_t data_bytes)
{
	struct p2p_entries *l = &t->entries[p2p_bucket(tag)];
	struct p2p_entry *e = malloc(sizeof *e + data_bytes);

	if (!e)
		return NULL;
	*e = (struct p2p_entry){ .prev = l->last, .from = from, .tag = tag };
	if (l->last)
		l->last->next = e;
	else
		l->first = e;
	l->last = e;
	return e;
}

struct p2p_entry *p2p_match_entry(const struct p2p_match *t, int peer, uint64_t tag)
{
	struct p2p_entry *e = t->entries[p2p_bucket(tag)].first;

	while (e && (e->is_asked || e->tag != tag ||
		     (peer != P2P_ANY && (int)e->from != peer)))
		e = e->next;
	return e;
}

void p2p_match_drop(struct p2p_match *t, struct p2p_entry *e)
{
	struct p2p_entries *l = &t->entries[p2p_bucket(e->tag)];

	if (e->prev)
		e->prev->next = e->next;
	else
		l->first = e->next;
	if (e->next)
		e->next->prev = e->prev;
	else
		l->last = e->prev;
	free(e);
}

void p2p_match_free(struct p2p_match *t)
{
	for (size_t i = 0; i < P2P_BUCKETS; i++)
		while (t->entries[i].first)
			p2p_match_drop(t, t->entries[i].first);
}
