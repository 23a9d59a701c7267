#include "agent/pmi/exchange.h"

#include <event2/event.h>

#include "common/loop.h"

/* until ranks that are in MPI_Init are taken to wait for one that has ended */
enum { ABSENT_MS = 5000 };

struct exchange_wait {
	struct server *s;
	struct exchange_waiting of;
	struct event *absent;
};

void exchange_give(const struct server *s, enum exchange_use use, wire_u32v ranks,
		   uint64_t number, enum exchange_last last, struct buf *bytes)
{
	struct wire_exchange w = {
		.epoch = s->job->epoch, .use = use, .ranks = ranks, .number = number
	};

	while (!w.last) {
		w.last = bytes->len <= WIRE_PART_MAX ? last : EXCHANGE_MORE;
		w.data.n = w.last ? bytes->len : WIRE_PART_MAX;
		w.data.p = buf_head(bytes);
		wire_pack_exchange(s->out, &w);
		buf_drop(bytes, w.data.n);
	}
	buf_free(bytes);
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

	*w = (struct exchange_wait){ .s = s,
				     .of = *of,
				     .absent = event_new(s->base, -1, 0,
							 exchange_on_absent, w) };
	return w;
}

void exchange_wait_free(struct exchange_wait *w)
{
	event_free(w->absent);
	free(w);
}

void exchange_wait_look(struct exchange_wait *w)
{
	loop_after_ms(w->absent, ABSENT_MS);
}

void exchange_none_comes(struct exchange_wait *w)
{
	for (size_t i = 0; i < w->s->job->ranks.n; i++)
		if (w->of.is_in_init(w->of.ctx, i))
			mpi_ends_stuck(w->s, i);
}
