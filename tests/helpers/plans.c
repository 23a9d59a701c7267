/* plans.c - a rank whose steps are alike, but for some operations:
 *
 *     runner -np 4 build/helpers/plans [SEED] CASE...
 *
 * random: in each step other tensors, in an order of this rank's own.  strangers: how
 * many rounds operations cost that are new, without a name or missing.  priorities: the
 * order in which operations end.  Prints what was wrong and exits with 1, or rank 0
 * prints "CASE: N checks". */
#include <pthread.h>
#include <semaphore.h>

#include "lib/berth.h"
#pragma GCC diagnostic ignored "-Wunused-function" /* of what helpers share */
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"

/* ---- one tensor, of random shape ---- */

enum { TENSORS = 48, COUNT_MOST = 600, RANKS_MOST = 16, SETS = 3 };

struct tensor {
	char name[32];
	bool has_name;
	enum berth_kind kind;
	berth_type type;
	berth_op op;
	uint64_t count;
	double prescale, postscale;
	int priority, set, root;
	unsigned id;
	unsigned char in[COUNT_MOST * 8], out[COUNT_MOST * 8 * RANKS_MOST];
	berth_request *request;
};

static berth_set *sets[SETS];

/* The random decisions on which all ranks agree. */
static unsigned choice(unsigned a, unsigned b, unsigned below)
{
	return (unsigned)(noise((uint64_t)a << 32 | b) % below);
}

/* Those of this rank. */
static unsigned own(unsigned a, unsigned b, unsigned below)
{
	return (unsigned)(noise((uint64_t)(unsigned)(rank + 1) << 48 |
				(uint64_t)a << 24 | b) %
			  below);
}

static void shape(struct tensor *t, unsigned id)
{
	static const berth_type types[] = { BERTH_F32, BERTH_BF16, BERTH_F32,
					    BERTH_F16, BERTH_I32,  BERTH_F64 };
	static const berth_op ops[] = { BERTH_SUM, BERTH_SUM, BERTH_SUM, BERTH_MIN,
					BERTH_MAX };
	static const enum berth_kind kinds[] = { BERTH_ALLGATHER, BERTH_BROADCAST };

	t->id = id;
	t->kind = choice(id, 1, 6) ? BERTH_ALLREDUCE : kinds[choice(id, 2, 2)];
	t->type = types[choice(id, 3, 6)];
	t->op = ops[choice(id, 4, 5)];
	t->count = 1 + choice(id, 5, COUNT_MOST);
	t->prescale = t->kind == BERTH_ALLREDUCE && !choice(id, 6, 5) ? 2 : 1;
	t->postscale = t->kind == BERTH_ALLREDUCE && !choice(id, 7, 5) ? 2 : 1;
	t->priority = (int)choice(id, 8, 4);
	t->set = choice(id, 9, 4) ? 0 : 1 + (int)choice(id, 10, SETS - 1);
	t->root = 0;
	t->has_name = choice(id, 11, 4);
	snprintf(t->name, sizeof t->name, "t%u", id);
}

static void put(void *p, berth_type t, uint64_t i, double x)
{
	float f = (float)x;

	if (t == BERTH_F64)
		((double *)p)[i] = x;
	else if (t == BERTH_F32)
		((float *)p)[i] = f;
	else if (t == BERTH_I32)
		((int32_t *)p)[i] = (int32_t)x;
	else if (t == BERTH_F16)
		((_Float16 *)p)[i] = (_Float16)f;
	else
		((uint16_t *)p)[i] = to_bf16(f);
}

static double get(const void *p, berth_type t, uint64_t i)
{
	if (t == BERTH_F64)
		return ((const double *)p)[i];
	if (t == BERTH_F32)
		return (double)((const float *)p)[i];
	if (t == BERTH_I32)
		return ((const int32_t *)p)[i];
	if (t == BERTH_F16)
		return (double)((const _Float16 *)p)[i];
	return (double)from_bf16(((const uint16_t *)p)[i]);
}

/* Small numbers: each sum is exact in each type. */
static double given(const struct tensor *t, unsigned step, int r, uint64_t i)
{
	return (double)(1 + (i + t->id + step + 3 * (unsigned)r) % 4);
}

static double expected(const struct tensor *t, unsigned step, uint64_t i)
{
	berth_set *set = sets[t->set];
	double x = 0;

	if (t->kind == BERTH_BROADCAST)
		return given(t, step, berth_set_member(set, t->root), i);
	if (t->kind == BERTH_ALLGATHER)
		return given(t, step, berth_set_member(set, (int)(i / t->count)),
			     i % t->count);
	for (int m = 0; m < berth_set_size(set); m++) {
		double y = given(t, step, berth_set_member(set, m), i) * t->prescale;

		if (m == 0)
			x = y;
		else if (t->op == BERTH_SUM)
			x += y;
		else if (t->op == BERTH_MIN ? y < x : y > x)
			x = y;
	}
	return x * t->postscale;
}

static void submit(struct tensor *t, unsigned step)
{
	struct berth_desc d =
		BERTH_DESC(.name = t->has_name ? t->name : NULL, .set = sets[t->set],
			   .in = t->in, .out = t->out, .count = t->count,
			   .type = t->type, .op = t->op, .prescale = &t->prescale,
			   .postscale = &t->postscale, .root = t->root,
			   .priority = t->priority);

	for (uint64_t i = 0; i < t->count; i++)
		put(t->in, t->type, i, given(t, step, rank, i));
	FINE(call_submit(t->kind, &d, 1, &t->request));
}

static void finish(struct tensor *t, unsigned step)
{
	uint64_t n = t->count;

	if (own(step, t->id, 6) == 0)
		while (berth_poll(t->request) == BERTH_BUSY)
			;
	FINE(berth_wait(t->request, own(step, t->id, 5) ? -1 : 30000));
	if (t->kind == BERTH_ALLGATHER)
		n *= (uint64_t)berth_set_size(sets[t->set]);
	for (uint64_t i = 0; i < n; i++)
		CHECK(get(t->out, t->type, i) == expected(t, step, i),
		      "step %u, %s [%u], kind %d type %d op %d: %g, not %g", step,
		      t->name, (unsigned)i, (int)t->kind, (int)t->type, (int)t->op,
		      get(t->out, t->type, i), expected(t, step, i));
}

/* ---- random steps ---- */

/* In an order of this rank's own, but for those without a name. */
static void shuffle(struct tensor **t, unsigned n, unsigned step)
{
	struct tensor *fixed[2 * TENSORS];
	unsigned nfixed = 0, next = 0;

	for (unsigned i = 0; i < n; i++)
		if (!t[i]->has_name)
			fixed[nfixed++] = t[i];
	for (unsigned i = n; i-- > 1;) {
		unsigned k = own(step, i, i + 1);
		struct tensor *x = t[i];

		t[i] = t[k];
		t[k] = x;
	}
	for (unsigned i = 0; i < n; i++)
		if (!t[i]->has_name)
			t[i] = fixed[next++];
}

/* Submit N, in the middle of which this rank may be late, and wait for all. */
static void do_some(struct tensor **t, unsigned n, unsigned step)
{
	unsigned late = own(step, 1000, 8) ? n : own(step, 1001, n + 1);

	if (choice(step, 1002, 3))
		shuffle(t, n, step);
	for (unsigned i = 0; i < n; i++) {
		if (i == late)
			usleep(own(step, 1003, 4000));
		submit(t[i], step);
	}
	if (choice(step, 1004, 2))
		shuffle(t, n, step + 100000);
	for (unsigned i = 0; i < n; i++)
		finish(t[i], step);
}

/* What all ranks do in STEP: some are left out, some are new, some have changed. */
static unsigned choose(struct tensor *pool, struct tensor **t, unsigned step)
{
	unsigned n = 0, phase = step / 20;

	for (unsigned i = 0; i < TENSORS; i++) {
		bool skipped = phase % 3 == 1 ? !choice(step, i, 16)
					      : phase % 3 == 2 && !choice(phase, i, 3);

		shape(&pool[i], i + (choice(phase, 500 + i, 8) ? 0 : 1000 * phase));
		if (!skipped)
			t[n++] = &pool[i];
	}
	for (unsigned i = 0; phase % 2 && i < choice(step, 600, 4); i++) {
		shape(&pool[TENSORS + i], 100000 + step * 4 + i);
		t[n++] = &pool[TENSORS + i];
	}
	return n;
}

static void random_steps(unsigned from, unsigned to)
{
	static struct tensor pool[TENSORS + 4];

	for (unsigned step = from; step < to; step++) {
		struct tensor *t[TENSORS + 4];
		unsigned n = choose(pool, t, step), first = n;

		if (choice(step, 700, 5) == 0) /* wait in the middle */
			first = choice(step, 701, n);
		do_some(t, first, step);
		do_some(t + first, n - first, step);
		if (choice(step, 702, 5) == 0)
			CHECK(sum_in(NULL, 1) == size, "blocking between");
	}
}

/* Each rank does a number of sums of its own, then joins. */
static void join_now(void)
{
	int last;

	for (int i = 0; i < 3 * rank; i++) {
		float x = 1;
		int here = size - 1 - i / 3;
		struct berth_desc d =
			BERTH_DESC(.name = i % 3 == 2 ? NULL : "tail", .in = &x,
				   .out = &x, .count = 1, .type = BERTH_F32);
		berth_request *r;

		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
		FINE(berth_wait(r, -1));
		CHECK(x == (float)here, "%g of %d ranks", (double)x, here);
	}
	FINE(berth_join(NULL, &last));
}

static void random_case(void)
{
	int all[RANKS_MOST];

	for (int r = 0; r < size; r++)
		all[r] = r;
	FINE(berth_set_split(NULL, rank % 2, 0, &sets[1]));
	FINE(berth_set_add(all, (size_t)size, &sets[2]));
	random_steps(0, 120);
	join_now();
	random_steps(120, 200);
}

/* ---- strangers ---- */

enum { GRADIENTS = 64, WARM_UP = 12, STEPS = 100 };

enum strange {
	NOTHING,
	ONE_NEW,     /* in each step another name */
	ONE_UNNAMED, /* in each 3rd step */
	ONE_MISSING, /* in each 4th step, another one */
	ALL_UNNAMED,
	ALTERNATE,  /* types, scales */
	CHANGED,    /* in half of the steps other names */
	ONE_BY_ONE, /* each is waited for */
	LOSSES      /* one name three times in each step */
};

static float gradient[GRADIENTS + 1][1024];

static berth_request *give_gradient(const char *name, unsigned i, unsigned step,
				    bool other)
{
	berth_request *r;
	struct berth_desc d = BERTH_DESC(.name = name, .in = gradient[i],
					 .out = gradient[i], .count = other ? 100 : 200,
					 .type = other ? BERTH_F64 : BERTH_F32,
					 .prescale = i % 4 == 2 ? &two : NULL);

	for (unsigned k = 0; k < d.count; k++)
		put(gradient[i], d.type, k, (double)((i + k + step) % 8));
	FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
	return r;
}

static void take_gradient(berth_request *r, unsigned i, unsigned step, bool other)
{
	berth_type type = other ? BERTH_F64 : BERTH_F32;

	FINE(berth_wait(r, -1));
	for (unsigned k = 0; k < (other ? 100 : 200); k++)
		CHECK(get(gradient[i], type, k) ==
			      (double)(size * (int)((i + k + step) % 8) *
				       (i % 4 == 2 ? 2 : 1)),
		      "step %u gradient %u [%u]: %g", step, i, k,
		      get(gradient[i], type, k));
}

static void more_gradients(enum strange what, unsigned step)
{
	char name[40];
	unsigned n = what == LOSSES ? 3 : 1;

	if (what == ONE_UNNAMED && step % 3)
		return;
	snprintf(name, sizeof name, what == LOSSES ? "loss" : "noname.%u", step);
	for (unsigned i = 0; i < n; i++)
		take_gradient(give_gradient(what == ONE_UNNAMED ? NULL : name,
					    GRADIENTS, step, false),
			      GRADIENTS, step, false);
}

static void one_step(enum strange what, unsigned step)
{
	berth_request *r[GRADIENTS] = { NULL };
	bool lacks = what == ONE_MISSING && step % 4 == 3;
	unsigned missing = lacks ? step % 60 : GRADIENTS;
	char name[40];

	for (unsigned i = 0; i < GRADIENTS; i++) {
		bool other = what == ALTERNATE && i % 2;

		if (i == missing)
			continue;
		snprintf(name, sizeof name, "case%d.%d.%u", (int)what,
			 what == CHANGED && step >= STEPS / 2, i);
		r[i] = give_gradient(what == ALL_UNNAMED ? NULL : name, i, step, other);
		if (what == ONE_BY_ONE)
			take_gradient(r[i], i, step, other);
	}
	for (unsigned i = 0; i < GRADIENTS; i++)
		if (what != ONE_BY_ONE && i != missing)
			take_gradient(r[i], i, step, what == ALTERNATE && i % 2);
	if (what == ONE_NEW || what == ONE_UNNAMED || what == LOSSES)
		more_gradients(what, step);
}

static void look(struct berth_metrics *m)
{
	*m = (struct berth_metrics){ .size = sizeof *m };
	FINE(berth_metrics(m));
}

/* MOST rounds, after the steps in which the plan is learned.  (1 for each stranger; up
 * to 2 where ranks share cores and come late.) */
static void strange_steps(enum strange what, unsigned most, unsigned fused)
{
	struct berth_metrics before, after;

	for (unsigned step = 0; step < WARM_UP; step++)
		one_step(what, step);
	look(&before);
	for (unsigned step = WARM_UP; step < WARM_UP + STEPS; step++)
		one_step(what, step);
	look(&after);
	if (rank == 0)
		printf("case %d: %llu rounds, %llu fused\n", (int)what,
		       (unsigned long long)(after.negotiations - before.negotiations),
		       (unsigned long long)(after.fused - before.fused));
	CHECK(after.negotiations - before.negotiations <= most,
	      "case %d: %llu rounds in %d steps, more than %u", (int)what,
	      (unsigned long long)(after.negotiations - before.negotiations), STEPS,
	      most);
	CHECK(after.fused - before.fused >= fused, "case %d: %llu fused, less than %u",
	      (int)what, (unsigned long long)(after.fused - before.fused), fused);
}

static void strangers(void)
{
	strange_steps(NOTHING, 5, 64 * 95);
	strange_steps(ONE_NEW, 2 * STEPS, 64 * 95);
	strange_steps(ONE_UNNAMED, 3 * STEPS / 3, 64 * 95);
	strange_steps(ONE_MISSING, 3 * STEPS / 4, 50 * 95);
	strange_steps(ALL_UNNAMED, 5, 64 * 95);
	strange_steps(ALTERNATE, 5, 64 * 95);
	strange_steps(CHANGED, 6 * GRADIENTS, 50 * 90);
	strange_steps(ONE_BY_ONE, 5, 0);
	strange_steps(LOSSES, 2 * STEPS, 64 * 95);
}

/* ---- priorities ---- */

enum { RANKED = 12, RANKED_STEPS = 30, LARGE = 1 << 16 };

/* An operation whose callback holds the library's thread: until the gate opens, none of
 * the set begins. */
struct gate {
	pthread_t submitter;
	sem_t begun, opens;
	bool holds; /* valid after BEGUN */
};

static void hold(void *ctx, berth_result rc)
{
	struct gate *g = ctx;

	(void)rc;
	g->holds = !pthread_equal(pthread_self(), g->submitter);
	sem_post(&g->begun);
	if (g->holds)
		sem_wait(&g->opens);
}

/* Until it holds on all ranks: on one where the operation is done before it has its
 * callback, that runs in this thread.  (A large one rarely is.)  Another one then has
 * another name: the same twice in a step would move the beginning of the plan's cycle.
 * BESIDE: a set of all ranks, which is not held. */
static berth_request *shut(struct gate *g, berth_set *beside)
{
	static float x[LARGE];
	static unsigned others;
	char name[16] = "gate";
	const struct berth_desc d = BERTH_DESC(.name = name, .in = x, .out = x,
					       .count = LARGE, .type = BERTH_F32);
	berth_request *r;

	for (;;) {
		g->submitter = pthread_self();
		sem_init(&g->begun, 0, 0);
		sem_init(&g->opens, 0, 0);
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
		FINE(berth_then(r, hold, g));
		sem_wait(&g->begun);
		if (sum_in(beside, g->holds) == size)
			return r;
		sem_post(&g->opens);
		FINE(berth_wait(r, -1));
		snprintf(name, sizeof name, "gate %u", ++others);
	}
}

/* The priorities of what is done, as it is. */
static int done[RANKED], ndone;

static void note_done(void *ctx, berth_result rc)
{
	(void)rc;
	done[ndone++] = *(int *)ctx;
}

/* Behind the gate all ranks submit, each in another order; rank 0, whose order counts
 * among equals, the least important first. */
static void submit_ranked(berth_request **r)
{
	static float x[RANKED][1000];
	static int priority[RANKED];

	ndone = 0;
	for (int k = 0; k < RANKED; k++) {
		const int i = (k + 5 * rank) % RANKED;
		char name[16];
		const struct berth_desc d =
			BERTH_DESC(.name = name, .in = x[i], .out = x[i], .count = 1000,
				   .type = BERTH_F32, .priority = i);

		priority[i] = i;
		snprintf(name, sizeof name, "p%d", i);
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r[i]));
		FINE(berth_then(r[i], note_done, &priority[i]));
	}
}

/* A plan keeps the order of the rounds in which it was learned: one step out of order
 * would be seen in all that follow. */
static void priorities(void)
{
	berth_request *r[RANKED], *first;
	berth_set *beside;
	struct gate g;
	int all[RANKS_MOST];

	berth_shutdown();
	setenv("HOROVOD_FUSION_THRESHOLD", "0", 1);
	FINE(berth_init(NULL));
	for (int i = 0; i < size; i++)
		all[i] = i;
	FINE(berth_set_add(all, (size_t)size, &beside));
	for (int step = 0; size > 1 && step < RANKED_STEPS; step++) {
		first = shut(&g, beside);
		submit_ranked(r);
		sem_post(&g.opens);
		FINE(berth_wait(first, -1));
		for (int i = 0; i < RANKED; i++)
			FINE(berth_wait(r[i], -1));
		for (int i = 0; i < RANKED; i++)
			CHECK(done[i] == RANKED - 1 - i,
			      "step %d: priority %d was done as number %d", step,
			      done[i], i);
	}
	FINE(berth_set_remove(beside));
	berth_shutdown();
	unsetenv("HOROVOD_FUSION_THRESHOLD");
	FINE(berth_init(NULL));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "random", random_case },
		      { "strangers", strangers },
		      { "priorities", priorities } };

	if (berth_init(NULL)) {
		fprintf(stderr, "%s\n", berth_last_error()->text);
		return 3;
	}
	rank = berth_rank();
	size = berth_size();
	for (int i = 1; i < argc; i++) {
		if (strtoul(argv[i], NULL, 10))
			seed = strtoul(argv[i], NULL, 10);
		for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
			if (!strcmp(argv[i], cases[k].name)) {
				cases[k].run();
				if (rank == 0)
					printf("%s: %lu checks\n", argv[i], checks);
			}
	}
	berth_shutdown();
	return 0;
}
