/* The world of the ranks that are left: berth_change(). */
#include "agent/pmi/server_internal.h"

char *next_world_wait(struct client *c, uint32_t epoch)
{
	struct server *s = c->s;
	struct member *m = client_member(c);

	c->is_known = true;
	m->client = c;
	m->state = MEMBER_WAITING;
	m->asks_missing = false;
	wire_pack_change(
		s->out,
		&(struct wire_change){ s->job->epoch, client_rank(c),
				       epoch > m->init_round ? epoch : m->init_round });
	return NULL;
}

static void begin_world(struct server *s, struct init_round *round, uint32_t local)
{
	struct member *m = &s->member[local];
	const uint32_t rank = s->job->ranks.v[local];

	if (m->state != MEMBER_WAITING) { /* it is gone meanwhile */
		init_round_add_lost(
			s, (struct lost_rank){ rank, round->number, m->ended, false });
		wire_pack_lost(
			s->out,
			&(struct wire_lost){
				s->job->epoch, { &rank, 1 }, round->number, 0, 0 });
		return;
	}
	m->init_round = round->number;
	m->round = m->client->round = round;
	m->state = MEMBER_JOINING;
	m->client->waits_host_map = !host_map_known(s);
	if (!m->client->waits_host_map)
		init_round_send_world(m->client);
}

void next_world_begin(struct server *s, const struct wire_world *w)
{
	const wire_u32v ours = s->job->ranks;
	struct init_round *round = NULL;
	uint32_t *in = xcalloc(ours.n, sizeof *in);

	/* the last operation of an ended rank is known until the others go on */
	for (size_t i = 0; i < ours.n; i++)
		if (s->member[i].ended)
			s->member[i].round = NULL;
	init_rounds_settle(s);
	if (w->ranks.n && wire_ascends(&w->ranks, s->job->np) &&
	    !init_round_find(s, w->number))
		round = init_round_add(s, w->number);
	if (round) {
		round->rank = xcalloc(w->ranks.n, sizeof *round->rank);
		memcpy(round->rank, w->ranks.v, w->ranks.n * sizeof *round->rank);
		round->size = (uint32_t)w->ranks.n;
		round->local_size = 0;
		for (uint32_t i = 0; i < ours.n; i++) {
			in[i] = init_round_place(round, ours.v[i]) < round->size;
			if (in[i])
				s->member[i].place = round->local_size++;
		}
		for (uint32_t i = 0; i < ours.n; i++)
			if (in[i])
				begin_world(s, round, i);
		init_round_tell_lost(s);
	}
	free(in);
}
