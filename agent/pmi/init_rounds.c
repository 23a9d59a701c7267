/* The init rounds of the ranks of this host: which there are, which ranks are in each,
 * and which are lost. */
#include "agent/pmi/server_internal.h"

#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS_MOST = 8 /* at a time */ };

/* ---- places ---- */

uint32_t init_round_rank(const struct init_round *round, uint32_t place)
{
	return round->rank ? round->rank[place] : place;
}

uint32_t init_round_place(const struct init_round *round, uint32_t rank)
{
	if (rank >= round->np) /* it came to the job later */
		return round->size;
	return round->place ? round->place[rank] : rank;
}

wire_u32v init_round_ranks(const struct init_round *round)
{
	uint32_t *v = xcalloc(round->size, sizeof *v);
	wire_u32v ranks = { v, 0 };

	for (uint32_t i = 0; round->rank && ranks.n < round->size; i++)
		if (round->place[i] < round->size)
			v[ranks.n++] = i;
	return ranks;
}

/* ---- rounds ---- */

struct init_round *init_round_find(const struct server *s, uint32_t number)
{
	struct init_round *round = s->round;

	while (round && round->number != number)
		round = round->next;
	return round;
}

/* NULL if there are too many. */
struct init_round *init_round_add(struct server *s, uint32_t number)
{
	struct init_round *round = init_round_find(s, number);
	size_t n = 0;

	if (round)
		return round;
	for (round = s->round; round; round = round->next)
		n++;
	if (n >= ROUNDS_MOST)
		return NULL;
	round = xcalloc(1, sizeof *round);
	*round = (struct init_round){ .number = number,
				      .np = s->job->np,
				      .size = s->job->np,
				      .local_size = (uint32_t)s->job->ranks.n,
				      .memory = -1,
				      .next = s->round };
	s->round = round;
	return round;
}

struct init_round *init_round_add_some(struct server *s, uint32_t number,
				       const wire_u32v *ranks)
{
	const uint32_t np = s->job->np, n = (uint32_t)ranks->n;
	uint32_t *place = xcalloc(np, sizeof *place);
	struct init_round *round = NULL;
	bool good = n && n <= np && !init_round_find(s, number);

	for (uint32_t i = 0; i < np; i++)
		place[i] = n;
	for (uint32_t i = 0; good && i < n; i++) {
		good = ranks->v[i] < np && place[ranks->v[i]] == n;
		if (good)
			place[ranks->v[i]] = i;
	}
	if (good)
		round = init_round_add(s, number);
	if (!round) {
		free(place);
		return NULL;
	}
	round->size = n;
	round->local_size = 0;
	round->rank = xcalloc(n, sizeof *round->rank);
	memcpy(round->rank, ranks->v, n * sizeof *round->rank);
	round->place = place;
	return round;
}

void init_rounds_free(struct server *s)
{
	for (size_t i = 0; i < s->job->ranks.n; i++) {
		s->member[i].state = MEMBER_NOT_JOINED;
		free(s->member[i].text);
		dying_forget(&s->member[i]);
	}
	init_rounds_settle(s); /* none is in use any more */
	free(s->member);
	free(s->lost);
}

/* ---- lost ranks ---- */

/* Set the bytes of lost ranks in ROUND's memory, once the ranks have said in its head
 * where lost[] is.  The head may say anything. */
void init_round_mark(struct server *s, struct init_round *round)
{
	struct boot_memory *head = round->head;
	const uint64_t at = head ? head->lost_at : 0;
	const uint32_t np = round->size;
	const bool has_place =
		head && __atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) == BOOT_MAGIC &&
		head->size == np && at >= sizeof *head && at <= round->bytes &&
		round->bytes - at >= np;
	uint32_t n = 0;

	round->unmarked = false;
	for (size_t i = 0; i < s->nlost; i++) {
		const struct lost_rank *l = &s->lost[i];
		const unsigned char how = l->secondary ? BOOT_SECONDARY : BOOT_LOST;
		const uint32_t place = init_round_place(round, l->rank);

		if (place == np)
			continue;
		if (l->init_round != round->number &&
		    !(l->ended && l->init_round < round->number))
			continue;
		round->unmarked = !has_place;
		n += has_place &&
		     pwrite(round->memory, &how, 1, (off_t)(at + place)) == 1;
	}
	if (n && n > atomic_load(&head->nlost))
		atomic_store(&head->nlost, n);
	if (head && s->wanted)
		atomic_store(&head->wanted, 1);
}

/* Refuse the members that wait in ROUND's fence, if a rank will not come to it. */
void init_round_refuse_waiting(struct server *s, struct init_round *round)
{
	const struct lost_rank *l = NULL;
	char *why;

	for (size_t i = 0; !l && !round->is_over && i < s->nlost; i++)
		if ((s->lost[i].ended || s->lost[i].init_round >= round->number) &&
		    init_round_place(round, s->lost[i].rank) < round->size)
			l = &s->lost[i];
	if (!l)
		return;
	why = xasprintf("rank %u on '%s' ended before all ranks had joined", l->rank,
			host_name_of(s, host_of(s, l->rank)));
	for (size_t i = 0; i < s->job->ranks.n; i++) {
		struct member *m = &s->member[i];

		if (m->state != MEMBER_IN_FENCE || m->round != round)
			continue;
		m->state = MEMBER_NOT_JOINED;
		client_refuse(m->client, round->rank ? BOOT_AGAIN : BOOT_REFUSED, why);
		m->client = NULL;
		round->in_fence--;
	}
	free(why);
}

/* The last word on each rank is kept. */
void init_round_add_lost(struct server *s, struct lost_rank l)
{
	size_t i = 0;

	while (i < s->nlost && s->lost[i].rank != l.rank)
		i++;
	if (i == s->nlost)
		s->lost = xreallocarray(s->lost, ++s->nlost, sizeof *s->lost);
	s->lost[i] = l;
}

void init_round_forget_lost(struct server *s, const struct init_round *round)
{
	size_t left = 0;

	for (size_t i = 0; i < s->nlost; i++)
		if (init_round_place(round, s->lost[i].rank) == round->size)
			s->lost[left++] = s->lost[i];
	s->nlost = left;
}

void init_round_tell_lost(struct server *s)
{
	for (struct init_round *round = s->round; round; round = round->next) {
		init_round_mark(s, round);
		init_round_refuse_waiting(s, round);
	}
}

bool init_rounds_settle(struct server *s)
{
	struct init_round **at = &s->round;
	bool again = false;

	while (*at) {
		struct init_round *round = *at;
		bool used = false;

		for (const struct client *c = s->client; c && !used; c = c->next)
			used = c->fd >= 0 && c->round == round;
		/* `rank_op` says what a lost rank did in it */
		for (size_t i = 0; i < s->job->ranks.n && !used; i++)
			used = s->member[i].round == round &&
			       s->member[i].state == MEMBER_LOST;
		if (used) {
			if (round->unmarked)
				init_round_mark(s, round);
			again |= round->unmarked && round->head;
			at = &round->next;
			continue;
		}
		for (size_t i = 0; i < s->job->ranks.n; i++)
			if (s->member[i].round == round)
				s->member[i].round = NULL;
		*at = round->next;
		if (round->head)
			munmap(round->head, sizeof *round->head);
		if (round->memory >= 0)
			close(round->memory);
		buf_free(&round->texts);
		buf_free(&round->fence_data);
		free(round->rank);
		free(round->place);
		free(round);
	}
	return again;
}

/* ---- the world of a round ---- */

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
static void rounds_send_some(struct client *c)
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

void init_round_send_world(struct client *c)
{
	const struct server *s = c->s;
	const struct wire_job *job = s->job;
	struct boot_who who = { .epoch = c->round->number,
				.rank = client_rank(c),
				.size = job->np,
				.local_rank = c->local,
				.local_size = (uint32_t)job->ranks.n,
				.cross_rank = job->cross_ranks.v[c->local],
				.cross_size = job->cross_sizes.v[c->local],
				.hosts = job->nodes };
	struct buf b = { 0 };

	c->waits_host_map = false;
	if (c->round->rank) {
		rounds_send_some(c);
		return;
	}
	memcpy(who.key, job->key.p, sizeof who.key);
	buf_add(&b, &who, sizeof who);
	for (uint32_t i = 0; i < job->np; i++) {
		const uint32_t host = host_of(s, i);

		buf_add(&b, &host, sizeof host);
	}
	for (uint32_t i = 0; i < job->nodes; i++) {
		const char *name = host_name_of(s, i);

		buf_add(&b, name, strlen(name) + 1);
	}
	client_send(c, BOOT_WORLD, buf_head(&b), b.len);
	buf_free(&b);
}
