#include "lib/p2p/p2p_internal.h"

enum {
	LEAVE_MS = 1000, /* for the answers that are still to be sent in this host */
	LEAVE_LOOK_NS = 200000
};

/* ---- the end of a group ---- */

void p2p_end(struct p2p_group *g, berth_result why)
{
	struct p2p *p = g->p2p;

	pthread_mutex_lock(&p->moving);
	p2p_pass(p); /* the messages that have been posted, too */
	p2p_give_up(g, why);
	p2p_release(p, 0);
}

void p2p_abort(struct p2p_group *g, const char *text)
{
	struct p2p *p = g->p2p;

	pthread_mutex_lock(&p->moving);
	snprintf(g->why, sizeof g->why, "%s", text);
	for (unsigned i = 0; p2p_group_begin(g) && !g->aborts && i < g->n; i++) {
		struct p2p_pair *pair = &g->pair[i];

		if (pair->gone || !pair->peer->stream)
			continue;
		pair->tells = true;
		pair->peer->telling++;
		g->telling++;
		p2p_is_busy(pair);
		p2p_push(p, pair->peer);
	}
	g->aborts = true;
	p2p_release(p, 0);
}

/* ---- a rank that leaves it ---- */

/* Are all answers to members of this host in their rings? */
static bool leave_has_answered(struct p2p_group *g)
{
	bool all = true;

	for (unsigned i = 0; i < g->n; i++) {
		struct p2p_peer *q = g->pair[i].peer;

		if (i == g->me || q->gone || !g->pair[i].met)
			continue;
		p2p_push(g->p2p, q);
		all &= q->stream || !q->answers.n;
	}
	return all;
}

/* Answers to members of this host are in their rings before they see that this rank has
 * left.  A ring is full if its reader does not make progress. */
static void leave_answer_last(struct p2p_group *g)
{
	const uint64_t until = clock_ns() + LEAVE_MS * 1000000ull;
	struct p2p *p = g->p2p;

	while (!leave_has_answered(g) && clock_ns() < until) {
		pthread_mutex_unlock(&p->moving);
		nanosleep(&(struct timespec){ .tv_nsec = LEAVE_LOOK_NS }, NULL);
		pthread_mutex_lock(&p->moving);
	}
}

void p2p_leave(struct p2p_group *g)
{
	struct p2p *p = g->p2p;

	pthread_mutex_lock(&p->moving);
	p2p_pass(p);
	p2p_give_up(g, BERTH_ABORTED);
	/* Members hear that this rank has left, if they may wait for that.  Those of
	 * this host see it (p2p_group_config.has_left). */
	for (unsigned i = 0; g->pair && !g->aborts && i < g->n; i++) {
		struct p2p_pair *pair = &g->pair[i];
		const struct p2p_stream *s = pair->peer->stream;

		if (!pair->gone && pair->met && s && p2p_stream_is_made(s))
			p2p_answer(pair, (struct p2p_frame){ .kind = P2P_LEAVE });
	}
	if (g->pair)
		leave_answer_last(g);
	p2p_group_forget(g);
	p2p_release(p, 0);
	/* another thread is about to call done(), or in it */
	while (atomic_load(&g->in_flight) || atomic_load(&g->calls))
		nanosleep(&(struct timespec){ .tv_nsec = LEAVE_LOOK_NS }, NULL);
	pthread_mutex_lock(&p->moving);
	g->has_left = true;
	p2p_free_groups(p);
	pthread_mutex_unlock(&p->moving);
}
