#include <stdlib.h>
#include <string.h>

#include "lib/p2p/p2p_internal.h"

/* ---- the groups of a p2p ---- */

static struct p2p_group **group_place(struct p2p *p, uint32_t number)
{
	return &p->table[number * 0x9e3779b1u >> 26];
}

_Static_assert(P2P_TABLE == 1 << (32 - 26), "the place is the upper bits");

struct p2p_group *p2p_group_of(const struct p2p *p, uint32_t number)
{
	struct p2p_group *g = *group_place((struct p2p *)(uintptr_t)p, number);

	while (g && g->config.number != number)
		g = g->same;
	return g;
}

struct p2p_group *p2p_join(struct p2p *p, const struct p2p_group_config *config)
{
	struct p2p_group *g = calloc(1, sizeof *g), **at;

	if (!g)
		return NULL;
	g->p2p = p;
	g->config = *config;
	g->n = config->members->n;
	g->me = config->members->me;
	g->others = g->n - 1;
	at = group_place(p, config->number);
	pthread_mutex_lock(&p->moving);
	g->same = *at;
	*at = g;
	g->next = p->groups;
	p->groups = g;
	pthread_mutex_unlock(&p->moving);
	return g;
}

bool p2p_group_begin(struct p2p_group *g)
{
	if (g->pair)
		return true;
	if (!g->match)
		g->match = calloc(1, sizeof *g->match);
	g->pair = g->match ? calloc(g->n, sizeof *g->pair) : NULL;
	if (!g->pair)
		return false;
	for (unsigned i = 0; i < g->n; i++)
		g->pair[i] = (struct p2p_pair){
			.group = g,
			.peer = &g->p2p->peer[g->config.members->rank[i]],
			.place = i
		};
	for (unsigned i = 0; i < g->n; i++) {
		g->pair[i].left = g->pair[i].peer->left;
		if (g->pair[i].peer->gone)
			p2p_lose_pair(&g->pair[i]);
	}
	atomic_store(&g->has_begun, true);
	return true;
}

/* ---- members to whom there is something to say ---- */

void p2p_is_busy(struct p2p_pair *pair)
{
	struct p2p_peer *q = pair->peer;

	if (pair->is_busy)
		return;
	pair->is_busy = true;
	pair->next = NULL;
	*q->last_busy = pair;
	q->last_busy = &pair->next;
	q->nbusy++;
}

void p2p_next_busy(struct p2p_peer *q, bool stays)
{
	struct p2p_pair *first = q->busy;

	q->busy = first->next;
	if (!q->busy)
		q->last_busy = &q->busy;
	q->nbusy--;
	first->is_busy = false;
	if (stays)
		p2p_is_busy(first);
}

/* ---- the end of a group, told and heard ---- */

bool p2p_tell_abort(struct p2p_pair *pair)
{
	const char *why = pair->group->why;
	const struct p2p_frame f = { .kind = P2P_ABORT, .bytes = strlen(why) };

	if (!pair->tells || !p2p_peer_put(pair, f, why, f.bytes))
		return false;
	p2p_is_told(pair);
	return true;
}

void p2p_hear_abort(struct p2p_pair *pair)
{
	struct p2p_group *g = pair->group;
	char text[P2P_REASON_BYTES + 1];
	struct p2p_peer *q = pair->peer;
	size_t bytes = q->stream ? q->stream->body : q->in.body;

	p2p_peer_body(q, text);
	/* the reason is text of another rank: it becomes a line that can be printed */
	for (size_t i = 0; i < bytes && text[i]; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = '?';
	text[bytes] = '\0';
	g->config.aborted(g->config.ctx, pair->place, text);
	p2p_give_up(g, BERTH_ABORTED);
}

/* ---- groups that are left ---- */

void p2p_group_forget(struct p2p_group *g)
{
	struct p2p_group **at = group_place(g->p2p, g->config.number);
	struct p2p *p = g->p2p;

	while (*at != g)
		at = &(*at)->same;
	*at = g->same;
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->slot[i].state != P2P_FREE && p->slot[i].pair->group == g)
			p2p_slot_free(p, i);
}

static void group_free(struct p2p_group *g)
{
	for (unsigned i = 0; g->pair && i < g->n; i++) {
		struct p2p_peer *q = g->pair[i].peer;

		for (unsigned n = g->pair[i].is_busy ? q->nbusy : 0; n; n--)
			p2p_next_busy(q, q->busy != &g->pair[i]);
	}
	if (g->match)
		p2p_match_free(g->match);
	free(g->match);
	free(g->pair);
	free(g);
}

void p2p_free_groups(struct p2p *p)
{
	for (struct p2p_group **at = &p->groups; *at;) {
		struct p2p_group *g = *at;

		if (g->has_left && !g->telling) {
			*at = g->next;
			group_free(g);
		} else {
			at = &g->next;
		}
	}
}
