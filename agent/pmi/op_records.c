/* What a rank does in the library, as the memory of its host says.  The ranks may write
 * there whatever they like, and at any time: each entry is copied, then looked at. */
#include "agent/pmi/server_internal.h"

#include <unistd.h>

enum {
	LOOK_BACK = 64, /* flights */
	SETS_MOST = 16,
	STALL_MS = 1000 /* between two reports of one rank that are passed on */
};

/* What one rank has done last. */
struct ring {
	struct boot_flight flight[LOOK_BACK]; /* the newest first */
	size_t n;
};

/* N items of SIZE from AT on lie in BYTES. */
static bool fits(uint64_t bytes, uint64_t at, uint64_t n, uint64_t size)
{
	return at <= bytes && (bytes - at) / size >= n;
}

static bool copy(const struct init_round *j, uint64_t at, void *to, size_t n)
{
	return fits(j->bytes, at, n, 1) &&
	       pread(j->memory, to, n, (off_t)at) == (ssize_t)n;
}

static bool read_rank(const struct server *s, const struct init_round *j,
		      uint32_t local, struct boot_memory *head, struct boot_rank *rank)
{
	return j && j->memory >= 0 && copy(j, 0, head, sizeof *head) &&
	       head->magic == BOOT_MAGIC && head->version == BOOT_VERSION &&
	       fits(j->bytes, head->rank_at, s->job->ranks.n, sizeof *rank) &&
	       copy(j, head->rank_at + local * sizeof *rank, rank, sizeof *rank);
}

bool op_records_follows(const struct server *s, uint32_t local)
{
	struct boot_memory head;
	struct boot_rank rank;

	return read_rank(s, init_round_find(s, s->member[local].joining), local, &head,
			 &rank) &&
	       atomic_load(&rank.blames);
}

static void read_ring(const struct server *s, const struct init_round *j,
		      uint32_t local, struct ring *ring)
{
	const size_t ring_bytes = BOOT_FLIGHTS * sizeof(struct boot_flight);
	struct boot_memory head;
	struct boot_rank rank;
	uint64_t number, at;

	ring->n = 0;
	if (!read_rank(s, j, local, &head, &rank) ||
	    !fits(j->bytes, head.flight_at, s->job->ranks.n, ring_bytes))
		return;
	number = atomic_load(&rank.number);
	at = head.flight_at + local * ring_bytes;
	for (; ring->n < LOOK_BACK && number; ring->n++, number--) {
		struct boot_flight *f = &ring->flight[ring->n];
		const uint64_t place = (number - 1) % BOOT_FLIGHTS * sizeof *f;

		if (!copy(j, at + place, f, sizeof *f) ||
		    (atomic_load(&f->number) != number && ring->n))
			return;
		if (atomic_load(&f->number) != number) { /* is being written */
			*f = (struct boot_flight){ .begun = clock_ns() };
			atomic_store(&f->state, BOOT_FLIGHT_QUEUED);
		}
	}
}

/* The oldest that runs, else the newest. */
static const struct boot_flight *choose(const struct ring *r)
{
	const struct boot_flight *f = r->flight;

	for (size_t i = 0; i < r->n; i++)
		if (r->flight[i].state == BOOT_FLIGHT_RUNS)
			f = &r->flight[i];
	return f;
}

static const char *word(const char *const *words, size_t n, unsigned i)
{
	return i < n ? words[i] : "?";
}

static void add_age(struct str *out, uint64_t then_ns)
{
	const uint64_t now = clock_ns();
	const uint64_t ms = now > then_ns ? (now - then_ns) / 1000000 : 0;

	if (ms < 10000)
		str_addf(out, "%u.%u s ago", (unsigned)ms / 1000,
			 (unsigned)ms / 100 % 10);
	else
		str_addf(out, "%llu s ago", (unsigned long long)ms / 1000);
}

static void add_flight(struct str *out, const struct boot_flight *f)
{
	static const char *const
		kinds[] = { BOOT_KINDS },
		*const types[] = { BOOT_TYPES }, *const ops[] = { BOOT_OPS },
		*const states[] = { "begun", "queued", "begun", "done", "failed" };
	enum { BARRIER = 6, KINDS = sizeof kinds / sizeof *kinds };
	const unsigned state = f->state <= BOOT_FLIGHT_FAILED ? f->state : 0;

	str_add(out, word(kinds, KINDS, f->kind));
	if (*f->name)
		str_addf(out, " \"%.*s\"", (int)sizeof f->name, f->name);
	if (f->kind < BARRIER)
		str_addf(out, " of %llu %s", (unsigned long long)f->count,
			 word(types, sizeof types / sizeof *types, f->type));
	if (f->kind < 3)
		str_addf(out, ", %s", word(ops, sizeof ops / sizeof *ops, f->op));
	str_addf(out, ", %s ", states[state]);
	add_age(out, state >= BOOT_FLIGHT_DONE && f->ended ? f->ended : f->begun);
}

static bool waits_to_join(const struct member *m)
{
	return m->state == MEMBER_JOINED || m->state == MEMBER_SAID;
}

static void add_text(struct str *out, const struct member *m, const struct ring *r)
{
	if (r->n)
		add_flight(out, choose(r));
	else if (m->state != MEMBER_AWAY)
		str_add(out, "no operation yet");
	else
		return; /* nobody is in any more */
	if (waits_to_join(m))
		str_add(out, ", it waits for all ranks to join");
	else if (m->state == MEMBER_AWAY)
		str_add(out, ", then it left");
}

struct turns {
	uint32_t set[1 + SETS_MOST], turn[1 + SETS_MOST], runs[1 + SETS_MOST];
	size_t n;
};

/* Its joining, then of each set the newest that has begun. */
static void collect_turns(const struct member *m, const struct ring *r, struct turns *t)
{
	*t = (struct turns){
		{ WIRE_JOININGS }, { m->joining }, { waits_to_join(m) }, 1
	};
	for (size_t i = 0; i < r->n; i++) {
		const struct boot_flight *f = &r->flight[i];
		size_t k = 0;

		if (f->state < BOOT_FLIGHT_RUNS)
			continue;
		while (k < t->n && t->set[k] != f->set)
			k++;
		if (k < t->n || k > SETS_MOST)
			continue;
		t->set[k] = f->set;
		t->turn[k] = f->turn;
		t->runs[k] = f->state == BOOT_FLIGHT_RUNS;
		t->n++;
	}
}

void op_records_say(const struct server *s, uint32_t local)
{
	const struct member *m = &s->member[local];
	struct wire_rank_op w = { .epoch = s->job->epoch,
				  .rank = s->job->ranks.v[local] };
	struct str text = { 0 };
	struct turns turns;
	struct ring ring;

	if (!m->joining)
		return;
	read_ring(s, init_round_find(s, m->joining), local, &ring);
	collect_turns(m, &ring, &turns);
	add_text(&text, m, &ring);
	w.sets = (wire_u32v){ turns.set, turns.n };
	w.turns = (wire_u32v){ turns.turn, turns.n };
	w.runs = (wire_u32v){ turns.runs, turns.n };
	w.text = str_text(&text);
	wire_pack_rank_op(s->out, &w);
	str_free(&text);
}

void op_records_look(const struct server *s)
{
	const struct wire_query_done m = { s->job->epoch };

	for (uint32_t i = 0; i < s->job->ranks.n; i++)
		op_records_say(s, i);
	wire_pack_query_done(s->out, &m);
}

int op_records_ask(struct client *c)
{
	struct member *m = &c->s->member[c->local];
	const struct wire_missing_request w = { c->s->job->epoch,
						c->s->job->ranks.v[c->local] };

	if (m->asks || (m->state != MEMBER_IN && m->state != MEMBER_SAID))
		return -1;
	m->asks = true;
	wire_pack_missing_request(c->s->out, &w);
	return 0;
}

void op_records_behind(struct server *s, const struct wire_missing *b)
{
	for (uint32_t i = 0; i < s->job->ranks.n; i++) {
		struct member *m = &s->member[i];

		if (s->job->ranks.v[i] != b->rank || !m->asks || !m->client)
			continue;
		m->asks = false;
		client_say(m->client, BOOT_BEHIND, b->ranks.v,
			   b->ranks.n * sizeof *b->ranks.v);
	}
}

int op_records_stall(struct client *c, const unsigned char *p, size_t n)
{
	struct member *m = &c->s->member[c->local];
	const uint64_t now = clock_ms();
	struct wire_stall w = { .epoch = c->s->job->epoch,
				.rank = c->s->job->ranks.v[c->local] };
	uint32_t count, *list;
	size_t bytes;

	memcpy(&count, p, sizeof count);
	bytes = (size_t)count * sizeof count;
	if (n - sizeof count <= bytes ||
	    memchr(p + sizeof count + bytes, 0, n - sizeof count - bytes) != p + n - 1)
		return -1;
	if (m->stalled_ms && now - m->stalled_ms < STALL_MS)
		return 0;
	m->stalled_ms = now;
	list = xcalloc(count + 1, sizeof *list);
	memcpy(list, p + sizeof count, bytes);
	w.missing = (wire_u32v){ list, count };
	w.text = (const char *)p + sizeof count + bytes;
	wire_pack_stall(c->s->out, &w);
	free(list);
	return 0;
}
