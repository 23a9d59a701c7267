#include "launcher/trace/trace_match.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/str.h"

enum {
	WINDOW = 10000,
	CAME_MOST = 1 << 20, /* of all that are open */
	HEADS = 1 << 14,
	STEPS = 8 /* open at a time */
};

struct entry {
	struct trace_collective c;
	uint32_t room;      /* of c.came */
	struct entry *same; /* another with the same hash */
	TAILQ_ENTRY(entry) age;
};

struct step {
	bool used;
	struct trace_step s;
	struct share {
		int64_t waited_ns;
		uint64_t last;
	} * share; /* of each source */
};

struct trace_match {
	const struct trace_match_events *events;
	void *ctx;
	size_t sources, open, came;
	TAILQ_HEAD(ages, entry) ages; /* the oldest first */
	struct entry *head[HEADS];
	struct step step[STEPS];
};

void trace_match_open(struct trace_match **out, size_t sources,
		      const struct trace_match_events *events, void *ctx)
{
	struct trace_match *m = xcalloc(1, sizeof *m);

	m->events = events;
	m->ctx = ctx;
	m->sources = sources;
	TAILQ_INIT(&m->ages);
	for (size_t i = 0; i < STEPS; i++)
		m->step[i].share = xcalloc(sources, sizeof *m->step[i].share);
	*out = m;
}

/* ---- steps ---- */

static void step_done(struct trace_match *m, struct step *s)
{
	for (size_t i = 0; i < m->sources; i++)
		if (s->share[i].waited_ns > s->share[s->s.source].waited_ns)
			s->s.source = (uint32_t)i;
	s->s.waited_ns = s->share[s->s.source].waited_ns;
	s->s.last = s->share[s->s.source].last;
	m->events->step(m->ctx, &s->s);
	memset(s->share, 0, m->sources * sizeof *s->share);
	s->used = false;
}

static bool step_before(const struct step *a, const struct step *b)
{
	return a->s.epoch != b->s.epoch ? a->s.epoch < b->s.epoch
					: a->s.step < b->s.step;
}

/* The step of C; the first of the others makes room for it. */
static struct step *step_of(struct trace_match *m, const struct trace_collective *c)
{
	struct step *room = NULL, *first = NULL;

	for (size_t i = 0; i < STEPS; i++) {
		struct step *s = &m->step[i];

		if (s->used && s->s.epoch == c->epoch && s->s.step == c->step)
			return s;
		if (!s->used)
			room = s;
		else if (!first || step_before(s, first))
			first = s;
	}
	if (!room) {
		step_done(m, first);
		room = first;
	}
	room->used = true;
	room->s = (struct trace_step){ .epoch = c->epoch,
				       .step = c->step,
				       .begin_ns = c->first_ns,
				       .end_ns = c->end_ns };
	return room;
}

static void step_take(struct trace_match *m, const struct trace_collective *c)
{
	const uint32_t source = c->came[c->last].source;
	struct step *s;

	if (c->n < 2)
		return;
	s = step_of(m, c);
	s->s.collectives++;
	s->share[source].last++;
	s->share[source].waited_ns += c->last_ns - c->first_ns;
	if (c->first_ns < s->s.begin_ns)
		s->s.begin_ns = c->first_ns;
	if (c->end_ns > s->s.end_ns)
		s->s.end_ns = c->end_ns;
}

/* ---- collectives ---- */

static int64_t came_ns(const struct trace_came *c)
{
	return c->at_ns - c->waited_ns;
}

static void entry_done(struct trace_match *m, struct entry *e)
{
	struct entry **at = &m->head[e->c.key % HEADS];
	struct trace_collective *c = &e->c;

	c->first_ns = c->last_ns = came_ns(&c->came[0]);
	for (uint32_t i = 1; i < c->n; i++) {
		const int64_t ns = came_ns(&c->came[i]);

		if (ns > c->last_ns) {
			c->last = i;
			c->last_ns = ns;
		}
		if (ns < c->first_ns)
			c->first_ns = ns;
	}
	m->events->joined(m->ctx, c);
	step_take(m, c);
	while (*at != e)
		at = &(*at)->same;
	*at = e->same;
	TAILQ_REMOVE(&m->ages, e, age);
	m->open--;
	m->came -= e->room;
	free(c->came);
	free(e);
}

static uint64_t key_mix(uint64_t hash, uint64_t v)
{
	hash = (hash ^ v) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

static struct entry *entry_new(struct trace_match *m, uint64_t key,
			       const struct trace_op *op, uint32_t epoch)
{
	struct entry *e = xcalloc(1, sizeof *e);

	if (m->open == WINDOW)
		entry_done(m, TAILQ_FIRST(&m->ages));
	e->c.key = key;
	e->c.epoch = epoch;
	e->c.step = op->step;
	e->c.of = op->of < UINT32_MAX ? (uint32_t)op->of : UINT32_MAX;
	e->same = m->head[key % HEADS];
	m->head[key % HEADS] = e;
	TAILQ_INSERT_TAIL(&m->ages, e, age);
	m->open++;
	return e;
}

static void entry_add(struct trace_match *m, struct entry *e,
		      const struct trace_came *came)
{
	if (e->c.n == e->room) {
		const uint32_t room =
			e->c.of < m->sources ? e->c.of : (uint32_t)m->sources;
		const uint32_t more = e->room ? e->room : room ? room : 1;

		e->c.came = xreallocarray(e->c.came, e->room + more, sizeof *e->c.came);
		e->room += more;
		m->came += more;
	}
	e->c.came[e->c.n++] = *came;
}

uint64_t trace_match_add(struct trace_match *m, const struct trace_op *op,
			 uint32_t epoch, const struct trace_came *came, int64_t end_ns)
{
	uint64_t key = key_mix(epoch + 1, op->world);
	struct entry *e;

	key = key_mix(key_mix(key_mix(key, op->set), op->seq), op->part);
	key += !key;
	while (m->came > CAME_MOST)
		entry_done(m, TAILQ_FIRST(&m->ages));
	e = m->head[key % HEADS];
	while (e && e->c.key != key)
		e = e->same;
	if (!e)
		e = entry_new(m, key, op, epoch);
	entry_add(m, e, came);
	if (end_ns > e->c.end_ns)
		e->c.end_ns = end_ns;
	if (e->c.n >= e->c.of)
		entry_done(m, e);
	return key;
}

void trace_match_end(struct trace_match *m)
{
	for (struct entry *e = TAILQ_FIRST(&m->ages), *next; e; e = next) {
		next = TAILQ_NEXT(e, age);
		entry_done(m, e);
	}
	for (;;) {
		struct step *first = NULL;

		for (size_t i = 0; i < STEPS; i++)
			if (m->step[i].used &&
			    (!first || step_before(&m->step[i], first)))
				first = &m->step[i];
		if (!first)
			return;
		step_done(m, first);
	}
}

void trace_match_free(struct trace_match *m)
{
	struct entry *e;

	if (!m)
		return;
	while ((e = TAILQ_FIRST(&m->ages))) {
		TAILQ_REMOVE(&m->ages, e, age);
		free(e->c.came);
		free(e);
	}
	for (size_t i = 0; i < STEPS; i++)
		free(m->step[i].share);
	free(m);
}
