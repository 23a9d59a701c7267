#include "agent/pmi/exchange.h"

#include <event2/event.h>

#include "common/loop.h"

enum {
	/* until those are told that wait for a rank that has ended: before, the job has
	 * ended them, and they do not speak of it */
	HANG_UP_MS = 2000,
	/* until ranks that are in MPI_Init are taken to wait for one that has ended */
	ABSENT_MS = 5000
};

struct exchange_wait {
	struct server *s;
	struct exchange_waiting of;
	struct event *failed, *absent;
};

void exchange_give(const struct server *s, enum exchange_use use, wire_u32v ranks,
		   uint64_t number, struct buf *bytes)
{
	struct wire_exchange w = {
		.epoch = s->job->epoch, .use = use, .ranks = ranks, .number = number
	};

	while (!w.last) {
		w.last = bytes->len <= WIRE_PART_MAX;
		w.data.n = w.last ? bytes->len : WIRE_PART_MAX;
		w.data.p = buf_head(bytes);
		wire_pack_exchange(s->out, &w);
		buf_drop(bytes, w.data.n);
	}
	buf_free(bytes);
}

static void exchange_on_failed(evutil_socket_t fd, short what, void *arg)
{
	struct exchange_wait *w = arg;

	(void)fd;
	(void)what;
	if (!w->of.end(w->of.ctx))
		return;
	for (size_t i = 0; i < w->s->job->ranks.n; i++)
		if (w->of.is_in_init(w->of.ctx, i))
			mpi_ends_stuck(w->s, i);
}

static void exchange_on_absent(evutil_socket_t fd, short what, void *arg)
{
	struct exchange_wait *w = arg;
	bool absent = false, waits = false;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < w->s->job->ranks.n; i++) {
		absent |= w->of.never_came(w->of.ctx, i);
		waits |= w->of.is_in_init(w->of.ctx, i);
	}
	if (absent && waits)
		w->of.ask(w->of.ctx);
}

struct exchange_wait *exchange_wait_make(struct server *s,
					 const struct exchange_waiting *of)
{
	struct exchange_wait *w = xmalloc(sizeof *w);

	*w = (struct exchange_wait){
		.s = s,
		.of = *of,
		.failed = event_new(s->base, -1, 0, exchange_on_failed, w),
		.absent = event_new(s->base, -1, 0, exchange_on_absent, w)
	};
	return w;
}

void exchange_wait_free(struct exchange_wait *w)
{
	event_free(w->failed);
	event_free(w->absent);
	free(w);
}

void exchange_wait_look(struct exchange_wait *w)
{
	loop_after_ms(w->absent, ABSENT_MS);
}

void exchange_wait_failed(struct exchange_wait *w)
{
	if (!event_pending(w->failed, EV_TIMEOUT, NULL))
		loop_after_ms(w->failed, HANG_UP_MS);
}
