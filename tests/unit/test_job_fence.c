/* launcher/job/fence: ranks of libberth that start again while the others go on. */
#include "launcher/job/fence.h"
#include "tests/unit/job_rig.h"

enum { HOSTS = 2, NP = 4 };

/* What a host has heard, without its exchanges. */
static struct str heard[HOSTS];

static void note(struct conn *c, const struct wire_frame *f)
{
	struct str *s = &heard[c->host];
	struct wire_start start;
	struct wire_world world;

	if (f->type == WIRE_start) {
		ck_assert(!wire_unpack_start(&start, f->payload, f->n, NULL));
		str_addf(s, "start %u life %u%s. ", start.rank, start.life,
			 start.joins ? " joins" : "");
	} else if (f->type == WIRE_world) {
		ck_assert(!wire_unpack_world(&world, f->payload, f->n, NULL));
		str_addf(s, "world %u:", world.number);
		for (size_t i = 0; i < world.ranks.n; i++)
			str_addf(s, " %u", world.ranks.v[i]);
		str_add(s, ". ");
		wire_free_world(&world);
	} else if (f->type == WIRE_wanted) {
		str_add(s, "wanted. ");
	}
}

/* HOST has heard TEXT since the last call. */
static void hears(size_t host, const char *text)
{
	ck_assert_str_eq(heard[host].s ? heard[host].s : "", text);
	str_free(&heard[host]);
}

static void both_hear(const char *text)
{
	hears(0, text);
	hears(1, text);
}

static struct conn *host_of_rank(uint32_t rank)
{
	return g.agent[rank / 2];
}

#define SAY(rank, name, ...)                                                           \
	do {                                                                           \
		struct conn *c_ = host_of_rank(rank);                                  \
		struct wire_##name m_ = { __VA_ARGS__ };                               \
		struct buf b_ = { 0 };                                                 \
		wire_pack_##name(&b_, &m_);                                            \
		c_->events->bytes(c_->ctx, buf_head(&b_), b_.len);                     \
		buf_free(&b_);                                                         \
		turn();                                                                \
	} while (0)

static void is_elastic(uint32_t rank, uint32_t can)
{
	SAY(rank, elastic, g.j.epoch, rank, can);
}

static void changes(uint32_t rank, uint32_t number)
{
	SAY(rank, change, g.j.epoch, rank, number);
}

static void ends(uint32_t rank, uint32_t code)
{
	exits(host_of_rank(rank), rank % 2, code);
	deliver_all();
}

/* Ranks 0 and 1 are on host 0, 2 and 3 on host 1.  All use the library. */
static void run_with(const char *options)
{
	char words[128];

	quiet();
	snprintf(words, sizeof words, "--stdin none -np %d --restarts 9 %s", NP,
		 options);
	rig_open(HOSTS, words);
	job_begin(&g.j);
	turn();
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	g.heard = note;
	for (uint32_t i = 0; i < NP; i += 2)
		SAY(i, host_map_request, g.j.epoch);
	for (uint32_t i = 0; i < NP; i++)
		is_elastic(i, 1);
	both_hear("");
}

static void over(void)
{
	deliver_all();
	for (size_t i = 0; i < HOSTS; i++)
		str_free(&heard[i]);
	rig_close();
}

/* The work is done, and the job with it. */
static void ends_well(void)
{
	for (uint32_t i = 0; i < NP; i++)
		if (g.j.rank[i].state != RANK_ENDED)
			ends(i, 0);
	deliver_all();
	pass(60000);
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_DONE);
	ck_assert_int_eq(job_finish(&g.j), 0);
}

START_TEST(others_go_on_and_come_first)
{
	run_with("");
	ends(1, 9);
	hears(0, "start 1 life 2 joins. ");
	hears(1, "");
	changes(0, 1);
	changes(3, 1);
	both_hear("");
	changes(2, 1);
	both_hear("world 2: 0 2 3. ");
	changes(1, 0);
	both_hear("wanted. ");
	changes(3, 2);
	changes(0, 2);
	changes(2, 2);
	both_hear("world 3: 0 2 3 1. ");
	ends(0, 9);
	hears(0, "start 0 life 2 joins. ");
	changes(0, 0); /* before the others do */
	hears(0, "wanted. ");
	hears(1, "wanted. ");
	changes(1, 3);
	changes(2, 3);
	changes(3, 3);
	both_hear("world 4: 2 3 1 0. ");
	ends_well();
	over();
}
END_TEST

START_TEST(two_newcomers_are_one_change)
{
	run_with("");
	ends(1, 9);
	ends(2, 9);
	hears(0, "start 1 life 2 joins. ");
	hears(1, "start 2 life 2 joins. ");
	changes(0, 1);
	changes(3, 1);
	both_hear("world 2: 0 3. ");
	changes(2, 0);
	changes(1, 0);
	both_hear("wanted. ");
	changes(0, 2);
	changes(3, 2);
	both_hear("world 3: 0 3 1 2. ");
	ends_well();
	over();
}
END_TEST

START_TEST(newcomers_alone_wait_for_each_other)
{
	run_with("");
	for (uint32_t i = 0; i < NP; i++)
		ends(i, 9);
	hears(0, "start 0 life 2 joins. start 1 life 2 joins. ");
	hears(1, "start 2 life 2 joins. start 3 life 2 joins. ");
	for (uint32_t i = NP; i-- > 1;)
		changes(i, 0);
	both_hear("wanted. ");
	changes(0, 0);
	both_hear("world 1: 0 1 2 3. ");
	ends_well();
	over();
}
END_TEST

/* The agent says that it waits no more, and then that it has ended. */
START_TEST(a_newcomer_may_die_while_it_waits)
{
	run_with("");
	ends(1, 9);
	changes(1, 0);
	SAY(1, lost, .epoch = g.j.epoch, .ranks = { (uint32_t[]){ 1 }, 1 },
	    .init_round = 1);
	changes(0, 1);
	changes(2, 1);
	ends(1, 9);
	changes(3, 1);
	hears(0,
	      "start 1 life 2 joins. wanted. start 1 life 3 joins. world 2: 0 2 3. ");
	changes(1, 0);
	hears(0, "wanted. ");
	ends_well();
	over();
}
END_TEST

/* All others wait: its end is what they waited for. */
START_TEST(the_last_that_did_not_change_may_die)
{
	run_with("");
	changes(0, 1);
	changes(1, 1);
	changes(2, 1);
	ends(3, 9);
	hears(0, "world 2: 0 1 2. ");
	ends_well();
	over();
}
END_TEST

static void dies(uint32_t rank, uint32_t round)
{
	SAY(rank, lost, .epoch = g.j.epoch, .ranks = { &rank, 1 }, .init_round = round,
	    .ended = 1);
}

/* Its memory is freed only after that. */
START_TEST(one_that_dies_is_not_waited_for)
{
	run_with("");
	changes(0, 1);
	dies(1, 1);
	changes(2, 1);
	changes(3, 1);
	both_hear("world 2: 0 2 3. ");
	ends(1, 9);
	hears(0, "start 1 life 2 joins. ");
	changes(1, 0);
	both_hear("wanted. ");
	changes(0, 2);
	changes(2, 2);
	dies(3, 0); /* it had left its last world */
	both_hear("world 3: 0 2 1. ");
	ends(3, 9);
	hears(1, "start 3 life 2 joins. ");
	ends_well();
	over();
}
END_TEST

START_TEST(one_that_waits_may_die)
{
	run_with("");
	changes(0, 1);
	changes(2, 1);
	changes(3, 1);
	changes(1, 1);
	both_hear("world 2: 0 1 2 3. ");
	changes(1, 2);
	changes(2, 2);
	changes(3, 2);
	dies(1, 2);
	hears(0, "");
	changes(0, 2);
	both_hear("world 3: 0 2 3. ");
	ends_well();
	over();
}
END_TEST

/* Two of them at once, and one before it is a newcomer. */
START_TEST(two_that_die_are_replaced)
{
	run_with("");
	dies(1, 1);
	dies(2, 1);
	ends(2, 9);
	ends(1, 9);
	hears(0, "start 1 life 2 joins. ");
	hears(1, "start 2 life 2 joins. ");
	dies(1, 1);
	changes(2, 0);
	both_hear("wanted. ");
	changes(0, 1);
	changes(3, 1);
	both_hear("world 2: 0 3 2. ");
	ends(1, 9);
	hears(0, "start 1 life 3 joins. ");
	ends_well();
	over();
}
END_TEST

/* The others were to go on when it began to die. */
START_TEST(the_work_is_over_before_a_rank_that_dies_has_ended)
{
	run_with("");
	dies(1, 1);
	changes(0, 1);
	changes(2, 1);
	changes(3, 1);
	both_hear("world 2: 0 2 3. ");
	is_elastic(0, 0);
	ends(0, 0);
	ends(2, 0);
	ends(3, 0);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	ends(1, 9);
	ck_assert_int_ne(g.j.phase, JOB_RUN);
	ends_well();
	over();
}
END_TEST

START_TEST(one_that_does_not_change_its_world)
{
	run_with("");
	is_elastic(2, 0);
	ends(1, 9);
	ck_assert_uint_eq(g.j.epoch, 2); /* all start again */
	over();
}
END_TEST

START_TEST(the_failed_rank_need_not_have_said_so)
{
	run_with("");
	is_elastic(1, 0);
	ends(1, 9);
	hears(0, "start 1 life 2 joins. ");
	ends_well();
	over();
}
END_TEST

START_TEST(all_are_replaced)
{
	run_with("--replace all");
	ends(1, 9);
	ck_assert_uint_eq(g.j.epoch, 2);
	over();
}
END_TEST

START_TEST(no_rank_is_replaced_when_the_work_is_done)
{
	run_with("");
	ends(0, 0);
	ends(1, 9);
	hears(0, "");
	over();
}
END_TEST

/* The others end well: it has nothing to do, and its end is no failure. */
START_TEST(a_newcomer_without_a_world_is_not_awaited)
{
	run_with("");
	ends(1, 9);
	changes(1, 0);
	hears(0, "start 1 life 2 joins. wanted. ");
	ends(0, 0);
	ends(2, 0);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	ends(3, 0);
	deliver_all();
	pass(60000);
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_DONE);
	hears(0, ""); /* above all no world of its own */
	ck_assert_int_eq(job_finish(&g.j), 0);
	over();
}
END_TEST

/* But the others may still take it into their next world. */
START_TEST(a_newcomer_that_got_a_world_is_awaited_again)
{
	run_with("");
	ends(1, 9);
	changes(1, 0);
	ends(0, 0);
	changes(2, 1);
	changes(3, 1);
	hears(1, "wanted. world 2: 2 3 1. ");
	ends(2, 0);
	ends(3, 0);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	ends(1, 0);
	ck_assert_int_gt(g.j.phase, JOB_RUN);
	over();
}
END_TEST

START_TEST(what_no_agent_says)
{
	run_with("");
	SAY(0, elastic, g.j.epoch, 0, 2);
	ck_assert_int_ne(g.j.agents.host[0].state, HOST_UP);
	over();
	run_with("");
	SAY(0, elastic, g.j.epoch, 3, 1);
	ck_assert_int_ne(g.j.agents.host[0].state, HOST_UP);
	over();
	run_with("");
	SAY(1, lost, .epoch = g.j.epoch, .ranks = { (uint32_t[]){ 1 }, 1 });
	ck_assert_int_ne(g.j.agents.host[0].state, HOST_UP);
	over();
	run_with("");
	SAY(0, lost, .epoch = g.j.epoch, .ranks = { (uint32_t[]){ 3 }, 1 }, .ended = 1);
	ck_assert_int_ne(g.j.agents.host[0].state, HOST_UP);
	over();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fence");
	TCase *t = tcase_create("ranks that start again");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, others_go_on_and_come_first);
	tcase_add_test(t, two_newcomers_are_one_change);
	tcase_add_test(t, newcomers_alone_wait_for_each_other);
	tcase_add_test(t, a_newcomer_may_die_while_it_waits);
	tcase_add_test(t, the_last_that_did_not_change_may_die);
	tcase_add_test(t, one_that_dies_is_not_waited_for);
	tcase_add_test(t, one_that_waits_may_die);
	tcase_add_test(t, two_that_die_are_replaced);
	tcase_add_test(t, the_work_is_over_before_a_rank_that_dies_has_ended);
	tcase_add_test(t, one_that_does_not_change_its_world);
	tcase_add_test(t, the_failed_rank_need_not_have_said_so);
	tcase_add_test(t, all_are_replaced);
	tcase_add_test(t, no_rank_is_replaced_when_the_work_is_done);
	tcase_add_test(t, a_newcomer_without_a_world_is_not_awaited);
	tcase_add_test(t, a_newcomer_that_got_a_world_is_awaited_again);
	tcase_add_test(t, what_no_agent_says);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
