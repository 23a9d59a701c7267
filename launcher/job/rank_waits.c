#include "launcher/job/rank_waits.h"

#include <stdlib.h>

enum { LIST_BYTES = 100 }; /* of a list of ranks on a line */

void rank_op_free(struct rank_op *op)
{
	if (!op)
		return;
	free(op->text);
	free(op->set);
	free(op->seq);
	free(op->runs);
	free(op);
}

/* Bit of the number of a process set: its asynchronous operations, which have sequence
 * numbers of their own (lib/boot/boot.def). */
#define ASYNCHRONOUS 0x80000000u

enum { WAITS_FOR_WORLD = 2 }; /* what rank_op says that runs */

/* RANK belongs to SET, and has begun operations up to *SEQ there (0: none). */
static bool find_seq(const struct rank_waits *waits, uint32_t rank, uint32_t set,
		     uint32_t *seq)
{
	const struct rank_op *op = waits->op[rank];

	*seq = 0;
	for (size_t i = 0; op && i < op->n; i++)
		if (op->set[i] == set) {
			*seq = op->seq[i];
			return true;
		}
	return set == WIRE_INIT_ROUNDS || !(set & ~ASYNCHRONOUS); /* of all ranks */
}

void rank_waits_print(struct str *out, const struct rank_set *set)
{
	const size_t begin = out->len;

	str_add(out, rank_set_count(set) > 1 ? "ranks " : "rank ");
	rank_set_print(out, set);
	if (out->len - begin <= LIST_BYTES)
		return;
	while (out->s[--out->len] != ',' || out->len - begin > LIST_BYTES)
		;
	str_addf(out, ",... (%zu ranks)", rank_set_count(set));
}

/* ---- one search for all ranks in an operation ---- */

bool rank_waits_alike(const struct rank_op *a, const struct rank_op *b)
{
	const size_t bytes = a && b ? a->n * sizeof *a->set : 0;

	return a && b && a->n == b->n && !memcmp(a->set, b->set, bytes) &&
	       !memcmp(a->seq, b->seq, bytes) && !memcmp(a->runs, b->runs, bytes);
}

static void wait_free(struct rank_wait *w)
{
	rank_set_free(&w->missing);
	free(w->text);
	*w = (struct rank_wait){ 0 };
}

const struct rank_wait *rank_waits_get(struct rank_waits *waits, uint32_t rank)
{
	const struct rank_op *op = waits->op[rank];
	const uint32_t np = waits->epoch->plan->np;
	struct rank_wait *w = waits->v;
	struct str text = { 0 };
	bool in_init = false;
	uint32_t seq;

	for (; w < waits->v + waits->n && w < waits->v + RANK_WAITS_MOST; w++)
		if (rank_waits_alike(w->op, op))
			return w;
	w = &waits->v[waits->n++ % RANK_WAITS_MOST];
	wait_free(w);
	w->op = op;
	for (size_t i = 0; op && i < op->n; i++) {
		in_init |= op->set[i] == WIRE_INIT_ROUNDS && op->runs[i];
		for (uint32_t k = 0; op->runs[i] && k < np; k++) {
			/* a rank that waits for the next world does not wait for one
			 * that has ended */
			const bool out = op->runs[i] == WAITS_FOR_WORLD &&
					 epoch_has_ended(waits->epoch, k);

			if (k != rank && !out && find_seq(waits, k, op->set[i], &seq) &&
			    (int32_t)(seq - op->seq[i]) < 0)
				rank_set_add(&w->missing, k);
		}
	}
	if (rank_set_count(&w->missing)) {
		str_add(&text, "; waits for ");
		rank_waits_print(&text, &w->missing);
	}
	w->text = str_take(&text);
	for (uint32_t k = 0; k < np && w->nanswer < RANK_WAIT_ANSWER; k++)
		if (rank_set_has(&w->missing, k)) {
			/* It may have been in the operation before it left. */
			const bool left = epoch_has_ended(waits->epoch, k) ||
					  (waits->op[k] && !*waits->op[k]->text);

			if (in_init || !left)
				w->answer[w->nanswer++] = k;
		}
	return w;
}

void rank_waits_free(struct rank_waits *waits)
{
	for (size_t i = 0; i < RANK_WAITS_MOST; i++)
		wait_free(&waits->v[i]);
}

bool rank_op_is_asynchronous(const struct rank_op *op)
{
	for (size_t i = 0; op && i < op->n; i++)
		if (op->runs[i] && op->set[i] != WIRE_INIT_ROUNDS &&
		    op->set[i] & ASYNCHRONOUS)
			return true;
	return false;
}
