/* The worlds after the first: berth_change(), and ranks that start again. */
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
	const size_t nlocal = s->job->ranks.n;
	struct init_round *round;
	struct member **at; /* of each place, if it is here */

	/* the last operation of an ended rank is known until the others go on */
	for (size_t i = 0; i < nlocal; i++)
		if (s->member[i].ended)
			s->member[i].round = NULL;
	init_rounds_settle(s);
	s->wanted = false;
	round = init_round_add_some(s, w->number, &w->ranks);
	if (!round)
		return;
	init_round_forget_lost(s, round);
	at = xcalloc(round->size, sizeof *at);
	for (uint32_t i = 0; i < nlocal; i++) {
		const uint32_t place = init_round_place(round, s->job->ranks.v[i]);

		if (place < round->size)
			at[place] = &s->member[i];
	}
	for (uint32_t i = 0; i < round->size; i++)
		if (at[i])
			at[i]->place = round->local_size++;
	for (uint32_t i = 0; i < round->size; i++)
		if (at[i])
			begin_world(s, round, (uint32_t)(at[i] - s->member));
	free(at);
	init_round_tell_lost(s);
}

char *next_world_elastic(struct client *c, uint32_t can)
{
	struct member *m = client_member(c);

	if (can > 1)
		return xasprintf("rank %u says what cannot be of its next world",
				 client_rank(c));
	if (m->is_elastic == can)
		return NULL;
	m->is_elastic = can;
	wire_pack_elastic(c->s->out, &(struct wire_elastic){ c->s->job->epoch,
							     client_rank(c), can });
	return NULL;
}

void next_world_wanted(struct server *s)
{
	s->wanted = true;
	for (struct init_round *round = s->round; round; round = round->next)
		init_round_mark(s, round);
}
