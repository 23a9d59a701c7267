/* The record of one host in an exchange: u32 withheld, u32 length, bytes.  If one host
 * withheld its data, being too long, no server gets any: each asks for what its ranks
 * want, rank by rank. */
#include <search.h>

#include "agent/pmi/pmix_internal.h"

enum {
	COUNTS_MOST = 65536, /* lists of ranks that had an exchange */
	/* some are left for libberth, and for ranks that do not come */
	COLLECTS_MOST = EXCHANGES_MOST - EXCHANGES_MOST / 8
};

/* How many exchanges these ranks have had. */
struct count {
	enum exchange_use use;
	uint64_t name, n;
	size_t nranks;
	uint32_t rank[];
};

/* An exchange that has not ended. */
struct collect {
	uint32_t id; /* the server's */
	const struct count *of;
	uint64_t number;
	struct buf all;
	struct collect *next;
};

static int compare_counts(const void *a, const void *b)
{
	const struct count *x = a, *y = b;

	if (x->use != y->use)
		return x->use < y->use ? -1 : 1;
	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	if (x->nranks != y->nranks)
		return x->nranks < y->nranks ? -1 : 1;
	return memcmp(x->rank, y->rank, x->nranks * sizeof *x->rank);
}

/* NULL: there are too many. */
static struct count *count_of(struct pmix *p, enum exchange_use use, uint64_t name,
			      const wire_u32v *ranks)
{
	struct count *c = xmalloc(sizeof *c + ranks->n * sizeof *c->rank), **found;

	*c = (struct count){ .use = use, .name = name, .nranks = ranks->n };
	if (ranks->n)
		memcpy(c->rank, ranks->v, ranks->n * sizeof *c->rank);
	found = tfind(c, &p->counts, compare_counts);
	if (found || p->ncounts >= COUNTS_MOST) {
		free(c);
		return found ? *found : NULL;
	}
	if (!tsearch(c, &p->counts, compare_counts))
		die("out of memory", 0);
	p->ncounts++;
	return c;
}

/* Are all ranks that take part on this host? */
static bool is_local(const struct server *s, const struct count *c)
{
	if (!c->nranks)
		return s->job->nodes == 1;
	for (size_t i = 0; i < c->nranks; i++)
		if (host_of(s, c->rank[i]) != s->job->node)
			return false;
	return true;
}

static bool takes_part(const struct count *c, uint32_t rank)
{
	for (size_t i = 0; i < c->nranks; i++)
		if (c->rank[i] == rank)
			return true;
	return !c->nranks;
}

/* The server's request ID ends. */
static void exchange_answer(struct pmix *p, uint32_t id, bool failed, uint64_t serial,
			    wire_bytes data)
{
	PMIX_SAY(p, pmix_collected,
		 &(struct wire_pmix_collected){ id, failed, serial, data });
}

static void mark_busy(struct pmix *p, const struct count *c)
{
	for (size_t i = 0; i < p->s->job->ranks.n; i++)
		p->rank[i].busy |= takes_part(c, p->s->job->ranks.v[i]);
	exchange_wait_look(&p->wait);
}

bool pmix_collect(struct pmix *p, const struct wire_pmix_collect *m)
{
	const wire_bytes none = { 0 };
	bool has_part = !m->ranks.n, local, lacks;
	struct buf record = { 0 };
	struct count *c;
	struct collect *one;

	if (m->use < EXCHANGE_PMIX_FENCE || m->use >= EXCHANGE_USES ||
	    m->withheld > COLLECT_LACKS_RANK ||
	    m->data.n > EXCHANGE_PMIX_BYTES / p->s->job->nodes)
		return false;
	if (!wire_ascends(&m->ranks, p->s->job->np))
		return false;
	for (size_t i = 0; i < m->ranks.n; i++)
		has_part |= host_of(p->s, m->ranks.v[i]) == p->s->job->node;
	if (!has_part)
		return false;
	c = count_of(p, (enum exchange_use)m->use, m->name, &m->ranks);
	local = c && is_local(p->s, c);
	lacks = m->withheld == COLLECT_LACKS_RANK;
	for (size_t i = 0; local && !lacks && i < p->s->job->ranks.n; i++)
		lacks = p->rank[i].ended && p->rank[i].present &&
			takes_part(c, p->s->job->ranks.v[i]);
	if (local && !lacks && c->use != EXCHANGE_PMIX_GROUP) {
		mark_busy(p, c);
		exchange_answer(p, m->id, false, 0, m->withheld ? none : m->data);
		return true;
	}
	if (!c || p->ncollects >= COLLECTS_MOST) {
		exchange_answer(p, m->id, true, 0, none);
		return true;
	}
	one = xcalloc(1, sizeof *one);
	*one = (struct collect){
		.id = m->id, .of = c, .number = m->name + c->n++, .next = p->collect
	};
	p->collect = one;
	p->ncollects++;
	buf_u32(&record, m->withheld || lacks);
	buf_u32(&record, lacks ? 0 : (uint32_t)m->data.n);
	if (!lacks && m->data.n)
		buf_add(&record, m->data.p, m->data.n);
	exchange_give(p->s, c->use, (wire_u32v){ c->rank, c->nranks }, one->number,
		      lacks ? EXCHANGE_LACKS_RANK : EXCHANGE_WHOLE, &record);
	return true;
}

static void collect_free(struct pmix *p, struct collect *one)
{
	struct collect **at = &p->collect;

	while (*at != one)
		at = &(*at)->next;
	*at = one->next;
	p->ncollects--;
	buf_free(&one->all);
	free(one);
}

static struct collect *collect_of(const struct pmix *p, uint32_t use,
				  const wire_u32v *ranks, uint64_t number)
{
	struct collect *one = p->collect;

	while (one && (one->of->use != use || one->number != number ||
		       one->of->nranks != ranks->n ||
		       (ranks->n &&
			memcmp(one->of->rank, ranks->v, ranks->n * sizeof *ranks->v))))
		one = one->next;
	return one;
}

/* Replace the records in ALL by their data.  False: ALL has something else. */
static bool open_records(struct buf *all)
{
	struct view v = { buf_head(all), all->len, false };
	struct buf data = { 0 };
	bool withheld = false;

	while (v.left && !v.failed) {
		const bool w = view_u32(&v);
		const uint32_t n = view_u32(&v);
		const void *bytes = view_bytes(&v, n);

		withheld |= w;
		if (bytes && n)
			buf_add(&data, bytes, n);
	}
	buf_free(all);
	if (withheld || v.failed)
		buf_free(&data);
	*all = data;
	return !v.failed;
}

int pmix_data(struct pmix *p, const struct wire_exchange_data *m, struct err *e)
{
	const size_t most =
		EXCHANGE_PMIX_BYTES + (size_t)EXCHANGE_PMIX_HEAD * p->s->job->nodes;
	struct collect *one;

	if (!pmix_serves(p))
		return 0;
	one = collect_of(p, m->use, &m->ranks, m->number);
	if (!one || m->data.n > most - one->all.len)
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	buf_add(&one->all, m->data.p, m->data.n);
	if (!m->last)
		return 0;
	if (!open_records(&one->all))
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	mark_busy(p, one->of);
	exchange_answer(p, one->id, false, m->serial,
			(wire_bytes){ buf_head(&one->all), one->all.len });
	collect_free(p, one);
	return 0;
}

static bool pmix_is_in_init(const void *pmix, size_t i)
{
	const struct pmix *p = pmix;
	const struct pmix_rank *r = &p->rank[i];

	return pmix_serves(p) && r->present && !r->busy && !r->ended;
}

static bool pmix_never_came(const void *pmix, size_t i)
{
	const struct pmix_rank *r = &((const struct pmix *)pmix)->rank[i];

	return r->ended && !r->seen;
}

void pmix_exchange_failed(struct pmix *p, const struct wire_exchange_failed *m)
{
	struct collect *one;

	if (!p || m->use == EXCHANGE_PMI1)
		return;
	one = collect_of(p, m->use, &m->ranks, m->number);
	if (!one) { /* one to which no rank here has come */
		exchange_none_comes(&p->wait);
	} else if (pmix_serves(p)) {
		exchange_answer(p, one->id, true, 0, (wire_bytes){ 0 });
		collect_free(p, one);
	}
}

void pmix_exchanges_begin(struct pmix *p)
{
	p->wait = (struct exchange_wait){ .s = p->s,
					  .use = EXCHANGE_PMIX_FENCE,
					  .ctx = p,
					  .never_came = pmix_never_came,
					  .is_in_init = pmix_is_in_init };
}

void pmix_exchanges_end(struct pmix *p)
{
	while (p->collect)
		collect_free(p, p->collect);
	tdestroy(p->counts, free);
}
