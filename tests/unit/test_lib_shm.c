/* lib/shm: every kind of operation, by every way through the memory, against a plain
 * reference; the same bits on all ranks; what goes wrong. */
#include "ranks.h"

#include <time.h>

#include "lib/shm.h"

static struct shm *join_with(struct ranks *r, bool heap, bool far)
{
	struct shm_config c = { .n = r->n,
				.me = r->me,
				.region = r->region,
				.cores = 2,
				.heap = heap ? r->heap : NULL,
				.heap_bytes = r->heap_bytes,
				.cache_bytes = 1 << 20,
				.far = far };
	struct shm *s = shm_join(&c);

	RANKS_ASSERT(r, s, "shm_join");
	return s;
}

/* ---- reductions ---- */

/* The reference: all ranks' arrays, in their order, by the same arithmetic. */
static void *expected(const struct ranks *r, const struct coll *c, unsigned op)
{
	size_t size = kern_size(c->type);
	unsigned char *all = malloc((r->n + 1) * (c->count * size + 64));
	const void *src[64];

	for (unsigned k = 0; k < r->n; k++) {
		src[k] = all + (k + 1) * (c->count * size + 64) / 64 * 64;
		ranks_fill((void *)src[k], c->type, c->count, k, op);
	}
	kern_reduce_of(c->type, c->op)(&(void *){ all }, 1, src, r->n, c->count, false);
	return all;
}

static void reduction(struct ranks *r, struct shm *s, struct coll *c, void *in,
		      void *out, unsigned op)
{
	size_t bytes = c->count * kern_size(c->type);
	unsigned char *want = expected(r, c, op);
	berth_result rc;

	c->in = in;
	c->out = out;
	c->signature = op;
	ranks_fill(in, c->type, c->count, r->me, op);
	rc = shm_run(s, c, 0);
	RANKS_ASSERT(r, !rc, "operation %u: %d", op, rc);
	if (c->kind == BERTH_ALLREDUCE || c->root == r->me)
		RANKS_ASSERT(r, !memcmp(out, want, bytes),
			     "kind %d %s %s, %zu elements, %s: wrong", c->kind,
			     kern_type_name(c->type), kern_op_name(c->op),
			     (size_t)c->count, in == out ? "in place" : "apart");
	free(want);
}

static void all_reductions(struct ranks *r)
{
	static const uint64_t counts[] = { 0,    1,    3,    12,    13,    500,
					   1023, 1025, 5003, 65536, 200003 };
	struct shm *s = join_with(r, false, r->n == 3);
	unsigned char *a = malloc(200003 * 8 + 64), *b = malloc(200003 * 8 + 64);
	unsigned op = 1;

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (berth_type t = 0; t < BERTH_TYPES; t++)
			for (berth_op o = 0; o <= BERTH_BXOR; o++) {
				struct coll c = { .kind = op % 5 ? BERTH_ALLREDUCE
								 : BERTH_REDUCE,
						  .count = counts[i],
						  .type = t,
						  .op = o,
						  .root = op % r->n };

				if (!kern_reduce_of(t, o) ||
				    (counts[i] > 6000 && (op + o) % 3 == 0))
					continue;
				reduction(r, s, &c, a + op % 4 * kern_size(t),
					  op % 3 ? b : a + op % 4 * kern_size(t), op);
				op++;
			}
	shm_leave(s);
}

START_TEST(reductions)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, all_reductions, 100);
}
END_TEST

/* Arrays in memory that all reach. */
static void in_heap(struct ranks *r)
{
	static const uint64_t counts[] = { 1025, 40000, 300007 };
	struct shm *s = join_with(r, true, false);
	unsigned char *mine = (unsigned char *)r->heap + r->me * (r->heap_bytes / r->n);
	unsigned op = 1;

	for (int turn = 0; turn < 4; turn++)
		for (size_t i = 0; i < 3; i++) {
			struct coll c = { .kind = BERTH_ALLREDUCE,
					  .count = counts[i],
					  .type = BERTH_F32,
					  .op = BERTH_SUM };

			/* one rank that has not: through the window */
			if (turn == 3 && r->me == r->n - 1)
				reduction(r, s, &c, mine, malloc(counts[i] * 4), op);
			else
				reduction(r, s, &c, mine,
					  turn % 2 ? mine : mine + (2 << 20), op);
			op++;
		}
	shm_leave(s);
}

START_TEST(heap)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), (size_t)_i << 22, in_heap, 60);
}
END_TEST

/* ---- data that move ---- */

enum { EACH = 90001 };

static uint32_t word(unsigned from, unsigned to, uint64_t i, unsigned op)
{
	return (uint32_t)(i * 31 + from * 1000003 + to * 7919 + op * 104729);
}

static void gather(struct ranks *r, struct shm *s, uint64_t count, bool uneven,
		   unsigned op)
{
	uint64_t counts[64], at = 0, all = 0;
	uint32_t *in, *out;
	struct coll c = { .kind = BERTH_ALLGATHER, .type = BERTH_U32, .signature = op };

	for (unsigned k = 0; k < r->n; k++) {
		counts[k] = uneven ? count * k / 2 : count;
		at += k < r->me ? counts[k] : 0;
		all += counts[k];
	}
	in = malloc(counts[r->me] * 4 + 4);
	out = malloc(all * 4 + 4);
	for (uint64_t i = 0; i < counts[r->me]; i++)
		in[i] = word(r->me, 0, i, op);
	c.count = counts[r->me];
	c.out_counts = uneven ? counts : NULL;
	c.out = out;
	c.in = in;
	if (op % 2) { /* in place: it lies where it goes to */
		memcpy(out + at, in, c.count * 4);
		c.in = out + at;
	}
	RANKS_ASSERT(r, !shm_run(s, &c, 0), "allgather");
	at = 0;
	for (unsigned k = 0; k < r->n; k++)
		for (uint64_t i = 0; i < counts[k]; i++)
			RANKS_ASSERT(r, out[at++] == word(k, 0, i, op),
				     "allgather of %zu: from %u [%zu]", (size_t)count,
				     k, (size_t)i);
	free(in);
	free(out);
}

static void broadcast(struct ranks *r, struct shm *s, uint64_t count, unsigned op)
{
	struct coll c = { .kind = BERTH_BROADCAST,
			  .type = BERTH_U32,
			  .signature = op,
			  .count = count,
			  .root = op % r->n };
	uint32_t *buf = calloc(count + 1, 4);

	for (uint64_t i = 0; r->me == c.root && i < count; i++)
		buf[i] = word(c.root, 0, i, op);
	c.in = c.out = buf;
	RANKS_ASSERT(r, !shm_run(s, &c, 0), "broadcast");
	for (uint64_t i = 0; i < count; i++)
		RANKS_ASSERT(r, buf[i] == word(c.root, 0, i, op),
			     "broadcast of %zu: [%zu]", (size_t)count, (size_t)i);
	RANKS_ASSERT(r, !buf[count], "broadcast wrote too much");
	free(buf);
}

static void exchange(struct ranks *r, struct shm *s, uint64_t count, bool uneven,
		     unsigned op)
{
	uint64_t give[64], get[64], at = 0, all = 0, in_all = 0;
	struct coll c = { .kind = BERTH_ALLTOALL, .type = BERTH_U32, .signature = op };
	uint32_t *in, *out;

	for (unsigned k = 0; k < r->n; k++) {
		give[k] = uneven ? count * ((r->me + 2 * k) % 3) : count;
		get[k] = uneven ? count * ((k + 2 * r->me) % 3) : count;
		in_all += give[k];
		all += get[k];
	}
	in = malloc(in_all * 4 + 4);
	out = op % 2 && !uneven ? in : malloc(all * 4 + 4);
	for (unsigned k = 0; k < r->n; k++)
		for (uint64_t i = 0; i < give[k]; i++)
			in[at++] = word(r->me, k, i, op);
	c.count = in_all;
	c.in = in;
	c.out = out;
	c.in_counts = uneven ? give : NULL;
	c.out_counts = uneven ? get : NULL;
	RANKS_ASSERT(r, !shm_run(s, &c, 0), "alltoall");
	at = 0;
	for (unsigned k = 0; k < r->n; k++)
		for (uint64_t i = 0; i < get[k]; i++)
			RANKS_ASSERT(r, out[at++] == word(k, r->me, i, op),
				     "alltoall of %zu: from %u [%zu]", (size_t)count, k,
				     (size_t)i);
	if (out != in)
		free(out);
	free(in);
}

static void scatter(struct ranks *r, struct shm *s, uint64_t count, bool uneven,
		    unsigned op)
{
	uint64_t counts[64], at = 0, all = 0;
	struct coll c = { .kind = BERTH_REDUCESCATTER,
			  .type = BERTH_I32,
			  .op = BERTH_SUM,
			  .signature = op };
	uint32_t *in, *out;

	for (unsigned k = 0; k < r->n; k++) {
		counts[k] = uneven ? count * k : count / r->n + (k < count % r->n);
		at += k < r->me ? counts[k] : 0;
		all += counts[k];
	}
	in = malloc(all * 4 + 4);
	out = malloc(counts[r->me] * 4 + 4);
	for (uint64_t i = 0; i < all; i++)
		in[i] = word(r->me, 0, i, op);
	c.count = all;
	c.in_counts = uneven ? counts : NULL;
	c.in = in;
	c.out = out;
	RANKS_ASSERT(r, !shm_run(s, &c, 0), "reducescatter");
	for (uint64_t i = 0; i < counts[r->me]; i++) {
		uint32_t sum = 0;

		for (unsigned k = 0; k < r->n; k++)
			sum += word(k, 0, at + i, op);
		RANKS_ASSERT(r, out[i] == sum, "reducescatter of %zu: [%zu]",
			     (size_t)count, (size_t)i);
	}
	free(in);
	free(out);
}

static void all_moves(struct ranks *r)
{
	static const uint64_t counts[] = { 0, 1, 17, 1000, EACH };
	struct shm *s = join_with(r, false, false);
	unsigned op = 1;

	for (int turn = 0; turn < 4; turn++)
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
			gather(r, s, counts[i], turn & 1, op++);
			broadcast(r, s, counts[i], op++);
			exchange(r, s, counts[i] / (turn & 1 ? 3 : 1), turn & 1, op++);
			scatter(r, s, counts[i], turn & 1, op++);
			RANKS_ASSERT(r,
				     !shm_run(s,
					      &(struct coll){ .kind = BERTH_BARRIER,
							      .signature = op },
					      0),
				     "barrier");
			op++;
		}
	shm_leave(s);
}

START_TEST(moves)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, all_moves, 100);
}
END_TEST

/* ---- what goes wrong ---- */

static void differ(struct ranks *r)
{
	struct shm *s = join_with(r, false, false);
	unsigned which[8];
	const char *said[8];
	char text[32];
	float x[2000] = { 0 };
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .type = BERTH_F32,
			  .count = r->me == 1 ? 2000 : 2,
			  .in = x,
			  .out = x,
			  .signature = r->me == 1 ? 7 : 9 };

	for (int turn = 0; turn < 3; turn++) {
		RANKS_ASSERT(r, shm_run(s, &c, 0) == BERTH_MISMATCH, "no mismatch");
		RANKS_ASSERT(r, shm_others(s, which, 8) == (r->me == 1 ? r->n - 1 : 1),
			     "others");
		RANKS_ASSERT(r, r->me == 1 || which[0] == 1, "who: %u", which[0]);
		snprintf(text, sizeof text, "I am %u", r->me);
		RANKS_ASSERT(r, !shm_explain(s, text, said), "explain");
		for (unsigned k = 0; k < r->n; k++) {
			snprintf(text, sizeof text, "I am %u", k);
			RANKS_ASSERT(r, !strcmp(said[k], text), "said: %s", said[k]);
		}
		/* and it goes on */
		RANKS_ASSERT(r,
			     !shm_run(s,
				      &(struct coll){ .kind = BERTH_ALLREDUCE,
						      .type = BERTH_F32,
						      .count = 2000,
						      .in = x,
						      .out = x,
						      .signature = 3 },
				      0),
			     "after it");
	}
	shm_leave(s);
}

START_TEST(mismatch)
{
	ranks_run(4, shm_bytes(4), 0, differ, 20);
}
END_TEST

static void one_is_late(struct ranks *r)
{
	struct shm *s = join_with(r, false, false);
	struct timespec now;
	unsigned which[8];
	struct coll c = { .kind = BERTH_BARRIER, .signature = 5 };
	berth_result rc;

	if (r->me == 2)
		_exit(0);
	clock_gettime(CLOCK_MONOTONIC, &now);
	rc = shm_run(s, &c,
		     r->me == 0 ? (uint64_t)now.tv_sec * 1000000000 +
					  (uint64_t)now.tv_nsec + 200000000
				: 0);
	RANKS_ASSERT(r, rc == BERTH_TIMEOUT, "%d", rc);
	RANKS_ASSERT(r, r->me || (shm_others(s, which, 8) == 1 && which[0] == 2),
		     "who");
	RANKS_ASSERT(r, shm_run(s, &c, 0) == BERTH_TIMEOUT, "it is broken for good");
	shm_leave(s);
}

START_TEST(timeout)
{
	ranks_run(4, shm_bytes(4), 0, one_is_late, 20);
}
END_TEST

static void broken(struct ranks *r)
{
	struct shm *s = join_with(r, false, false);
	struct coll c = { .kind = BERTH_BARRIER, .signature = 5 };

	if (r->me == 1) {
		usleep(100000); /* the others sleep by now */
		shm_break(s, BERTH_PEER_LOST);
		_exit(0);
	}
	RANKS_ASSERT(r, shm_run(s, &c, 0) == BERTH_PEER_LOST, "not broken");
	shm_leave(s);
}

START_TEST(lost)
{
	ranks_run(3, shm_bytes(3), 0, broken, 20);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm");
	TCase *t = tcase_create("shm");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, reductions, 1, 6);
	tcase_add_loop_test(t, heap, 2, 5);
	tcase_add_loop_test(t, moves, 1, 9);
	tcase_add_test(t, mismatch);
	tcase_add_test(t, timeout);
	tcase_add_test(t, lost);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
