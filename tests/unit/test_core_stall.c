/* lib/stall: when it is said that ranks do not come, and how. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/rank_text.h"
#include "lib/core/run.h"
#include "lib/core/init_wait.h"
#include "lib/core/stall.h"
#include "lib/core/trace.h"
#include "lib/core/world.h"

#define S 1000000000u /* ns */

START_TEST(when)
{
	struct params k = { .stall_ms = 60000 };
	const uint64_t begun = 1000 * (uint64_t)S;
	uint64_t reported = begun;
	unsigned said[8], n = 0;

	/* looked at each second, for ten minutes */
	for (unsigned s = 0; s < 600; s++)
		if (stall_is_due(&k, begun, reported, begun + s * (uint64_t)S)) {
			ck_assert_uint_lt(n, 8);
			said[n++] = s;
			reported = begun + s * (uint64_t)S;
		}
	ck_assert_uint_eq(n, 4);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(said[i], 60u << i);
	/* a report about the operation before is none about this one */
	ck_assert(!stall_is_due(&k, begun, begun - S, begun + 59 * (uint64_t)S));
	ck_assert(stall_is_due(&k, begun, begun - S, begun + 60 * (uint64_t)S));
	k.stall_off = true;
	ck_assert(!stall_is_due(&k, begun, begun, begun + 600 * (uint64_t)S));
	k.stall_off = false;
	k.stall_ms = 0;
	ck_assert(!stall_is_due(&k, begun, begun, begun + 600 * (uint64_t)S));
}
END_TEST

static const char *fold(size_t bytes, size_t n, const unsigned *rank)
{
	static char text[64];

	memset(text, 'x', sizeof text);
	rank_text(text, bytes, rank, n);
	if (bytes < sizeof text)
		ck_assert_int_eq(text[bytes], 'x');
	return text;
}
#define FOLD(bytes, ...)                                                               \
	fold(bytes, sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned),            \
	     (unsigned[]){ __VA_ARGS__ })

START_TEST(folded)
{
	ck_assert_str_eq(fold(64, 0, NULL), "");
	ck_assert_str_eq(FOLD(64, 7), "7");
	ck_assert_str_eq(FOLD(64, 1, 2), "1, 2");
	ck_assert_str_eq(FOLD(64, 1, 2, 3, 7), "1-3, 7");
	ck_assert_str_eq(FOLD(64, 0, 2, 3, 5, 6, 7, 4294967295), "0, 2, 3, 5-7, "
								 "4294967295");
	/* where there is no room: whole numbers, and that there are more */
	ck_assert_str_eq(FOLD(9, 1, 2, 3, 7), "1-3, 7");
	ck_assert_str_eq(FOLD(13, 100, 200, 300), "100, ...");
	ck_assert_str_eq(FOLD(14, 100, 200, 3000), "100, 200, ...");
	ck_assert_str_eq(FOLD(13, 100, 200), "100, 200");
	ck_assert_str_eq(FOLD(9, 100, 200), "100, 200");
	ck_assert_str_eq(FOLD(4, 12345), "...");
	ck_assert_str_eq(FOLD(2, 12345), ".");
	ck_assert_str_eq(FOLD(1, 12345), "");
}
END_TEST

/* Eight ranks on three hosts; those of the first are here, where this is rank 0. */
static struct world w;
static unsigned host[8] = { 0, 0, 0, 0, 1, 1, 2, 2 }, local[8];
static char *name[3] = { "n0", "n1", "n2" };

static void make(void)
{
	w.who = (struct boot_world){
		.size = 8, .local_size = 4, .hosts = 3, .host = host, .host_name = name
	};
	for (unsigned r = 0; r < 8; r++)
		local[r] = r < 4 ? r : WORLD_NOT_HERE;
	w.local = local;
	w.memory.local_size = 4;
	w.memory.size = 8;
	w.memory.rank = aligned_alloc(64, 4 * sizeof *w.memory.rank);
	memset(w.memory.rank, 0, 4 * sizeof *w.memory.rank);
	w.memory.records = calloc(4 * BOOT_RECORDS, sizeof *w.memory.records);
	w.memory.rank[0].state = w.memory.rank[3].state = BOOT_JOINED;
}

static void unmake(void)
{
	free(w.memory.rank);
	free(w.memory.records);
}

static const char *text_of(size_t bytes, size_t n, const unsigned *missing)
{
	static char text[1024];
	struct stall s = { .who = &w.who,
			   .local = w.local,
			   .memory = &w.memory,
			   .words = "allreduce \"grad\" of 1024 f32, sum",
			   .waited_ms = 60049,
			   .nmissing = n };

	for (size_t i = 0; i < n; i++)
		s.missing[i] = missing[i];
	memset(text, 'x', sizeof text);
	stall_text(text, bytes, &s);
	ck_assert_uint_lt(strnlen(text, bytes), bytes);
	if (bytes < sizeof text)
		ck_assert_int_eq(text[bytes], 'x');
	return text;
}
#define TEXT(...)                                                                      \
	text_of(1024, sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned),          \
		(unsigned[]){ __VA_ARGS__ })
#define HEAD "allreduce \"grad\" of 1024 f32, sum: waits 60 s for "

START_TEST(words)
{
	const unsigned all[] = { 1, 2, 3, 4, 5, 6, 7 };
	struct memory third = w.memory;
	const struct coll c = { .kind = BERTH_BROADCAST, .count = 4, .type = BERTH_U8 };
	struct boot_record *f;
	const char *text;
	uint64_t now;

	ck_assert_str_eq(TEXT(5), HEAD "rank 5 on 'n1'");
	ck_assert_str_eq(TEXT(4, 5, 7), HEAD "ranks 4, 5 on 'n1', rank 7 on 'n2'");
	ck_assert_str_eq(TEXT(1, 3),
			 HEAD "ranks 1, 3 on 'n0' (rank 1: it has not joined)");
	third.local_rank = 3;
	third.records += 3 * BOOT_RECORDS;
	f = trace_begin(&third, &c, NULL, 0, 1, BOOT_RECORD_DONE);
	do { /* again, where a moment came between that makes it another age */
		now = clock_coarse_ns();
		f->begun = now - 31 * (uint64_t)S;
		text = TEXT(3);
	} while (clock_coarse_ns() - now >= S / 4);
	ck_assert_str_eq(text,
			 HEAD "rank 3 on 'n0' (rank 3: broadcast of 4 u8, done 31 s "
			      "ago)");
	ck_assert_str_eq(text_of(1024, 0, NULL), HEAD "other ranks");
	for (size_t bytes = 1; bytes < 200; bytes++)
		text_of(bytes, 7, all);
}
END_TEST

/* Of however many ranks. */
START_TEST(sides)
{
	enum { N = 200 };
	unsigned rank[N];
	const char *said[N];
	const struct members members = { .n = N, .me = 3, .rank = rank };
	struct comm c = { .members = &members };
	struct failure why = { .rc = BERTH_MISMATCH };

	for (unsigned i = 0; i < N; i++) {
		rank[i] = 2 * N + i;
		said[i] = i == 7 ? "2\nbarrier" : i == 9 ? RUN_JOINED : "1\nbroadcast";
	}
	run_say_sides(&c, &(struct op){ 0 }, said, &why);
	ck_assert_str_eq(why.text,
			 "the ranks called for different things: ranks 400-406, 408, "
			 "410-599 for broadcast; rank 407 for barrier");
	ck_assert_uint_eq(why.nmissing, 2);
	ck_assert_uint_eq(why.missing[0], 407);
	free(c.scratch);
}
END_TEST

static unsigned nstalls;

static void count_stall(void *state, const unsigned *missing, size_t n,
			const char *text)
{
	(void)state;
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(missing[0], 5);
	ck_assert_str_eq(text, "60 s in berth_init");
	nstalls++;
}

/* As if berth_init() had begun S seconds ago. */
static void ago(struct init_wait *m, unsigned s)
{
	const uint64_t ns = s * (uint64_t)S;
	const bool reported = m->reported_ns != m->begun_ns;

	if (m->deadline_ns)
		m->deadline_ns -= ns - (clock_ns() - m->begun_ns);
	m->begun_ns = clock_ns() - ns;
	if (!reported)
		m->reported_ns = m->begun_ns;
}

START_TEST(who_does_not_init)
{
	const unsigned late[] = { 5, 6 };
	const struct boot fake = { .stall = count_stall };
	struct init_wait m;
	char text[256];

	w.boot = &fake;
	w.params.stall_ms = 60000;
	init_wait_begin(&m, &w, "berth_init");
	ck_assert_uint_eq(m.deadline_ns, 0);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_OK);
	ago(&m, 60);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_BUSY);
	init_wait_missing(&m, late, 0); /* it is asked anew */
	ck_assert_int_eq(init_wait_tick(&m), BERTH_BUSY);
	init_wait_missing(&m, late, 1);
	ck_assert_uint_eq(nstalls, 1);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_OK);
	ck_assert(!m.is_over);
	/* never less than a minute */
	w.timeout_ms = 1000;
	w.params.stall_ms = 0;
	init_wait_begin(&m, &w, "berth_init");
	ago(&m, 50);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_OK);
	ago(&m, 61);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_BUSY);
	init_wait_missing(&m, late, 1);
	ck_assert(m.is_over);
	ck_assert_int_eq(init_wait_tick(&m),
			 BERTH_OK); /* others have a moment to see it */
	ago(&m, 62);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_TIMEOUT);
	init_wait_text(text, sizeof text, &m);
	ck_assert_str_eq(text, "rank 5 on 'n1' did not call berth_init() in 62 s");
	init_wait_missing(&m, late, 2);
	init_wait_text(text, sizeof text, &m);
	ck_assert_str_eq(text, "ranks 5, 6 did not call berth_init() in 62 s");
	ck_assert_uint_eq(nstalls, 1);
	/* nobody knows */
	w.timeout_ms = 0;
	w.params.stall_end_ms = 90000;
	init_wait_begin(&m, &w, "berth_init");
	ago(&m, 91);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_BUSY);
	ago(&m, 92);
	ck_assert_int_eq(init_wait_tick(&m), BERTH_TIMEOUT);
	ck_assert(!m.is_over);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stall");
	TCase *t = tcase_create("stall");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_unchecked_fixture(t, make, unmake);
	tcase_add_test(t, when);
	tcase_add_test(t, folded);
	tcase_add_test(t, words);
	tcase_add_test(t, sides);
	tcase_add_test(t, who_does_not_init);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed > 0;
}
