/* launcher/job/mpi: what ranks get, and what one host asks of another. */
#include "launcher/job/mpi.h"
#include "tests/unit/job_rig.h"

enum { HOSTS = 4, NP = 6 };

/* What each host has heard, a line each, and whether before `start`. */
static struct str heard[HOSTS];

static void note(struct conn *c, const struct wire_frame *f)
{
	struct str *s = &heard[c->host];

	if (f->type != WIRE_host_map && f->type != WIRE_modex_request &&
	    f->type != WIRE_modex_data)
		return;
	if (s->len)
		str_add(s, "\n");
	if (f->type == WIRE_host_map)
		str_addf(s, "%s host_map", c->started ? "after" : "before");
	else
		wire_print(s, f);
}

/* Two ranks on each of the first three hosts; host 3 has none. */
static void begin(const char *options)
{
	quiet();
	rig_open(HOSTS, options);
	g.heard = note;
	job_begin(&g.j);
	turn();
}

static void run_on(const char *options)
{
	begin(options);
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
}

static void forget(void)
{
	for (size_t i = 0; i < HOSTS; i++)
		str_free(&heard[i]);
}

static void over(void)
{
	deliver_all();
	forget();
	rig_close();
}

#define SAY(host, name, ...)                                                           \
	do {                                                                           \
		struct conn *c_ = g.agent[host];                                       \
		struct buf b_ = { 0 };                                                 \
                                                                                       \
		wire_pack_##name(&b_,                                                  \
				 &(struct wire_##name){ .epoch = 1, __VA_ARGS__ });    \
		c_->events->bytes(c_->ctx, buf_head(&b_), b_.len);                     \
		buf_free(&b_);                                                         \
		turn();                                                                \
	} while (0)

static void heard_by(size_t host, const char *text)
{
	ck_assert_str_eq(str_text(&heard[host]), text);
	str_free(&heard[host]);
}

static bool is_up(size_t host)
{
	return g.j.agents.host[host].state == HOST_UP;
}

/* ---- what ranks get ---- */

/* --mpi, and what ranks get if no program uses MPI; if one does; and if a host has no
 * PMIx besides. */
static const struct {
	const char *options;
	uint32_t none, wanted, no_pmix;
} given[] = {
	{ "-np 6 --stdin none", 0, MPI_GIVE_PMI1 | MPI_GIVE_PMIX, MPI_GIVE_PMI1 },
	{ "-np 6 --stdin none --mpi=auto", 0, MPI_GIVE_PMI1 | MPI_GIVE_PMIX,
	  MPI_GIVE_PMI1 },
	{ "-np 6 --stdin none --mpi=pmix", 0, MPI_GIVE_PMIX, 0 },
	{ "-np 6 --stdin none --mpi=pmi1", 0, MPI_GIVE_PMI1, MPI_GIVE_PMI1 },
	{ "-np 6 --stdin none --mpi=none", 0, 0, 0 },
};

START_TEST(what_ranks_get)
{
	run_on(given[_i].options);
	g.j.run[3].mpi = MPI_WANTED | MPI_NO_PMIX; /* it has no ranks */
	for (uint32_t one = 0; one < 8; one++)
		for (uint32_t other = 0; other < 8; other++) {
			const uint32_t found = one | other;

			g.j.run[0].mpi = one;
			g.j.run[2].mpi = other;
			ck_assert_uint_eq(mpi_given(&g.j),
					  !(found & MPI_WANTED)    ? given[_i].none
					  : !(found & MPI_NO_PMIX) ? given[_i].wanted
								   : given[_i].no_pmix);
		}
	over();
}
END_TEST

/* All hosts are told the same, and where all ranks are if they get PMIx. */
START_TEST(what_hosts_are_told)
{
	const uint32_t want = _i & 1 ? given[_i / 2].wanted : given[_i / 2].none;

	quiet();
	rig_open(HOSTS, given[_i / 2].options);
	g.mpi[1] = _i & 1 ? MPI_WANTED : 0;
	g.heard = note;
	job_begin(&g.j);
	turn();
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	for (size_t i = 0; i < 3; i++) {
		ck_assert(g.agent[i]->started);
		ck_assert_uint_eq(g.agent[i]->given, want);
		heard_by(i, want & MPI_GIVE_PMIX ? "before host_map" : "");
		SAY(i, host_map_request);
		heard_by(i, want & MPI_GIVE_PMIX ? "" : "after host_map");
	}
	heard_by(3, "");
	over();
}
END_TEST

/* ---- what one host asks of another ---- */

static const char *const options = "-np 6 --stdin none";

START_TEST(asked_and_answered)
{
	run_on(options);
	SAY(0, modex_request, .rank = 4, .host = 77, .id = 9);
	heard_by(2, "modex_request epoch=1 rank=4 host=0 id=9");
	SAY(1, modex_request, .rank = 5, .id = 9);
	heard_by(2, "modex_request epoch=1 rank=5 host=1 id=9");
	SAY(2, modex_data, .host = 1, .id = 9, .data = { "abc", 3 });
	heard_by(1, "modex_data epoch=1 host=1 id=9 failed=0 data=(3 bytes)");
	SAY(2, modex_data, .host = 0, .id = 9, .failed = 1);
	heard_by(0, "modex_data epoch=1 host=0 id=9 failed=1 data=(0 bytes)");
	SAY(0, modex_request, .rank = 1, .id = 10); /* its own: it knows best */
	heard_by(0, "modex_request epoch=1 rank=1 host=0 id=10");
	for (size_t i = 0; i < HOSTS; i++)
		heard_by(i, "");
	over();
}
END_TEST

/* ... of one that is gone, or by one. */
START_TEST(host_is_gone)
{
	run_on(options);
	SAY(0, modex_request, .rank = 4, .id = 9);
	SAY(2, modex_request, .rank = 0, .id = 8);
	forget();
	lose(g.agent[2]);
	turn();
	SAY(0, modex_request, .rank = 4, .id = 9);
	heard_by(0, "modex_data epoch=1 host=0 id=9 failed=1 data=(0 bytes)");
	SAY(0, modex_data, .host = 2, .id = 8, .data = { "x", 1 });
	ck_assert(is_up(0));
	SAY(0, modex_request, .rank = 2, .id = 9);
	heard_by(1, "modex_request epoch=1 rank=2 host=0 id=9");
	over();
}
END_TEST

/* Host 0 is given up by what it says. */
START_TEST(cannot_be)
{
	run_on(options);
	if (_i == 0)
		SAY(0, modex_request, .rank = NP);
	else if (_i == 1)
		SAY(0, modex_data, .host = HOSTS);
	else if (_i == 2)
		SAY(0, modex_data, .host = UINT32_MAX);
	else
		SAY(0, modex_request, .rank = UINT32_MAX);
	ck_assert(!is_up(0));
	ck_assert(is_up(1));
	over();
}
END_TEST

/* Before ranks run. */
START_TEST(too_early)
{
	begin(options);
	while (g.j.phase < JOB_PLACE) {
		for (size_t i = 0; i < g.nconns && g.j.phase < JOB_PLACE; i++)
			if (has_answer(g.conn[i]))
				deliver(g.conn[i]);
		turn();
	}
	ck_assert(is_up(0));
	if (_i)
		SAY(0, modex_request, .rank = 4);
	else
		SAY(0, modex_data, .host = 1);
	ck_assert(!is_up(0));
	over();
}
END_TEST

/* Host 1 takes no bytes any more: as many wait for it as may, and then what it asks for
 * is not there, and what it is asked for, neither. */
START_TEST(host_that_is_slow)
{
	enum { EACH = 1 << 20 };
	char *large = xcalloc(1, EACH);
	size_t n = 0;

	quiet();
	rig_open(HOSTS, options);
	g.mpi[0] = MPI_WANTED;
	job_begin(&g.j);
	turn();
	deliver_all();
	g.heard = note;
	g.agent[1]->full = true;
	while (g.j.agents.host[1].out.len < MPI_QUEUED_MOST) {
		SAY(0, modex_data, .host = 1, .id = 5, .data = { large, EACH });
		n++;
	}
	ck_assert_uint_eq(n, MPI_QUEUED_MOST / EACH);
	SAY(1, modex_request, .rank = 0, .id = 3); /* it is not given up for that */
	ck_assert(is_up(1));
	heard_by(0, "modex_request epoch=1 rank=0 host=1 id=3");
	SAY(0, modex_data, .host = 1, .id = 3, .data = { large, EACH });
	SAY(0, modex_request, .rank = 2, .id = 4);
	heard_by(0, "modex_data epoch=1 host=0 id=4 failed=1 data=(0 bytes)");
	g.agent[1]->full = false;
	g.agent[1]->events->writable(g.agent[1]->ctx);
	ck_assert_ptr_nonnull(strstr(str_text(&heard[1]), "failed=0 data=(1048576"));
	ck_assert_ptr_nonnull(
		strstr(str_text(&heard[1]), "id=3 failed=1 data=(0 bytes)"));
	SAY(0, modex_request, .rank = 2, .id = 4);
	ck_assert_ptr_nonnull(strstr(str_text(&heard[1]), "modex_request"));
	free(large);
	over();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job_mpi");
	TCase *t = tcase_create("mpi");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, what_ranks_get, 0, 5);
	tcase_add_loop_test(t, what_hosts_are_told, 0, 10);
	tcase_add_test(t, asked_and_answered);
	tcase_add_test(t, host_is_gone);
	tcase_add_loop_test(t, cannot_be, 0, 4);
	tcase_add_loop_test(t, too_early, 0, 2);
	tcase_add_test(t, host_that_is_slow);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
