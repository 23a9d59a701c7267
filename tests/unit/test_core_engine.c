/* lib/core/engine: rounds in which other ranks tell what cannot be.  The back end is
 * the test's: what the others tell is what this rank told, changed in a few places. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/core/engine.h"
#include "lib/core/progress.h"
#include "lib/core/queue.h"
#include "lib/core/request.h"
#include "lib/core/round.h"
#include "lib/core/run.h"
#include "lib/core/world.h"

enum { RANKS = 3, ME = 1, TURNS = 25000, STEPS = 6, UNITS = 4 };

static uint64_t draw(uint64_t below)
{
	static uint64_t x = 88172645463325252u; /* xorshift64 */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % below;
}

static uint64_t any_number(void)
{
	const uint64_t numbers[] = {
		0, 1, 2, 8, 9, 16384, 16385, UINT64_MAX, 1u << 31
	};

	return draw(4) ? numbers[draw(9)] : draw(UINT64_MAX);
}

static unsigned ended;
static size_t changes;
static bool honest; /* the others tell what this rank told */

/* One member of a head, or an entry: another unit's, or anything. */
static void change(struct head *h, uint64_t most)
{
	uint64_t *words = (uint64_t *)h;
	struct entry *entry = round_entries(h);

	changes++;
	switch (draw(most ? 4 : 2)) {
	case 0:
		words[draw(sizeof *h / 8)] = any_number();
		break;
	case 1:
		h->joined = (uint32_t)draw(2);
		h->waits = (uint32_t)draw(2);
		break;
	case 2:
		entry[draw(most)] = entry[draw(most)];
		h->n = draw(most + 2);
		break;
	default:
		entry[draw(most)].signature ^= 1;
	}
}

static void tell(const struct coll *c)
{
	const size_t bytes = c->count * 8;
	const uint64_t most = (bytes - sizeof(struct head)) / sizeof(struct entry);

	for (unsigned r = 0; r < RANKS; r++) {
		struct head *h = (struct head *)((char *)c->out + r * bytes);

		if (r != ME)
			memcpy(h, c->in, bytes);
		for (uint64_t n = r == ME || honest ? 0 : draw(3); n; n--)
			change(h, most);
	}
}

static berth_result run(void *group, const struct coll *c, uint64_t deadline_ns)
{
	(void)group;
	(void)deadline_ns;
	if (c->kind == BERTH_ALLGATHER && c->count * 8 == sizeof(struct joiner))
		memset(c->out, (int)draw(256), RANKS * sizeof(struct joiner));
	else if (c->kind == BERTH_ALLGATHER)
		tell(c);
	return honest || draw(16) ? BERTH_OK : BERTH_MISMATCH;
}

static berth_result explain(void *group, const char *text, const char **said)
{
	static const char *const texts[] = { RUN_JOINED, "1", "2", "1x", "", "\n" };
	static char own[BACKEND_TEXT_BYTES];

	(void)group;
	snprintf(own, sizeof own, "%s", text);
	for (unsigned r = 0; r < RANKS; r++)
		said[r] = r == ME || draw(2) ? own : texts[draw(6)];
	return BERTH_OK;
}

static size_t others(const void *group, unsigned *which, size_t most)
{
	(void)group;
	(void)which;
	(void)most;
	return 0;
}

static void end(void *group, berth_result result, unsigned lost)
{
	(void)group;
	ck_assert_int_eq(result, BERTH_PEER_LOST);
	ck_assert_uint_lt(lost, RANKS);
	ended++;
}

static const struct backend liars = { .name = "liars",
				      .begin = run,
				      .others = others,
				      .explain = explain,
				      .revoke = end };

static struct world world;
static unsigned local[RANKS] = { 0, 1, WORLD_NOT_HERE };
static const char *said[RANKS];

/* Its thread is not started.  Rank 0 is of this host, rank 2 is not. */
static struct berth_set *make(void)
{
	static const unsigned rank[RANKS] = { 0, 1, 2 }, host[RANKS] = { 0, 0, 1 };
	struct boot_record *records = calloc(2 * BOOT_RECORDS, sizeof *records);
	static struct berth_set set;
	struct berth_set *s = &set;

	ck_assert(!members_make(&s->members, rank, RANKS, host, ME));
	world.local = local;
	world.memory.local_rank = ME;
	world.memory.rank = calloc(2, sizeof *world.memory.rank);
	world.memory.records = records + BOOT_RECORDS;
	world.params.stall_off = true;
	world.params.fusion_bytes = 1 << 20;
	s->users = 1;
	s->world = &world;
	s->comm = (struct comm){ .world = &world,
				 .members = &s->members,
				 .back = &liars,
				 .said = said,
				 .hooks = &request_works };
	engine_open(s);
	ck_assert(queue_make_lists(s));
	s->turn.served = 1; /* by no thread */
	return s;
}

static struct berth_request *submit(struct berth_set *s, unsigned unit)
{
	static const char *const name[UNITS] = { "a", "b", "c", NULL };
	static float room[UNITS][4];
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					 .name = name[unit], .in = room[unit],
					 .out = room[unit], .count = 4);
	struct berth_request *r;
	struct failure why;
	struct op op;

	ck_assert(!op_make(&op, &d, RANKS, ME));
	ck_assert_int_eq(engine_enter_new(s, &op, 1, &r, &why), BERTH_OK);
	return r;
}

/* R is done; as if its owner had waited for it. */
static void let_go(struct berth_set *s, struct berth_request *r)
{
	ck_assert(request_is_done(r));
	free(r->why);
	free(r);
	atomic_store(&s->users, 1);
}

/* Some units, and as many steps as there are; what remains ends. */
static void turn(struct berth_set *s)
{
	struct berth_request *r[UNITS] = { NULL };
	const struct failure why = { .rc = BERTH_ABORTED };
	uint64_t ns;

	s->schedule.joined = !draw(8);
	atomic_store(&world.memory.rank[0].number, any_number());
	for (unsigned i = 0; i < UNITS; i++)
		r[i] = draw(4) ? submit(s, i) : NULL;
	for (unsigned k = 0; k < STEPS; k++) {
		s->called |= !draw(2);
		progress_step(s, &ns);
	}
	queue_complete_all(s, BERTH_ABORTED, &why);
	for (unsigned i = 0; i < UNITS; i++)
		if (r[i])
			let_go(s, r[i]);
	atomic_store(&s->comm.broken, BERTH_OK);
	s->comm.refused = false;
	s->comm.ngone = s->comm.nlate = 0;
}

START_TEST(lies)
{
	struct berth_set *s = make();

	for (unsigned i = 0; i < TURNS; i++) {
		turn(s);
		if (i % 50 == 0)
			plan_free(&s->plan);
		queue_look_again(s);
	}
	ck_assert_uint_gt(changes, 100000);
	ck_assert_uint_gt(ended, TURNS / 10);
	ck_assert_uint_le(s->lists_bytes, RANKS * round_list_bytes(SET_PENDING_MOST));
}
END_TEST

/* A submission that is refused rings no bell: the thread still dozes for the others. */
START_TEST(refused)
{
	const struct failure aborted = { .rc = BERTH_ABORTED };
	struct berth_set *s = make();
	struct berth_request *r = submit(s, 0), *none = NULL;
	float room[4] = { 0 };
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .name = "a",
			   .in = room, .out = room, .count = 4);
	struct failure why;
	struct op op;

	ck_assert(!op_make(&op, &d, RANKS, ME));
	atomic_store(&s->dozes, true);
	atomic_store(&s->turn.rung, false);
	ck_assert_int_eq(engine_enter_new(s, &op, 1, &none, &why), BERTH_INVALID);
	ck_assert_ptr_null(none);
	ck_assert(s->dozes);
	ck_assert(!s->turn.rung);
	ck_assert_uint_eq(s->schedule.pending, 1);
	ck_assert_uint_eq(s->collectives, 1);
	queue_complete_all(s, BERTH_ABORTED, &aborted);
	let_go(s, r);
}
END_TEST

/* The plan's next bucket is complete, and the set ends in front of the next step, which
 * takes nothing then. */
START_TEST(ends_before_its_bucket)
{
	const struct failure why = { .rc = BERTH_ABORTED };
	struct berth_set *s = make();
	struct berth_request *r = submit(s, 0);
	uint64_t ns;

	honest = true;
	for (unsigned i = 0; i < 8; i++, r = submit(s, 0)) {
		while (!request_is_done(r))
			ck_assert_int_eq(progress_step(s, &ns), PROGRESS_DID);
		let_go(s, r);
	}
	ck_assert(queue_bucket_is_here(s));
	queue_complete_all(s, BERTH_ABORTED, &why);
	ck_assert(!queue_bucket_is_here(s));
	ck_assert_int_eq(progress_step(s, &ns), PROGRESS_IDLE);
	let_go(s, r);
}
END_TEST

START_TEST(heads)
{
	const struct head sound = { .n = 2, .pending = 3 };
	struct head h = sound;

	ck_assert(round_head_is_sound(&h, 2));
	ck_assert(!round_head_is_sound(&h, 1));
	h.pending = 1;
	ck_assert(!round_head_is_sound(&h, 8));
	h = (struct head){ .pending = SET_PENDING_MOST + 1 };
	ck_assert(!round_head_is_sound(&h, 8));
}
END_TEST

/* What ranks say of an operation in which they differ, they differ in memories alone if
 * one of them has another memory.  Where none has, a rank lied before. */
START_TEST(memories_alone)
{
	struct berth_set *s = make();
	char text[3][OP_CODE_BYTES];
	static float room[4];
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					 .in = room, .out = room);
	enum { HERE, THERE, LESS };
	struct op op;

	for (int i = HERE; i <= LESS; i++) {
		d.memory = i == HERE ? BERTH_HOST : BERTH_CUDA;
		d.count = i == LESS ? 3 : 4;
		ck_assert_ptr_null(op_make(&op, &d, RANKS, ME));
		op_encode(text[i], &op);
	}
	for (unsigned r = 0; r < RANKS; r++)
		said[r] = text[HERE];
	ck_assert(!run_are_alike(&s->comm, said));
	for (unsigned r = 0; r < RANKS; r++) {
		said[r] = text[THERE];
		ck_assert_int_eq(run_are_alike(&s->comm, said), r < RANKS - 1);
	}
	for (unsigned r = 0; r < RANKS; r++) {
		said[r] = text[LESS];
		ck_assert(!run_are_alike(&s->comm, said));
		said[r] = text[HERE];
		ck_assert_int_eq(run_are_alike(&s->comm, said), r < RANKS - 1);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine");
	TCase *t = tcase_create("engine");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, heads);
	tcase_add_test(t, lies);
	tcase_add_test(t, refused);
	tcase_add_test(t, ends_before_its_bucket);
	tcase_add_test(t, memories_alone);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
