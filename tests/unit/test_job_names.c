/* launcher/job/names: what ranks publish and look up, and events. */
#include "launcher/job/names.h"
#include "tests/unit/job_rig.h"

enum { HOSTS = 3, NP = 6, BYTES_LIMIT = 16 << 20 };

/* What a host has heard: "id:status", with "key=owner/value" for each that was found;
 * or "!rank/code". */
static struct str heard[HOSTS];

static void note_found(struct str *s, const struct wire_frame *f)
{
	struct wire_found m;
	const char *value;

	ck_assert(!wire_unpack_found(&m, f->payload, f->n, NULL));
	ck_assert_uint_eq(m.epoch, 1);
	ck_assert_uint_eq(m.keys.n, m.owners.n);
	ck_assert_uint_eq(m.keys.n, m.sizes.n);
	str_addf(s, "%u:%u ", m.id, m.status);
	value = m.values.p;
	for (size_t i = 0; i < m.keys.n; i++) {
		str_addf(s, "%s=%u/%.*s ", m.keys.v[i], m.owners.v[i],
			 (int)(m.sizes.v[i] < 9 ? m.sizes.v[i] : 9), value);
		value += m.sizes.v[i];
	}
	ck_assert_ptr_eq(value, (const char *)m.values.p + m.values.n);
	wire_free_found(&m);
}

static void note(struct conn *c, const struct wire_frame *f)
{
	struct wire_event m;

	if (f->type == WIRE_found)
		note_found(&heard[c->host], f);
	if (f->type != WIRE_event)
		return;
	ck_assert(!wire_unpack_event(&m, f->payload, f->n, NULL));
	str_addf(&heard[c->host], "!%u/%u/%u/%.*s ", m.rank, m.code, m.range,
		 (int)m.info.n, (const char *)m.info.p);
	wire_free_event(&m);
}

/* Ranks 0 and 1 are on host 0, 2 and 3 on host 1, 4 and 5 on host 2. */
static void run_on(void)
{
	quiet();
	rig_open(HOSTS, "--stdin none -np 6");
	for (size_t i = 0; i < HOSTS; i++)
		g.mpi[i] = MPI_WANTED;
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

static void all_heard(const char *zero, const char *one, const char *two)
{
	heard_by(0, zero);
	heard_by(1, one);
	heard_by(2, two);
}

static bool is_up(size_t host)
{
	return g.j.agents.host[host].state == HOST_UP;
}

static const char *const words[] = { "a", "b", "c" };
#define KEYS(first, n) .keys = { words + (first), (n) }

/* RANK publishes KEY as VALUE. */
static void publish(uint32_t rank, uint32_t id, const char *key, const char *value,
		    bool once)
{
	const uint32_t size = (uint32_t)strlen(value);

	SAY(rank / 2, publish, .rank = rank, .id = id, .once = once,
	    .keys = { &key, 1 }, .sizes = { &size, 1 }, .values = { value, size });
}

/* ---- in order ---- */

START_TEST(published_and_looked_up)
{
	static const uint32_t sizes[] = { 2, 0 };

	run_on();
	SAY(0, publish, .rank = 1, .id = 4, KEYS(0, 2), .sizes = { sizes, 2 },
	    .values = { "xy", 2 });
	all_heard("4:0 ", "", "");
	publish(5, 7, "c", "z", false);
	all_heard("", "", "7:0 ");
	SAY(1, lookup, .rank = 2, .id = 8, KEYS(0, 3));
	all_heard("", "8:0 a=1/xy b=1/ c=5/z ", "");
	SAY(1, lookup, .rank = 3, .id = 8, KEYS(1, 1));
	all_heard("", "8:0 b=1/ ", "");
	SAY(0, lookup, .rank = 1, .id = 9, KEYS(0, 1)); /* its own */
	all_heard("9:0 a=1/xy ", "", "");
	SAY(1, lookup, .rank = 3, .id = 9);
	all_heard("", "9:0 ", "");
	over();
}
END_TEST

START_TEST(not_all_is_there)
{
	const char *const some[] = { "x", "a", "y" };

	run_on();
	SAY(1, lookup, .rank = 2, .id = 1, KEYS(0, 1));
	all_heard("", "1:2 ", "");
	publish(0, 1, "a", "v", false);
	SAY(1, lookup, .rank = 2, .id = 2, .keys = { some, 3 });
	all_heard("1:0 ", "2:1 a=0/v ", "");
	over();
}
END_TEST

/* All of what a message publishes, or nothing. */
START_TEST(duplicates)
{
	static const uint32_t sizes[] = { 1, 1 };

	run_on();
	publish(0, 1, "b", "v", false);
	publish(0, 2, "b", "w", false);
	publish(4, 3, "b", "x", false);
	SAY(2, publish, .rank = 4, .id = 5, KEYS(0, 2), .sizes = { sizes, 2 },
	    .values = { "yz", 2 });
	all_heard("1:0 2:3 ", "", "3:3 5:3 ");
	SAY(2, lookup, .rank = 4, .id = 6, KEYS(0, 3));
	heard_by(2, "6:1 b=0/v ");
	over();
}
END_TEST

START_TEST(unpublished)
{
	run_on();
	publish(0, 1, "a", "1", false);
	publish(0, 2, "b", "2", false);
	publish(1, 3, "c", "3", false);
	heard_by(0, "1:0 2:0 3:0 ");
	SAY(0, unpublish, .rank = 0, .id = 4, KEYS(2, 1)); /* another's */
	SAY(1, unpublish, .rank = 2, .id = 4, KEYS(0, 2));
	SAY(1, unpublish, .rank = 2, .id = 5);
	all_heard("4:2 ", "4:2 5:0 ", "");
	SAY(0, unpublish, .rank = 0, .id = 5, KEYS(0, 1));
	SAY(0, unpublish, .rank = 0, .id = 6, KEYS(0, 1));
	SAY(0, lookup, .rank = 0, .id = 7, KEYS(0, 3));
	heard_by(0, "5:0 6:2 7:1 b=0/2 c=1/3 ");
	publish(0, 8, "a", "4", false);
	SAY(0, unpublish, .rank = 0, .id = 9, KEYS(0, 3));
	SAY(0, lookup, .rank = 0, .id = 10, KEYS(0, 3));
	heard_by(0, "8:0 9:0 10:1 c=1/3 ");
	publish(1, 11, "b", "5", false);
	SAY(0, unpublish, .rank = 1, .id = 12); /* all */
	SAY(0, lookup, .rank = 0, .id = 13, KEYS(0, 3));
	heard_by(0, "11:0 12:0 13:2 ");
	over();
}
END_TEST

START_TEST(read_once)
{
	run_on();
	publish(0, 1, "a", "1", true);
	publish(0, 2, "b", "2", false);
	heard_by(0, "1:0 2:0 ");
	SAY(1, lookup, .rank = 2, .id = 1, KEYS(0, 2));
	SAY(2, lookup, .rank = 4, .id = 1, KEYS(0, 2));
	all_heard("", "1:0 a=0/1 b=0/2 ", "1:1 b=0/2 ");
	publish(0, 3, "a", "3", true);
	SAY(2, lookup, .rank = 4, .id = 2, KEYS(0, 1));
	all_heard("3:0 ", "", "2:0 a=0/3 ");
	SAY(1, lookup, .rank = 2, .id = 3, .wait = 1, KEYS(0, 1));
	SAY(2, lookup, .rank = 4, .id = 3, .wait = 1, KEYS(0, 1));
	publish(0, 4, "a", "4", true); /* for one of them */
	publish(0, 5, "a", "5", true); /* for the other */
	heard_by(0, "4:0 5:0 ");
	ck_assert_uint_eq(heard[1].len, strlen("3:0 a=0/4 "));
	ck_assert_uint_eq(heard[2].len, strlen("3:0 a=0/4 "));
	ck_assert_str_ne(heard[1].s, heard[2].s);
	over();
}
END_TEST

/* ---- that wait ---- */

START_TEST(awaited)
{
	run_on();
	publish(0, 1, "a", "1", true);
	SAY(1, lookup, .rank = 2, .id = 1, .wait = 1, KEYS(0, 2));
	SAY(1, lookup, .rank = 3, .id = 2, .wait = 1, KEYS(2, 1));
	all_heard("1:0 ", "", "");
	pass(3600 * 1000);
	publish(4, 2, "b", "2", false);
	all_heard("", "1:0 a=0/1 b=4/2 ", "2:0 ");
	publish(4, 3, "x", "2", false);
	publish(4, 4, "c", "3", false);
	all_heard("", "2:0 c=4/3 ", "3:0 4:0 ");
	SAY(1, lookup, .rank = 2, .id = 3, .wait = 1, KEYS(1, 2)); /* all is there */
	all_heard("", "3:0 b=4/2 c=4/3 ", "");
	over();
}
END_TEST

/* The clock is the test's, the timer is not: it comes after a second. */
START_TEST(awaited_for_so_long)
{
	run_on();
	publish(0, 1, "a", "1", false);
	heard_by(0, "1:0 ");
	SAY(1, lookup, .rank = 3, .id = 3, .wait = 1, .timeout_s = 1000, KEYS(0, 2));
	SAY(1, lookup, .rank = 2, .id = 1, .wait = 1, .timeout_s = 1, KEYS(0, 2));
	SAY(1, lookup, .rank = 2, .id = 2, .wait = 1, .timeout_s = 2, KEYS(1, 1));
	SAY(1, lookup, .rank = 3, .id = 4, .wait = 0, .timeout_s = 9, KEYS(1, 1));
	heard_by(1, "4:2 ");
	pass(1000);
	while (!heard[1].len)
		event_base_loop(g.j.base, EVLOOP_ONCE);
	heard_by(1, "1:1 a=0/1 ");
	pass(999);
	publish(0, 2, "x", "1", false); /* nothing is late */
	heard_by(1, "");
	pass(1);
	while (!heard[1].len)
		event_base_loop(g.j.base, EVLOOP_ONCE);
	heard_by(1, "2:2 ");
	publish(0, 4, "b", "2", false);
	heard_by(1, "3:0 a=0/1 b=0/2 ");
	over();
}
END_TEST

/* The rank that waits ends, by itself or with its host; what it published stays. */
START_TEST(rank_ends)
{
	run_on();
	publish(4, 1, "b", "1", false);
	heard_by(2, "1:0 ");
	SAY(2, lookup, .rank = 4, .id = 2, .wait = 1, KEYS(0, 1));
	SAY(2, lookup, .rank = 5, .id = 3, .wait = 1, KEYS(0, 1));
	if (_i) {
		lose(g.agent[2]);
	} else {
		exits(g.agent[2], 0, 0);
		deliver(g.agent[2]);
	}
	turn();
	publish(0, 1, "a", "1", true);
	SAY(0, lookup, .rank = 0, .id = 2, KEYS(0, 2));
	all_heard(_i ? "1:0 2:0 a=0/1 b=4/1 " : "1:0 2:1 b=4/1 ", "",
		  _i ? "" : "3:0 a=0/1 ");
	over();
}
END_TEST

/* ---- limits ---- */

/* Of names and values together; and what one answer may carry. */
START_TEST(too_many_bytes)
{
	enum { EACH = 1 << 20 };
	char *value = xcalloc(1, EACH + 1), key[3] = "k";
	const char *many[17];

	memset(value, 'v', EACH - 2);
	run_on();
	for (int i = 0; i < BYTES_LIMIT / EACH; i++) {
		key[1] = (char)('a' + i);
		publish(0, 1, key, value, false);
	}
	publish(0, 2, "c", "", false);
	SAY(0, unpublish, .rank = 0, .id = 3, .keys = { &(const char *){ key }, 1 });
	publish(0, 4, "c", "12345", false);
	value[EACH - 2 - 6] = '\0';
	publish(0, 5, "kzz", value, false);
	value[EACH - 2 - 7] = '\0';
	publish(0, 6, "kzz", value, false);
	heard_by(0, "1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 1:0 "
		    "2:4 3:0 4:0 5:4 6:0 ");
	for (int i = 0; i < 17; i++)
		many[i] = "ka";
	SAY(1, lookup, .rank = 2, .id = 7, .keys = { many, 16 });
	SAY(1, lookup, .rank = 2, .id = 8, .keys = { many, 17 });
	ck_assert_ptr_nonnull(strstr(heard[1].s, "7:0 ka=0/vvvvvvvvv "));
	ck_assert_ptr_nonnull(strstr(heard[1].s, " 8:4 "));
	str_free(&heard[1]);
	free(value);
	over();
}
END_TEST

/* A host that asks and does not read keeps some answers waiting, and no more. */
START_TEST(host_that_does_not_read)
{
	enum { EACH = 1 << 20 };
	char *value = xcalloc(1, EACH + 1);
	size_t n = 0;

	memset(value, 'v', EACH);
	run_on();
	publish(0, 1, "a", value, false);
	g.agent[1]->full = true;
	while (n < 100) {
		SAY(1, lookup, .rank = 2, .id = 1, KEYS(0, 1));
		n++;
	}
	ck_assert(is_up(1));
	ck_assert_uint_lt(g.j.agents.host[1].out.len, 66 * (size_t)EACH);
	publish(0, 2, "b", "", false);
	SAY(0, event, .rank = 0, .code = 3);
	g.agent[1]->full = false;
	g.agent[1]->events->writable(g.agent[1]->ctx);
	ck_assert_ptr_nonnull(strstr(heard[1].s, "1:0 a=0/vvvvvvvvv "));
	ck_assert_ptr_nonnull(strstr(heard[1].s, " 1:4 "));
	ck_assert_ptr_null(strstr(heard[1].s, "!0/3"));
	heard_by(2, "!0/3/0/ ");
	free(value);
	over();
}
END_TEST

/* Many keys in one lookup, in all that wait of a host, and their bytes; another host is
 * not concerned. */
START_TEST(too_many_lookups)
{
	enum { KEYS_MOST = 4096, WAITING_MOST = 16384, BYTES_MOST = 1 << 20 };
	char *longest = xcalloc(1, 60001);
	const char **many = xcalloc(KEYS_MOST + 1, sizeof *many);
	size_t n;

	run_on();
	for (size_t i = 0; i <= KEYS_MOST; i++)
		many[i] = "x";
	SAY(0, lookup, .rank = 0, .id = 1, .keys = { many, KEYS_MOST + 1 });
	SAY(0, lookup, .rank = 0, .id = 2, .keys = { many, KEYS_MOST });
	heard_by(0, "1:4 2:2 ");
	for (n = 0; n < WAITING_MOST / KEYS_MOST; n++)
		SAY(0, lookup, .rank = 0, .id = 3, .wait = 1,
		    .keys = { many, KEYS_MOST });
	heard_by(0, "");
	SAY(0, lookup, .rank = 1, .id = 4, .wait = 1, KEYS(0, 1));
	SAY(1, lookup, .rank = 2, .id = 5, .wait = 1, KEYS(0, 1));
	all_heard("4:4 ", "", "");
	exits(g.agent[0], 0, 0); /* its lookups go with it */
	deliver(g.agent[0]);
	turn();
	SAY(0, lookup, .rank = 1, .id = 6, .wait = 1, KEYS(0, 1));
	heard_by(0, "");
	memset(longest, 'y', 60000);
	for (n = 0; n < BYTES_MOST / 60000; n++)
		SAY(0, lookup, .rank = 1, .id = 7, .wait = 1,
		    .keys = { (const char *const[]){ longest }, 1 });
	heard_by(0, "");
	SAY(0, lookup, .rank = 1, .id = 8, .wait = 1,
	    .keys = { (const char *const[]){ longest }, 1 });
	heard_by(0, "8:4 ");
	publish(4, 1, "a", "v", false);
	all_heard("6:0 a=4/v ", "5:0 a=4/v ", "1:0 ");
	free(many);
	free(longest);
	over();
}
END_TEST

/* However many there are, each one is found at once. */
START_TEST(many_names)
{
	enum { NAMES = 16384, EACH = 4096 };
	static char text[NAMES][8];
	const char **many = xcalloc(NAMES, sizeof *many);
	uint32_t *sizes = xcalloc(NAMES, sizeof *sizes);

	run_on();
	for (size_t i = 0; i < NAMES; i++) {
		snprintf(text[i], sizeof text[i], "%zu", i);
		many[i] = text[i];
	}
	SAY(0, publish, .rank = 0, .id = 1, .keys = { many, NAMES },
	    .sizes = { sizes, NAMES });
	SAY(1, publish, .rank = 2, .id = 2, .keys = { many, 1 }, .sizes = { sizes, 1 });
	all_heard("1:0 ", "2:3 ", "");
	for (size_t i = 0; i < NAMES / EACH; i++)
		SAY(1, lookup, .rank = 2, .id = 3, .keys = { many + i * EACH, EACH });
	for (size_t i = 0; i < 1000; i++)
		SAY(1, lookup, .rank = 2, .id = 4, .wait = 1, KEYS(0, 1));
	for (size_t i = 0; i < 1000; i++)
		SAY(2, lookup, .rank = 4, .id = 5, .keys = { &many[i], 1 });
	str_free(&heard[1]);
	str_free(&heard[2]);
	SAY(0, unpublish, .rank = 0, .id = 6, .keys = { many, NAMES });
	SAY(0, publish, .rank = 0, .id = 7, .keys = { many, NAMES },
	    .sizes = { sizes, NAMES });
	SAY(0, unpublish, .rank = 0, .id = 8);
	heard_by(0, "6:0 7:0 8:0 ");
	free(many);
	free(sizes);
	over();
}
END_TEST

/* ---- events ---- */

START_TEST(events)
{
	run_on();
	SAY(1, event, .rank = 3, .code = 7, .range = 2, .info = { "xy", 2 });
	all_heard("!3/7/2/xy ", "", "!3/7/2/xy ");
	lose(g.agent[2]);
	turn();
	SAY(1, event, .rank = 2, .code = 8, .range = 2);
	all_heard("!2/8/2/ ", "", "");
	over();
}
END_TEST

/* ---- what cannot be: host 0 is given up ---- */

START_TEST(cannot_be)
{
	static const uint32_t sizes[] = { 1, 2 }, far[] = { UINT32_MAX, 4 };

	run_on();
	switch (_i) {
	case 0:
		SAY(0, publish, .rank = 2, KEYS(0, 1), .sizes = { sizes, 1 },
		    .values = { "x", 1 });
		break;
	case 1:
		SAY(0, publish, .rank = NP);
		break;
	case 2:
		SAY(0, publish, .rank = 0, KEYS(0, 1), .sizes = { sizes, 2 },
		    .values = { "xyz", 3 });
		break;
	case 3:
		SAY(0, publish, .rank = 0, KEYS(0, 2), .sizes = { sizes, 2 },
		    .values = { "xy", 2 });
		break;
	case 4:
		SAY(0, publish, .rank = 0, KEYS(0, 2), .sizes = { sizes, 2 },
		    .values = { "xyzz", 4 });
		break;
	case 5:
		SAY(0, publish, .rank = 0, KEYS(0, 2), .sizes = { far, 2 },
		    .values = { "xyz", 3 });
		break;
	case 6:
		SAY(0, lookup, .rank = 2, KEYS(0, 1));
		break;
	case 7:
		SAY(0, unpublish, .rank = 5, KEYS(0, 1));
		break;
	case 8:
		SAY(0, unpublish, .rank = UINT32_MAX);
		break;
	default:
		SAY(0, event, .rank = 4);
	}
	ck_assert(!is_up(0));
	SAY(1, lookup, .rank = 2, .id = 1, KEYS(0, 2));
	heard_by(1, "1:2 ");
	over();
}
END_TEST

START_TEST(too_early)
{
	quiet();
	rig_open(HOSTS, "--stdin none -np 6");
	job_begin(&g.j);
	turn();
	while (g.j.phase < JOB_PLACE) {
		for (size_t i = 0; i < g.nconns && g.j.phase < JOB_PLACE; i++)
			if (has_answer(g.conn[i]))
				deliver(g.conn[i]);
		turn();
	}
	if (_i == 0)
		SAY(0, publish, .rank = 0);
	else if (_i == 1)
		SAY(0, lookup, .rank = 0);
	else if (_i == 2)
		SAY(0, unpublish, .rank = 0);
	else
		SAY(0, event, .rank = 0);
	ck_assert(!is_up(0));
	over();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job_names");
	TCase *t = tcase_create("names");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, published_and_looked_up);
	tcase_add_test(t, not_all_is_there);
	tcase_add_test(t, duplicates);
	tcase_add_test(t, unpublished);
	tcase_add_test(t, read_once);
	tcase_add_test(t, awaited);
	tcase_add_test(t, awaited_for_so_long);
	tcase_add_loop_test(t, rank_ends, 0, 2);
	tcase_add_test(t, too_many_bytes);
	tcase_add_test(t, host_that_does_not_read);
	tcase_add_test(t, too_many_lookups);
	tcase_add_test(t, many_names);
	tcase_add_test(t, events);
	tcase_add_loop_test(t, cannot_be, 0, 10);
	tcase_add_loop_test(t, too_early, 0, 4);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
