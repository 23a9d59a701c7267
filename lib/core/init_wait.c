#include "lib/core/init_wait.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/rank_text.h"

enum {
	LEAST_MS = 60000, /* programs do not begin all at once */
	ANSWER_MS = 1500  /* for who is missing, and for others to see it, too */
};

void init_wait_begin(struct init_wait *m, struct world *w, const char *call)
{
	const struct params *k = &w->params;
	int64_t ms = w->timeout_ms > 0 ? w->timeout_ms : 0;

	if (!k->stall_off && k->stall_end_ms > 0 && (!ms || k->stall_end_ms < ms))
		ms = k->stall_end_ms;
	if (ms && ms < LEAST_MS)
		ms = LEAST_MS;
	*m = (struct init_wait){ .world = w,
				 .begun_ns = clock_ns(),
				 .deadline_ns = ms ? clock_until(ms) : 0,
				 .late = { .words = call } };
	m->reported_ns = m->begun_ns;
}

static bool is_too_late(const struct init_wait *m, uint64_t now)
{
	return m->deadline_ns && now >= m->deadline_ns;
}

berth_result init_wait_tick(void *ctx)
{
	struct init_wait *m = ctx;
	const uint64_t now = clock_ns();

	m->late.waited_ms = (now - m->begun_ns) / 1000000;
	if (!is_too_late(m, now))
		return stall_is_due(&m->world->params, m->begun_ns, m->reported_ns, now)
			       ? BERTH_BUSY
			       : BERTH_OK;
	if (now - m->deadline_ns >= ANSWER_MS * 1000000ull)
		return BERTH_TIMEOUT;
	return m->is_over ? BERTH_OK : BERTH_BUSY;
}

void init_wait_missing(void *ctx, const unsigned *rank, size_t n)
{
	struct init_wait *m = ctx;
	struct stall *s = &m->late;

	s->nmissing = n < STALL_MISSING_MOST ? n : STALL_MISSING_MOST;
	memcpy(s->missing, rank, s->nmissing * sizeof *rank);
	if (!n) /* the last has just come */
		return;
	m->is_over = is_too_late(m, clock_ns());
	if (m->is_over || !m->world->who.size) /* or nobody can be told yet */
		return;
	m->reported_ns = clock_ns();
	stall_tell(m->world, s);
}

void init_wait_text(char *text, size_t bytes, const struct init_wait *m)
{
	const struct stall *s = &m->late;
	const bool one = s->nmissing == 1, named = one && m->world->who.host;
	char ranks[256];

	rank_text(ranks, sizeof ranks, s->missing, s->nmissing);
	snprintf(text, bytes, "rank%s %s%s%s%s did not call %s() in %llu s",
		 one ? "" : "s", ranks, named ? " on '" : "",
		 named ? boot_host_name(&m->world->who, s->missing[0]) : "",
		 named ? "'" : "", s->words, (unsigned long long)(s->waited_ms / 1000));
}
