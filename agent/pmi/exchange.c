#include "agent/pmi/exchange.h"

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

void exchange_wait_look(struct exchange_wait *w)
{
	const wire_u32v *ranks = &w->s->job->ranks;
	struct wire_absent m = { .epoch = w->s->job->epoch, .use = w->use };
	bool absent = false;

	for (size_t i = 0; i < ranks->n; i++) {
		if (!absent && w->never_came(w->ctx, i)) {
			absent = true;
			m.rank = ranks->v[i];
		}
		m.waiting += w->is_in_init(w->ctx, i);
	}
	if (!absent || m.waiting == w->waiting)
		return;
	w->waiting = m.waiting;
	wire_pack_absent(w->s->out, &m);
}

void exchange_none_comes(struct exchange_wait *w)
{
	for (size_t i = 0; i < w->s->job->ranks.n; i++)
		if (w->is_in_init(w->ctx, i))
			mpi_ends_stuck(w->s, i);
}
