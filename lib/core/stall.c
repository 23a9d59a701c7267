#include "lib/core/stall.h"

#include <stdio.h>

#include "lib/base/log.h"
#include "lib/base/rank_text.h"
#include "lib/core/trace.h"
#include "lib/core/world.h"

bool stall_is_due(const struct params *k, uint64_t begun_ns, uint64_t reported_ns,
		  uint64_t now_ns)
{
	uint64_t first_ns = begun_ns + (uint64_t)k->stall_ms * 1000000;

	if (k->stall_off || k->stall_ms <= 0 || now_ns < first_ns)
		return false;
	return reported_ns < first_ns ||
	       now_ns - begun_ns >= 2 * (reported_ns - begun_ns);
}

static size_t stall_add(char *text, size_t bytes, size_t at, const char *more)
{
	int n = at < bytes ? snprintf(text + at, bytes - at, "%s", more) : 0;

	return at + (n > 0 ? (size_t)n : 0);
}

/* Ranks of one host, and what the first of those here did last. */
static size_t add_host(char *text, size_t bytes, size_t at, const struct stall *s,
		       unsigned host, bool first)
{
	const struct boot_world *who = s->who;
	unsigned rank[STALL_MISSING_MOST];
	char ranks[256], more[512], last[256];
	size_t n = 0;

	for (size_t i = 0; i < s->nmissing; i++)
		if (who->host[s->missing[i]] == host)
			rank[n++] = s->missing[i];
	if (!n)
		return at;
	rank_text(ranks, sizeof ranks, rank, n);
	snprintf(more, sizeof more, "%s%s %s on '%s'", first ? "" : ", ",
		 n == 1 ? "rank" : "ranks", ranks, boot_host_name(who, rank[0]));
	at = stall_add(text, bytes, at, more);
	if (s->local[rank[0]] == WORLD_NOT_HERE)
		return at;
	trace_last(last, sizeof last, s->memory, s->local[rank[0]]);
	snprintf(more, sizeof more, " (rank %u: %s)", rank[0], last);
	return stall_add(text, bytes, at, more);
}

void stall_text(char *text, size_t bytes, const struct stall *s)
{
	char head[512];
	size_t at, before;

	snprintf(head, sizeof head, "%s: waits %llu s for ", s->words,
		 (unsigned long long)(s->waited_ms / 1000));
	at = before = stall_add(text, bytes, 0, head);
	for (unsigned h = 0; h < s->who->hosts; h++)
		at = add_host(text, bytes, at, s, h, at == before);
	if (at == before)
		stall_add(text, bytes, at, "other ranks");
}

void stall_tell(const struct world *w, struct stall *s)
{
	char text[1024];

	s->who = &w->who;
	s->local = w->local;
	s->memory = &w->memory;
	stall_text(text, sizeof text, s);
	log_say(BERTH_LOG_WARNING, "%s", text);
	if (!w->boot->stall || !s->nmissing)
		return;
	snprintf(text, sizeof text, "%llu s in %s",
		 (unsigned long long)(s->waited_ms / 1000), s->words);
	w->boot->stall(w->boot_state, s->missing, s->nmissing, text);
}
