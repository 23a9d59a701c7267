#include "lib/backend/tcp_internal.h"
#include "lib/base/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
	PROBE = 0x50524f42, /* signature */
	ROUNDS = 6,
	BULK_BYTES = 128 << 10, /* 10 ms at 100 Mbit/s */
	/* The first one widens the window.  A single one after it is not enough.  It
	 * took up to 2.5 times as long as most, and 32 KiB went a slower way (4 ranks
	 * on 2 cores).  The least time is not a measure of what all ranks take at the
	 * same time (16 ranks). */
	BULKS = 6,
	NEIGHBOURS = 4,
	SMALL_BYTES = 64,
	FAR_US = 500
};

static double now_us(void)
{
	return (double)clock_ns() / 1e3;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Times agreements, with a message each way in each step. */
static berth_result probe_latency(struct tcp_op *w, double *us)
{
	unsigned steps = 0;
	berth_result rc = BERTH_OK;

	for (unsigned p = tcp_power(w->t->n); p > 1; p /= 2)
		steps++;
	steps += tcp_power(w->t->n) == w->t->n ? 0 : 2;
	w->agrees = true;
	for (int i = 0; !rc && i < ROUNDS; i++) {
		double begun = now_us(), step_us;

		w->t->step = 0;
		w->t->seq++;
		rc = tcp_round(w, TUNE_ALGORITHMS);
		step_us = (now_us() - begun) / steps;
		if (i && (*us == 0 || step_us < *us)) /* the first one connects */
			*us = step_us;
	}
	w->agrees = false;
	return rc;
}

/* All pairs exchange at the same time. */
static berth_result probe_bulk(struct tcp_op *w, char *room, double *us)
{
	unsigned peer = w->t->me ^ 1;
	double took[BULKS] = { 0 };
	berth_result rc = BERTH_OK;

	w->t->step = 0;
	w->t->seq++;
	for (int i = 0; !rc && peer < tcp_power(w->t->n) && i < BULKS; i++) {
		double begun = now_us();

		rc = tcp_sendrecv(w, peer, room, BULK_BYTES, peer, room + BULK_BYTES,
				  BULK_BYTES);
		took[i] = now_us() - begun;
	}
	qsort(took + 1, BULKS - 1, sizeof *took, by_size);
	*us = took[BULKS / 2];
	return rc;
}

/* Measures the time that each message adds.  Each place exchanges with those that
 * halving pairs it with, all at the same time.  Without this, 512 KiB went the direct
 * way, which takes 1.3 times as long.  (16 hosts on 2 cores: 110 us a message, and 3
 * with a core each.) */
static berth_result probe_messages(struct tcp_op *w, char *room, double latency_us,
				   double *us)
{
	struct tcp *t = w->t;
	struct tcp_transfer out[NEIGHBOURS], in[NEIGHBOURS];
	const unsigned p = tcp_power(t->n);
	double took[BULKS] = { 0 };
	unsigned n = 0;
	berth_result rc = BERTH_OK;

	w->t->step = 0;
	w->t->seq++;
	for (; t->me < p && n < NEIGHBOURS && 1u << n < p; n++) {
		out[n] = (struct tcp_transfer){ .place = t->me ^ 1u << n,
						.data = room,
						.bytes = SMALL_BYTES };
		in[n] = (struct tcp_transfer){ .place = t->me ^ 1u << n,
					       .dst = room + BULK_BYTES +
						      n * SMALL_BYTES,
					       .bytes = SMALL_BYTES };
	}
	for (int i = 0; !rc && n && i < BULKS; i++) {
		double begun = now_us();

		rc = tcp_exchange_all(w, out, in, n);
		took[i] = now_us() - begun;
	}
	qsort(took + 1, BULKS - 1, sizeof *took, by_size);
	if (took[BULKS / 2] > latency_us)
		*us = (took[BULKS / 2] - latency_us) / n;
	return rc;
}

/* Each number becomes the worst of all ranks, the same on all.  It becomes 0 if it is
 * not a number of 0 or more. */
static berth_result probe_share(struct tcp *t, double *numbers, uint64_t n,
				uint64_t deadline_ns)
{
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .type = BERTH_F64,
			  .op = BERTH_MAX,
			  .count = n,
			  .in = numbers,
			  .out = numbers,
			  .signature = PROBE };
	struct tcp_op w = tcp_op(t, &c, deadline_ns);
	berth_result rc;

	t->seq++;
	t->step = 0;
	rc = tcp_round(&w, TUNE_DOUBLE);
	for (uint64_t i = 0; i < n; i++)
		if (!(numbers[i] >= 0))
			numbers[i] = 0;
	return rc;
}

/* At least half of US counts for the data.  With many ranks on few cores, LATENCY_US is
 * the time of all ranks, but US is that of a pair. */
static double per_byte(double us, double latency_us)
{
	return (us > 2 * latency_us ? us - latency_us : us / 2) / BULK_BYTES;
}

/* Shares the choices of place 0, as numbers: each algorithm plus 1, and each size.  All
 * sizes are below 2^53, or without end. */
static berth_result share_choices(struct tcp_op *w)
{
	struct tune_choices *c = &w->t->numbers.choices;
	double numbers[2 * TUNE_RANGES] = { 0 };
	berth_result rc;

	for (unsigned i = 0; w->t->me == 0 && i < c->n; i++) {
		numbers[2 * i] = c->range[i].algorithm + 1;
		numbers[2 * i + 1] = (double)c->range[i].most;
	}
	rc = probe_share(w->t, numbers, 2 * TUNE_RANGES, w->deadline_ns);
	c->n = 0;
	for (unsigned i = 0; !rc && i < TUNE_RANGES && numbers[2 * i] > 0; i++) {
		if (numbers[2 * i] > TUNE_ALGORITHMS)
			break;
		c->range[i].algorithm = (enum tune_algorithm)(numbers[2 * i] - 1);
		c->range[i].most = numbers[2 * i + 1] < 0x1p63
					   ? (uint64_t)numbers[2 * i + 1]
					   : UINT64_MAX;
		c->n = i + 1;
	}
	return rc;
}

/* Tries more connections if a message is long on its way. */
static berth_result probe_measure(struct tcp_op *w, char *room)
{
	struct tune_numbers *n = &w->t->numbers;
	double us[3] = { 0 }, lanes_us = 0;
	berth_result rc = probe_latency(w, &us[0]);

	if (!rc)
		rc = probe_bulk(w, room, &us[1]);
	if (!rc)
		rc = probe_messages(w, room, us[0], &us[2]);
	if (!rc)
		rc = probe_share(w->t, us, 3, w->deadline_ns);
	if (rc)
		return rc;
	n->latency_us = us[0];
	n->message_us = us[2];
	n->us_per_byte = per_byte(us[1], us[0]);
	if (us[0] < FAR_US)
		return BERTH_OK;
	w->lanes = TUNE_LANES;
	rc = probe_bulk(w, room, &lanes_us);
	if (!rc)
		rc = probe_share(w->t, &lanes_us, 1, w->deadline_ns);
	n->lanes_us_per_byte = per_byte(lanes_us, us[0]);
	return rc;
}

berth_result tcp_probe(struct tcp *t, uint64_t deadline_ns)
{
	struct coll c = { .kind = BERTH_BARRIER, .type = BERTH_U8, .signature = PROBE };
	struct tcp_op w = tcp_op(t, &c, deadline_ns);
	char *room = calloc(2, BULK_BYTES);
	berth_result rc;

	if (!room)
		return tcp_fail(t, BERTH_MEMORY, t->rank[t->me]);
	t->signatures = (struct signatures){ PROBE, PROBE, t->me, t->me };
	rc = probe_measure(&w, room);
	if (!rc)
		rc = share_choices(&w);
	free(room);
	return rc;
}
