/* The world of the ranks that are left: berth_change(). */
#include "agent/pmi/server_internal.h"

/* ---- places ---- */

uint32_t init_round_rank(const struct init_round *round, uint32_t place)
{
	return round->rank ? round->rank[place] : place;
}

uint32_t init_round_place(const struct init_round *round, uint32_t rank)
{
	uint32_t low = 0, high = round->size;

	if (!round->rank)
		return rank;
	while (low < high) {
		const uint32_t mid = (low + high) / 2;

		if (round->rank[mid] < rank)
			low = mid + 1;
		else
			high = mid;
	}
	return low < round->size && round->rank[low] == rank ? low : round->size;
}

/* ---- who is in it ---- */

/* NODE[host of the job]: its number among those of ROUND, or their number; COUNT[that]:
 * its ranks.  Returns how many hosts. */
static uint32_t number_hosts(const struct server *s, const struct init_round *round,
			     uint32_t *node, uint32_t *count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < round->size; i++)
		node[host_of(s, round->rank[i])] = 1;
	for (uint32_t i = 0; i < s->job->nodes; i++)
		node[i] = node[i] ? n++ : UINT32_MAX;
	for (uint32_t i = 0; i < round->size; i++)
		count[node[host_of(s, round->rank[i])]]++;
	return n;
}

/* The world of ROUND, of some ranks, as C's is in it. */
void next_world_send(struct client *c)
{
	const struct server *s = c->s;
	const struct init_round *round = c->round;
	const uint32_t local = client_member(c)->place,
		       ours = host_of(s, client_rank(c));
	uint32_t *node = xcalloc(s->job->nodes, sizeof *node),
		 *count = xcalloc(s->job->nodes, sizeof *count);
	struct boot_who who = { .epoch = round->number,
				.rank = init_round_place(round, client_rank(c)),
				.size = round->size,
				.local_rank = local,
				.local_size = round->local_size,
				.hosts = number_hosts(s, round, node, count) };
	struct buf b = { 0 };

	for (uint32_t i = 0; i < who.hosts; i++) {
		who.cross_rank += i < node[ours] && count[i] > local;
		who.cross_size += count[i] > local;
	}
	memcpy(who.key, s->job->key.p, sizeof who.key);
	buf_add(&b, &who, sizeof who);
	for (uint32_t i = 0; i < round->size; i++)
		buf_add(&b, &node[host_of(s, round->rank[i])], sizeof *node);
	for (uint32_t i = 0; i < s->job->nodes; i++) {
		const char *name = host_name_of(s, i);

		if (node[i] != UINT32_MAX)
			buf_add(&b, name, strlen(name) + 1);
	}
	client_send(c, BOOT_WORLD, buf_head(&b), b.len);
	buf_free(&b);
	free(node);
	free(count);
}

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

/* Of ranks that have ended the agent knows what they did until others go on. */
static void forget_ended(struct server *s)
{
	for (size_t i = 0; i < s->job->ranks.n; i++)
		if (s->member[i].ended)
			s->member[i].round = NULL;
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

static bool is_world(const struct server *s, const struct wire_world *w)
{
	for (size_t i = 0; i < w->ranks.n; i++)
		if (w->ranks.v[i] >= s->job->np ||
		    (i && w->ranks.v[i] <= w->ranks.v[i - 1]))
			return false;
	return w->ranks.n && !init_round_find(s, w->number);
}

void next_world_begin(struct server *s, const struct wire_world *w)
{
	const wire_u32v ours = s->job->ranks;
	struct init_round *round;
	uint32_t *in = xcalloc(ours.n, sizeof *in);

	forget_ended(s);
	init_rounds_settle(s);
	round = is_world(s, w) ? init_round_add(s, w->number) : NULL;
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
