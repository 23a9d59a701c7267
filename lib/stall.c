#include "lib/stall.h"

#include <stdio.h>

bool stall_is_due(const struct knobs *k, uint64_t begun_ns, uint64_t reported_ns,
		  uint64_t now_ns)
{
	uint64_t first_ns = begun_ns + (uint64_t)k->stall_ms * 1000000;

	if (k->stall_off || k->stall_ms <= 0 || now_ns < first_ns)
		return false;
	return reported_ns < first_ns ||
	       now_ns - begun_ns >= 2 * (reported_ns - begun_ns);
}

/* Whole numbers only: of one that is cut nobody could see that it is another. */
void world_fold(char *text, size_t bytes, const unsigned *rank, size_t n)
{
	size_t at = 0, last;
	char one[32];

	if (bytes)
		*text = '\0';
	for (size_t i = 0; i < n; i = last + 1) {
		const char *comma = i ? ", " : "";
		int more;

		for (last = i; last + 1 < n && rank[last + 1] == rank[last] + 1;)
			last++;
		if (last > i)
			more = snprintf(one, sizeof one, "%s%u%s%u", comma, rank[i],
					last > i + 1 ? "-" : ", ", rank[last]);
		else
			more = snprintf(one, sizeof one, "%s%u", comma, rank[i]);
		if (at + (size_t)more + (last + 1 < n ? sizeof ", ..." : 1) > bytes) {
			snprintf(text + at, bytes - at, "%s...", comma);
			return;
		}
		snprintf(text + at, bytes - at, "%s", one);
		at += (size_t)more;
	}
}

static size_t add(char *text, size_t bytes, size_t at, const char *more)
{
	int n = at < bytes ? snprintf(text + at, bytes - at, "%s", more) : 0;

	return at + (n > 0 ? (size_t)n : 0);
}

/* Ranks of one host, and what the first of those here did last. */
static size_t add_host(char *text, size_t bytes, size_t at, const struct stall *s,
		       unsigned host, bool first)
{
	const struct world *w = s->world;
	unsigned rank[STALL_MISSING_MOST];
	char ranks[256], more[512], last[256];
	size_t n = 0;

	for (size_t i = 0; i < s->nmissing; i++)
		if (w->who.host[s->missing[i]] == host)
			rank[n++] = s->missing[i];
	if (!n)
		return at;
	world_fold(ranks, sizeof ranks, rank, n);
	snprintf(more, sizeof more, "%s%s %s on '%s'", first ? "" : ", ",
		 n == 1 ? "rank" : "ranks", ranks, world_host(w, rank[0]));
	at = add(text, bytes, at, more);
	if (w->local[rank[0]] == WORLD_NOT_HERE)
		return at;
	trace_last(last, sizeof last, &w->memory, w->local[rank[0]]);
	snprintf(more, sizeof more, " (rank %u: %s)", rank[0], last);
	return add(text, bytes, at, more);
}

void stall_text(char *text, size_t bytes, const struct stall *s)
{
	char head[512];
	size_t at, before;

	snprintf(head, sizeof head, "%s: waits %llu s for ", s->words,
		 (unsigned long long)(s->waited_ms / 1000));
	at = before = add(text, bytes, 0, head);
	for (unsigned h = 0; h < s->world->who.hosts; h++)
		at = add_host(text, bytes, at, s, h, at == before);
	if (at == before)
		add(text, bytes, at, "other ranks");
}
