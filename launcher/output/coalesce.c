#include "launcher/output/coalesce.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum {
	BUCKETS = 4096,
	DEPTH_MOST = 16, /* lines that have to leave before one another, at a time */
	SCAN_MOST = 4 /* lines of a text for each rank: one may write it without end */
};

/* A line of one rank that waits. */
struct waiting {
	uint32_t rank;
	uint8_t stamp_bytes;
	char stamp[COALESCE_STAMP_BYTES];
	uint64_t since_ms;
	struct text *text;
	STAILQ_ENTRY(waiting) of_rank, of_text;
	TAILQ_ENTRY(waiting) all;
};

/* The bytes of lines that are equal. */
struct text {
	char *s;
	size_t n;
	uint32_t stream;       /* 0: stdout, 1: stderr */
	struct rank_set ranks; /* that have written it since it last left */
	uint32_t nranks;       /* how many */
	STAILQ_HEAD(lines_of_text, waiting) lines;
	LIST_ENTRY(text) next; /* of its bucket */
};

struct coalesce {
	uint32_t np;
	STAILQ_HEAD(lines_of_rank, waiting) * rank; /* [np] */
	TAILQ_HEAD(all_lines, waiting) all;         /* in the order of their arrival */
	LIST_HEAD(texts, text) bucket[BUCKETS];
	struct text *complete; /* all ranks have written it */
	size_t nlines, bytes;
};

void coalesced_free(struct coalesced *l)
{
	rank_set_free(&l->ranks);
	free(l->text);
}

struct coalesce *coalesce_open(uint32_t np)
{
	struct coalesce *c = xcalloc(1, sizeof *c);

	c->np = np;
	c->rank = xcalloc(np, sizeof *c->rank);
	for (uint32_t i = 0; i < np; i++)
		STAILQ_INIT(&c->rank[i]);
	TAILQ_INIT(&c->all);
	return c;
}

void coalesce_free(struct coalesce *c)
{
	struct coalesced l;

	if (!c)
		return;
	while (coalesce_take(c, COALESCE_ALL, &l))
		coalesced_free(&l);
	free(c->rank);
	free(c);
}

static struct text *coalesce_text(struct coalesce *c, const char *s, size_t n,
				  uint32_t stream)
{
	uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
	struct text *t;
	size_t b;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ (unsigned char)s[i]) * 0x100000001b3;
	b = hash % BUCKETS;
	LIST_FOREACH(t, &c->bucket[b], next)
	if (t->n == n && t->stream == stream && !memcmp(t->s, s, n))
		return t;
	t = xcalloc(1, sizeof *t);
	t->s = xmalloc(n + 1);
	memcpy(t->s, s, n);
	t->n = n;
	t->stream = stream;
	STAILQ_INIT(&t->lines);
	LIST_INSERT_HEAD(&c->bucket[b], t, next);
	c->bytes += n;
	return t;
}

void coalesce_add(struct coalesce *c, uint32_t index, const char *text, size_t n,
		  const char *stamp, size_t stamp_bytes, uint64_t now_ms)
{
	struct waiting *w = xcalloc(1, sizeof *w);
	struct rank_set *ranks;
	size_t words;

	w->rank = index / 2;
	w->since_ms = now_ms;
	w->stamp_bytes = (uint8_t)stamp_bytes;
	memcpy(w->stamp, stamp, stamp_bytes);
	w->text = coalesce_text(c, text, n, index % 2);
	ranks = &w->text->ranks;
	words = ranks->nwords;
	w->text->nranks += !rank_set_has(ranks, w->rank);
	rank_set_add(ranks, w->rank);
	c->bytes += (ranks->nwords - words) * sizeof *ranks->bits;
	if (w->text->nranks == c->np)
		c->complete = w->text;
	STAILQ_INSERT_TAIL(&w->text->lines, w, of_text);
	STAILQ_INSERT_TAIL(&c->rank[w->rank], w, of_rank);
	TAILQ_INSERT_TAIL(&c->all, w, all);
	c->nlines++;
}

/* All lines of T leave as one.  A text in front of it, in some rank, has to leave
 * first: returns that, or T. */
static struct text *coalesce_before(struct coalesce *c, struct text *t)
{
	for (int depth = 0; depth < DEPTH_MOST; depth++) {
		struct text *first = t;
		struct waiting *w;
		size_t n = 0;

		STAILQ_FOREACH(w, &t->lines, of_text)
		{
			if (++n > SCAN_MOST * (size_t)c->np)
				break;
			first = STAILQ_FIRST(&c->rank[w->rank])->text;
			if (first != t)
				break;
		}
		if (first == t)
			break;
		t = first;
	}
	return t;
}

/* Those of T leave, one of each rank, that are their rank's next lines. */
static void coalesce_leave(struct coalesce *c, struct text *t, struct coalesced *l)
{
	struct waiting *w, *next;
	size_t n = 0;

	*l = (struct coalesced){ .text = xmalloc(t->n + 1), .n = t->n };
	memcpy(l->text, t->s, t->n);
	for (w = STAILQ_FIRST(&t->lines);
	     w && (n++ < SCAN_MOST * (size_t)c->np || !l->ranks.nwords); w = next) {
		next = STAILQ_NEXT(w, of_text);
		if (w != STAILQ_FIRST(&c->rank[w->rank]) ||
		    rank_set_has(&l->ranks, w->rank))
			continue;
		if (!l->ranks.nwords) {
			l->index = 2 * w->rank + t->stream;
			l->stamp_bytes = w->stamp_bytes;
			memcpy(l->stamp, w->stamp, sizeof l->stamp);
		}
		rank_set_add(&l->ranks, w->rank);
		STAILQ_REMOVE_HEAD(&c->rank[w->rank], of_rank);
		STAILQ_REMOVE(&t->lines, w, waiting, of_text);
		TAILQ_REMOVE(&c->all, w, all);
		c->nlines--;
		free(w);
	}
	c->bytes -= t->ranks.nwords * sizeof *t->ranks.bits;
	rank_set_free(&t->ranks);
	t->nranks = 0;
	if (c->complete == t)
		c->complete = NULL;
	if (!STAILQ_EMPTY(&t->lines))
		return;
	LIST_REMOVE(t, next);
	c->bytes -= t->n;
	free(t->s);
	free(t);
}

bool coalesce_take(struct coalesce *c, uint64_t now_ms, struct coalesced *l)
{
	const struct waiting *oldest = TAILQ_FIRST(&c->all);
	const bool due =
		oldest && (now_ms - oldest->since_ms >= COALESCE_MS ||
			   c->bytes > COALESCE_BYTES || c->nlines > COALESCE_LINES);

	if (!due && !c->complete)
		return false;
	coalesce_leave(c, coalesce_before(c, due ? oldest->text : c->complete), l);
	return true;
}

bool coalesce_take_of(struct coalesce *c, uint32_t rank, struct coalesced *l)
{
	const struct waiting *first = STAILQ_FIRST(&c->rank[rank]);

	if (!first)
		return false;
	coalesce_leave(c, coalesce_before(c, first->text), l);
	return true;
}

uint64_t coalesce_due_ms(const struct coalesce *c)
{
	const struct waiting *oldest = TAILQ_FIRST(&c->all);

	return oldest ? oldest->since_ms + COALESCE_MS : 0;
}
