#include <event2/event.h>

#include "agent/pmi/pmix_internal.h"
#include "common/loop.h"

enum {
	SERVES_MOST = 65536,
	/* for what a rank that has ended put before: what it never put, libpmix awaits
	 * for ever */
	ENDED_MS = 2000
};

/* A rank here is asked about. */
struct serve {
	uint32_t id;   /* ours, at the server */
	uint32_t host; /* who asks, */
	uint32_t theirs;
	size_t local;
	bool late; /* it has waited for ENDED_MS */
	struct serve *next;
};

void pmix_get(struct pmix *p, const struct wire_frame *f,
	      const struct wire_modex_request *m)
{
	if (m->rank < p->s->job->np && host_of(p->s, m->rank) != p->s->job->node) {
		wire_pass(p->s->out, f, p->s->job->epoch);
		return;
	}
	PMIX_SAY(p, modex_data, &(struct wire_modex_data){ .id = m->id, .failed = 1 });
}

static void modex_answer(struct pmix *p, uint32_t host, uint32_t id, bool failed,
			 wire_bytes data)
{
	wire_pack_modex_data(
		p->s->out,
		&(struct wire_modex_data){ p->s->job->epoch, host, id, failed, data });
}

void pmix_modex_request(struct pmix *p, const struct wire_modex_request *m)
{
	const struct wire_job *job = p ? p->s->job : NULL;
	struct serve *one;
	size_t local = 0;

	while (p && local < job->ranks.n && job->ranks.v[local] != m->rank)
		local++;
	if (!pmix_serves(p) || local == job->ranks.n || p->nserves >= SERVES_MOST ||
	    (p->rank[local].ended &&
	     (!p->rank[local].seen || p->rank[local].present))) {
		if (p)
			modex_answer(p, m->host, m->id, true, (wire_bytes){ 0 });
		return;
	}
	one = xmalloc(sizeof *one);
	*one = (struct serve){ ++p->serve_id, m->host, m->id, local, false, p->serve };
	p->serve = one;
	p->nserves++;
	PMIX_SAY(p, modex_request,
		 &(struct wire_modex_request){ .rank = m->rank, .id = one->id });
	if (p->rank[local].ended && !event_pending(p->ended, EV_TIMEOUT, NULL))
		loop_after_ms(p->ended, ENDED_MS);
}

void pmix_served(struct pmix *p, const struct wire_modex_data *m)
{
	struct serve **at = &p->serve, *one;

	while (*at && (*at)->id != m->id)
		at = &(*at)->next;
	one = *at;
	if (!one)
		return;
	modex_answer(p, one->host, one->theirs, m->failed, m->data);
	*at = one->next;
	p->nserves--;
	free(one);
}

/* The request at *AT fails: no answer will come. */
static void modex_fail(struct pmix *p, struct serve **at)
{
	struct serve *one = *at;

	modex_answer(p, one->host, one->theirs, true, (wire_bytes){ 0 });
	*at = one->next;
	p->nserves--;
	free(one);
}

/* Each that is about a rank that has ended waits for one or two turns. */
static void on_ended(evutil_socket_t fd, short what, void *arg)
{
	struct pmix *p = arg;
	struct serve **at = &p->serve;
	bool again = false;

	(void)fd;
	(void)what;
	while (*at) {
		if ((*at)->late) {
			modex_fail(p, at);
			continue;
		}
		(*at)->late = p->rank[(*at)->local].ended;
		again |= (*at)->late;
		at = &(*at)->next;
	}
	if (again)
		loop_after_ms(p->ended, ENDED_MS);
}

void pmix_modex_begin(struct pmix *p)
{
	p->ended = event_new(p->s->base, -1, 0, on_ended, p);
}

void pmix_modex_ended(struct pmix *p, size_t local)
{
	struct serve **at = &p->serve;

	while (*at)
		if ((*at)->local == local)
			modex_fail(p, at);
		else
			at = &(*at)->next;
}

void pmix_modex_end(struct pmix *p)
{
	event_free(p->ended);
	for (struct serve *next; p->serve; p->serve = next) {
		next = p->serve->next;
		free(p->serve);
	}
}
