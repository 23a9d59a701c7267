/* launcher/job/exchange: what hosts exchange by the launcher, several at a time. */
#include "launcher/job/exchange.h"
#include "tests/unit/job_rig.h"

enum { HOSTS = 3, NP = 6 };

/* ---- time ---- */

static struct event *telling; /* the hosts are told when it comes */
static struct event *missing; /* a rank that never came is named when it comes */

void __real_loop_after_ms(struct event *e, uint64_t ms);
void __wrap_loop_after_ms(struct event *e, uint64_t ms);

void __wrap_loop_after_ms(struct event *e, uint64_t ms)
{
	telling = ms == 2000 ? e : telling;
	missing = ms == 5000 ? e : missing;
	__real_loop_after_ms(e, e == telling || e == missing ? 86400000 : ms);
}

static void time_comes(struct event *e)
{
	ck_assert(event_pending(e, EV_TIMEOUT, NULL));
	event_del(e);
	event_active(e, EV_TIMEOUT, 1);
	turn();
}

static void two_seconds_pass(void)
{
	time_comes(telling);
}

/* What a host has heard: "number=bytes" or "number!", each with its list. */
static struct str heard[HOSTS];

static void note_list(struct str *s, const wire_u32v *ranks)
{
	for (size_t i = 0; i < ranks->n; i++)
		str_addf(s, "%s%u", i ? "," : "", ranks->v[i]);
}

static void note(struct conn *c, const struct wire_frame *f)
{
	struct str *s = &heard[c->host];
	struct wire_exchange_data m;
	struct wire_exchange_failed n;
	struct err e;

	if (f->type == WIRE_exchange_data) {
		ck_assert(!wire_unpack_exchange_data(&m, f->payload, f->n, &e));
		str_addf(s, "%llu[", (unsigned long long)m.number);
		note_list(s, &m.ranks);
		str_addf(s, "]=%.*s%s ", (int)m.data.n, (const char *)m.data.p,
			 m.last ? "" : "...");
		wire_free_exchange_data(&m);
	} else if (f->type == WIRE_exchange_failed) {
		ck_assert(!wire_unpack_exchange_failed(&n, f->payload, f->n, &e));
		str_addf(s, "%llu[", (unsigned long long)n.number);
		note_list(s, &n.ranks);
		str_add(s, "]! ");
		wire_free_exchange_failed(&n);
	}
}

/* Ranks 0 and 1 are on host 0, 2 and 3 on host 1, 4 and 5 on host 2. */
static void run_on(void)
{
	char options[32];

	quiet();
	snprintf(options, sizeof options, "--stdin none -np %d", NP);
	rig_open(HOSTS, options);
	job_begin(&g.j);
	turn();
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	g.heard = note;
}

static void over(void)
{
	deliver_all();
	for (size_t i = 0; i < HOSTS; i++)
		str_free(&heard[i]);
	rig_close();
}

static void give_to(uint32_t use, size_t host, const uint32_t *rank, size_t n,
		    uint64_t number, const char *text, uint32_t last)
{
	struct conn *c = g.agent[host];
	struct wire_exchange m = { .epoch = c->epoch,
				   .use = use,
				   .ranks = { rank, n },
				   .number = number,
				   .last = last,
				   .data = { text, strlen(text) } };
	struct buf b = { 0 };

	wire_pack_exchange(&b, &m);
	c->events->bytes(c->ctx, buf_head(&b), b.len);
	buf_free(&b);
	turn();
}

/* HOST gives TEXT to exchange NUMBER of N ranks. */
static void give(size_t host, const uint32_t *rank, size_t n, uint64_t number,
		 const char *text, bool last)
{
	give_to(EXCHANGE_PMI1, host, rank, n, number, text, last);
}

static void heard_by(size_t host, const char *text)
{
	ck_assert_str_eq(heard[host].s ? heard[host].s : "", text);
}

static bool is_up(size_t host)
{
	return g.j.agents.host[host].state == HOST_UP;
}

static const uint32_t some[] = { 1, 4 }, others[] = { 2, 4, 5 };

START_TEST(several)
{
	run_on();
	give(2, NULL, 0, 1, "c", true);
	give(2, some, 2, 1, "C", true);
	give(2, others, 3, 1, "x", true);
	give(2, some, 2, 2, "D", true); /* its next one */
	give(1, NULL, 0, 1, "b", true);
	give(0, some, 2, 2, "B", true);
	heard_by(0, "2[1,4]=BD ");
	heard_by(1, "");
	give(1, others, 3, 1, "y", true);
	heard_by(1, "1[2,4,5]=yx ");
	give(0, some, 2, 1, "A1", false);
	give(0, some, 2, 1, "A2", false);
	heard_by(2, "2[1,4]=BD 1[2,4,5]=yx ");
	give(0, some, 2, 1, "", true);
	give(0, NULL, 0, 1, "", true);
	heard_by(0, "2[1,4]=BD 1[1,4]=A1A2C 1[]=bc ");
	heard_by(1, "1[2,4,5]=yx 1[]=bc ");
	heard_by(2, "2[1,4]=BD 1[2,4,5]=yx 1[1,4]=A1A2C 1[]=bc ");
	over();
}
END_TEST

START_TEST(who_does_not_come)
{
	run_on();
	give(2, NULL, 0, 1, "c", true);
	give(2, some, 2, 1, "C", true);
	give(0, NULL, 0, 1, "a", false); /* is told when it has given */
	exits(g.agent[0], 1, 0);
	deliver(g.agent[0]);
	turn();
	ck_assert_int_eq(g.j.rank[1].ending.fate, FATE_EXIT); /* it is blamed at once */
	give(1, NULL, 0, 1, "b", true);                       /* meanwhile */
	heard_by(2, "");
	two_seconds_pass();
	heard_by(0, "");
	heard_by(1, "1[]! ");
	heard_by(2, "1[1,4]! 1[]! ");
	give(1, NULL, 0, 2, "b", true); /* begins after the end */
	heard_by(1, "1[]! ");
	two_seconds_pass();
	heard_by(1, "1[]! 2[]! ");
	give(2, others, 3, 1, "x", true);
	give(1, others, 3, 1, "y", true);
	heard_by(1, "1[]! 2[]! 1[2,4,5]=yx ");
	exits(g.agent[2], 1, 0); /* what is over stays so */
	deliver(g.agent[2]);
	turn();
	ck_assert(!event_pending(telling, EV_TIMEOUT, NULL));
	over();
}
END_TEST

/* The agent knows it before it knows that the rank's process has ended. */
START_TEST(lacks_a_rank)
{
	run_on();
	give_to(EXCHANGE_PMIX_FENCE, 0, some, 2, 1, "", EXCHANGE_LACKS_RANK);
	give_to(EXCHANGE_PMIX_FENCE, 2, some, 2, 1, "C", EXCHANGE_WHOLE);
	ck_assert_uint_eq(g.j.failed, 0);
	heard_by(2, "");
	two_seconds_pass();
	heard_by(0, "1[1,4]! ");
	heard_by(2, "1[1,4]! ");
	give_to(EXCHANGE_PMIX_FENCE, 0, some, 2, 2, "", EXCHANGE_LACKS_RANK + 1);
	ck_assert(!is_up(0));
	over();
}
END_TEST

static void says_absent(size_t host, uint32_t use, uint32_t rank, uint32_t waiting)
{
	struct conn *c = g.agent[host];
	struct buf b = { 0 };

	wire_pack_absent(&b, &(struct wire_absent){ c->epoch, use, rank, waiting });
	c->events->bytes(c->ctx, buf_head(&b), b.len);
	buf_free(&b);
	turn();
}

/* Rank 1 ends without MPI_Init, and rank 0 is in it.  The agent says so before it says
 * that rank 1 has ended. */
START_TEST(never_came)
{
	run_on();
	says_absent(0, EXCHANGE_PMI1, 1, 1);
	time_comes(missing);
	exits(g.agent[0], 1, 0);
	deliver(g.agent[0]);
	turn();
	ck_assert_int_eq(g.j.rank[1].ending.fate, FATE_OK);
	time_comes(missing);
	ck_assert_int_eq(g.j.rank[1].ending.fate, FATE_EXIT);
	heard_by(0, "");
	two_seconds_pass();
	heard_by(0, "0[]! ");
	heard_by(1, "");
	says_absent(0, EXCHANGE_PMI1, 1, 2);
	two_seconds_pass();
	heard_by(0, "0[]! 0[]! ");
	over();
}
END_TEST

/* Nobody waits for it any more; and then again. */
START_TEST(never_came_and_is_not_missed)
{
	run_on();
	exits(g.agent[0], 1, 0);
	deliver(g.agent[0]);
	turn();
	says_absent(0, EXCHANGE_PMIX_FENCE, 1, 1);
	ck_assert(event_pending(missing, EV_TIMEOUT, NULL));
	says_absent(0, EXCHANGE_PMIX_FENCE, 1, 0);
	ck_assert(!event_pending(missing, EV_TIMEOUT, NULL));
	says_absent(0, EXCHANGE_PMIX_FENCE, 1, 2);
	time_comes(missing);
	says_absent(0, EXCHANGE_PMIX_FENCE, 1, 1); /* one has come out */
	two_seconds_pass();
	heard_by(0, "0[]! ");
	over();
}
END_TEST

START_TEST(absence_that_cannot_be)
{
	run_on();
	says_absent(0, _i ? EXCHANGE_INIT : EXCHANGE_PMI1, _i ? 1 : 2, 1);
	ck_assert(!is_up(0));
	over();
}
END_TEST

START_TEST(host_is_lost)
{
	run_on();
	give(0, some, 2, 1, "A", true);
	give(1, others, 3, 1, "y", true);
	lose(g.agent[2]);
	turn();
	two_seconds_pass();
	heard_by(0, "1[1,4]! ");
	heard_by(1, "1[2,4,5]! ");
	over();
}
END_TEST

/* Host 0 is given up by what it says. */
START_TEST(cannot_be)
{
	static const uint32_t unsorted[] = { 2, 1 }, twice[] = { 1, 1 },
			      none[] = { NP }, no_part[] = { 2, 3 };
	static char large[2 * EXCHANGE_RANK_BYTES + 2];

	memset(large, 'x', sizeof large - 1);
	run_on();
	switch (_i) {
	case 0:
		give(0, unsorted, 2, 1, "a", true);
		break;
	case 1:
		give(0, twice, 2, 1, "a", true);
		break;
	case 2:
		give(0, none, 1, 1, "a", true);
		break;
	case 3:
		give(0, no_part, 2, 1, "a", true);
		break;
	case 4:
		give(0, some, 2, 1, "a", true);
		ck_assert(is_up(0));
		give(0, some, 2, 1, "a", true);
		break;
	case 5:
		give(0, some, 2, 1, large + 1, false);
		ck_assert(is_up(0));
		give(0, some, 2, 1, "a", true);
		break;
	case 6:
		give(0, some, 2, 1, "", false);
		break;
	default:
		for (uint64_t i = 0; i < 256; i++)
			give(0, some, 2, i, "a", true);
		ck_assert(is_up(0));
		give(0, some, 2, 256, "a", true);
	}
	ck_assert(!is_up(0));
	over();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job_exchange");
	TCase *t = tcase_create("exchange");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, several);
	tcase_add_test(t, who_does_not_come);
	tcase_add_test(t, lacks_a_rank);
	tcase_add_test(t, never_came);
	tcase_add_test(t, never_came_and_is_not_missed);
	tcase_add_loop_test(t, absence_that_cannot_be, 0, 2);
	tcase_add_test(t, host_is_lost);
	tcase_add_loop_test(t, cannot_be, 0, 8);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
