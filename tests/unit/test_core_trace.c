/* lib/trace: records and words; lib/timeline: read back by Python's parser.
 * takes_s: 2 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/core/op.h"
#include "lib/core/trace.h"

/* ---- words ---- */

static const struct coll sum = {
	.kind = BERTH_ALLREDUCE, .count = 1024, .type = BERTH_F32, .op = BERTH_SUM
};

START_TEST(words)
{
	static const struct {
		struct coll c;
		const char *name, *text;
	} cases[] = {
		{ { .kind = BERTH_REDUCE,
		    .count = UINT64_MAX,
		    .type = BERTH_BF16,
		    .op = BERTH_MAX,
		    .root = 3 },
		  "g",
		  "reduce \"g\" of 18446744073709551615 bf16 to rank 3, max" },
		{ { .kind = BERTH_BROADCAST, .count = 0, .type = BERTH_U8, .root = 2 },
		  "",
		  "broadcast of 0 u8 from rank 2" },
		{ { .kind = BERTH_BARRIER }, NULL, "barrier" },
		{ { .kind = BERTH_ALLTOALL, .count = 9, .type = BERTH_BOOL },
		  "t",
		  "alltoall \"t\" of 9 bool" },
		{ { .kind = BERTH_REDUCESCATTER,
		    .count = 7,
		    .type = BERTH_I64,
		    .op = BERTH_BXOR },
		  "t",
		  "reducescatter \"t\" of 7 i64, bxor" },
	};
	const struct op grad = { .coll = sum, .name = "grad" };
	char text[128];

	op_words(text, sizeof text, &grad);
	ck_assert_str_eq(text, "allreduce \"grad\" of 1024 f32, sum");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct op op = { .coll = cases[i].c, .name = cases[i].name };

		op_words(text, sizeof text, &op);
		ck_assert_str_eq(text, cases[i].text);
	}
	/* cut anywhere */
	for (size_t n = 1; n < 40; n++) {
		memset(text, 'x', sizeof text);
		op_words(text, n, &grad);
		ck_assert_uint_eq(strlen(text), n <= 33 ? n - 1 : 33);
		ck_assert_int_eq(text[n], 'x');
	}
}
END_TEST

/* ---- records ---- */

/* The second of two ranks. */
static struct memory *make(void)
{
	struct memory *m = calloc(1, sizeof *m);

	m->rank = aligned_alloc(64, 2 * sizeof *m->rank);
	memset(m->rank, 0, 2 * sizeof *m->rank);
	m->records = calloc(2 * BOOT_RECORDS, sizeof *m->records);
	m->records += BOOT_RECORDS;
	m->local_rank = 1;
	m->local_size = 2;
	m->rank[1].state = BOOT_JOINED;
	return m;
}

static void unmake(struct memory *m)
{
	free(m->rank);
	free(m->records - BOOT_RECORDS);
	free(m);
}

START_TEST(records)
{
	struct memory *m = make();
	struct coll c = sum;
	uint64_t before = clock_coarse_ns();
	struct boot_record *f;

	ck_assert_uint_eq(sizeof *f, 64);
	for (unsigned i = 1; i <= BOOT_RECORDS + 5; i++) {
		c.count = i;
		f = trace_begin(m, &c, i % 2 ? "layer1.weight.of.more.than.20" : NULL,
				7, i, BOOT_RECORD_RUNS);
		ck_assert_ptr_eq(f, m->records + (i - 1) % BOOT_RECORDS);
		ck_assert_uint_eq(f->number, i);
		ck_assert_int_eq(f->state, BOOT_RECORD_RUNS);
		trace_end(f, i % 3 ? BERTH_OK : BERTH_TIMEOUT);
	}
	ck_assert_uint_eq(m->rank[1].number, BOOT_RECORDS + 5);
	f = m->records + 4;
	ck_assert_uint_eq(f->count, BOOT_RECORDS + 5);
	ck_assert_uint_eq(f->seq, BOOT_RECORDS + 5);
	ck_assert_uint_eq(f->set, 7);
	ck_assert_int_eq(f->kind, BERTH_ALLREDUCE);
	ck_assert_int_eq(f->type, BERTH_F32);
	ck_assert_str_eq(f->name, "layer1.weight.of.mo");
	ck_assert_uint_ge(f->begun, before);
	ck_assert_uint_le(f->begun, clock_ns());
	ck_assert_uint_eq(f->ended, 0);
	ck_assert_str_eq(m->records[3].name, "");
	ck_assert_int_eq(m->records[4].state, BOOT_RECORD_FAILED);
	ck_assert_int_eq(m->records[3].state, BOOT_RECORD_DONE);
	trace_end_late(f, BERTH_OK);
	ck_assert_uint_ge(f->ended, f->begun);
	unmake(m);
}
END_TEST

static void *fly(void *arg)
{
	struct memory *m = arg;

	for (int i = 0; i < 1000; i++)
		trace_end(trace_begin(m, &sum, "t", 0, 1, BOOT_RECORD_RUNS), BERTH_OK);
	return NULL;
}

START_TEST(records_of_threads)
{
	struct memory *m = make();
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, fly, m);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(m->rank[1].number, 4000);
	for (unsigned i = 0; i < 4000; i++) {
		ck_assert_uint_eq(m->records[i].number, i + 1);
		ck_assert_int_eq(m->records[i].state, BOOT_RECORD_DONE);
	}
	unmake(m);
}
END_TEST

static const char *last(struct memory *m, unsigned local)
{
	static char text[128];

	trace_last(text, sizeof text, m, local);
	return text;
}

/* What is said of rank 1 when *WHEN was MS ago: said at once, since a moment later it
 * is another age. */
static const char *last_after(struct memory *m, uint64_t *when, unsigned ms)
{
	const char *text;
	uint64_t now;

	do {
		now = clock_coarse_ns();
		*when = now - ms * (uint64_t)1000000;
		text = last(m, 1);
	} while (clock_coarse_ns() - now >= 40000000);
	return text;
}

START_TEST(last_ones)
{
	const struct coll b = { .kind = BERTH_BARRIER };
	struct memory *m = make();
	struct boot_record *f, *g;

	ck_assert_str_eq(last(m, 0), "it has not joined");
	ck_assert_str_eq(last(m, 1), "no operation yet");
	f = trace_begin(m, &sum, "grad", 0, 1, BOOT_RECORD_QUEUED);
	ck_assert_str_eq(last_after(m, &f->begun, 2500),
			 "allreduce \"grad\" of 1024 f32, sum, queued 2.5 s ago");
	trace_runs(f);
	ck_assert_str_eq(last_after(m, &f->begun, 2500),
			 "allreduce \"grad\" of 1024 f32, sum, begun 2.5 s ago");
	trace_end(f, BERTH_OK);
	ck_assert_str_eq(last_after(m, &f->begun, 31100),
			 "allreduce \"grad\" of 1024 f32, sum, done 31 s ago");
	trace_end_late(f, BERTH_PEER_LOST);
	ck_assert_str_eq(last_after(m, &f->ended, 0),
			 "allreduce \"grad\" of 1024 f32, sum, failed 0.0 s ago");
	/* what it is in says more than what it did after that had begun */
	g = trace_begin(m, &b, NULL, 0, 2, BOOT_RECORD_RUNS);
	f = trace_begin(m, &sum, "other", 0, 2, BOOT_RECORD_DONE);
	ck_assert_str_eq(last_after(m, &g->begun, 0), "barrier, begun 0.0 s ago");
	trace_end(g, BERTH_OK);
	ck_assert_str_eq(last_after(m, &f->begun, 0),
			 "allreduce \"other\" of 1024 f32, sum, done 0.0 s ago");
	m->rank[1].state = BOOT_LEFT;
	ck_assert_str_eq(
		last_after(m, &f->begun, 0),
		"allreduce \"other\" of 1024 f32, sum, done 0.0 s ago, then it left");
	/* while it is written the one before counts; nothing that stands there harms */
	f->number = 0;
	m->rank[1].state = BOOT_JOINED;
	ck_assert_str_eq(last_after(m, &g->begun, 0), "barrier, done 0.0 s ago");
	g->kind = f->kind = 200;
	f->type = f->op = 255;
	f->state = 77;
	f->begun = UINT64_MAX;
	f->number = 3;
	memset(f->name, 'n', sizeof f->name);
	ck_assert_str_eq(last(m, 1),
			 "operation \"nnnnnnnnnnnnnnnnnnnn\" of 1024 ?,  0.0 s ago");
	m->rank[1].number = UINT64_MAX;
	ck_assert_str_eq(last(m, 1), "no operation yet");
	unmake(m);
}
END_TEST

/* ---- the timeline ---- */

static char dir[] = "/tmp/berth-timeline-XXXXXX", path[64], why[256];

static void enter(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/t", dir);
}

static void clean(void)
{
	char name[80];

	unlink(path);
	for (int i = 1; i < 10; i++) {
		snprintf(name, sizeof name, "%s.%d", path, i);
		unlink(name);
	}
	rmdir(dir);
}

/* Python's opinion of the file of rank RANK, which has the plain name if that is 0: the
 * program gets the list of events as "e". */
static void python(unsigned rank, const char *program)
{
	char name[80], text[4096];
	int status;
	pid_t pid;

	if (rank)
		snprintf(name, sizeof name, "%s.%u", path, rank);
	else
		snprintf(name, sizeof name, "%s", path);
	snprintf(text, sizeof text,
		 "import json, sys\n"
		 "e = json.load(open(sys.argv[1], encoding='utf-8'))\n"
		 "x = [v for v in e if v['ph'] == 'X']\n"
		 "row = {v['tid']: v['args']['name'] for v in e\n"
		 "       if v['name'] == 'thread_name'}\n"
		 "assert all(v['pid'] == %u for v in e)\n"
		 "assert e[0]['name'] == 'berth_timeline'\n"
		 "assert e[1]['name'] == 'process_name'\n"
		 "assert e[1]['args']['name'] == 'rank %u'\n"
		 "assert len(set(row.values())) == len(row)\n"
		 "%s",
		 rank, rank, program);
	pid = fork();
	if (!pid) {
		execlp("python3", "python3", "-c", text, name, NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!status, "python3 says no to: %s", program);
}

START_TEST(few_events)
{
	timeline_event("t", "ALLREDUCE", 1, 2); /* none is written */
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_STATE);
	ck_assert_str_eq(why, "no timeline is written");
	ck_assert_int_eq(timeline_start(path, 3, -1000, why, sizeof why), BERTH_OK);
	ck_assert_int_eq(timeline_start(path, 3, 0, why, sizeof why), BERTH_STATE);
	ck_assert_ptr_nonnull(strstr(why, "/t.3\""));
	timeline_event("layer1", "ALLREDUCE", 1234567891, 1234569000);
	timeline_event("a \"\\\t\x7f\xc3\xa9\xff\xf0\x9f\x98\x80\xed\xa0\x80", "QUEUE",
		       1500, 1400);
	timeline_event(NULL, "BARRIER", 500, UINT64_MAX / 4);
	timeline_event("layer1", "QUEUE", 9000000000000000123u, 9000000000000000124u);
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	timeline_event("t", "LATE", 1, 2);
	python(3,
	       "assert [v['name'] for v in x] == "
	       "['ALLREDUCE', 'QUEUE', 'BARRIER', 'QUEUE']\n"
	       "assert x[0]['ts'] == 1234566.891 and x[0]['dur'] == 1.109\n"
	       "assert row[x[0]['tid']] == row[x[3]['tid']] == 'layer1'\n"
	       "assert row[x[1]['tid']] == "
	       "'a \"\\\\\\t\\x7f\\xe9\\ufffd\\U0001f600\\ufffd\\ufffd\\ufffd'\n"
	       "assert x[1]['ts'] == 0.5 and x[1]['dur'] == 0\n"
	       "assert x[2]['ts'] == -0.5 and row[x[2]['tid']] == 'without a name'\n");
	/* and anew */
	ck_assert_int_eq(timeline_start(path, 3, 0, why, sizeof why), BERTH_OK);
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	python(3, "assert not x and len(row) == 2");
}
END_TEST

static void operation(const char *name, uint32_t seq, uint64_t like)
{
	const struct timeline_op op = { .set = 3,
					.seq = seq,
					.part = 1,
					.of = 2,
					.world = 7,
					.called_ns = 1000,
					.bytes = 64,
					.like = like };

	timeline_operation(name, "ALLREDUCE", 3500, 4000, &op);
}

/* A step begins with an operation that the step before it had, too. */
START_TEST(steps)
{
	ck_assert_int_eq(timeline_start(path, 3, 0, why, sizeof why), BERTH_OK);
	for (uint32_t i = 0; i < 3; i++) {
		operation("a", 10 * i, 0);
		operation(NULL, 10 * i + 1, 5);
		operation(NULL, 10 * i + 2, 6);
		if (i == 1)
			operation("rare", 15, 0);
	}
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	python(3, "assert [v['args']['step'] for v in x] == [1, 1, 1, 2, 2, 2, 2, 3, "
		  "3, 3]\n"
		  "assert x[0]['args'] == {'set': 3, 'seq': 0, 'part': 1, 'of': 2, "
		  "'world': 7,\n"
		  "                        'step': 1, 'waited': 2.5, 'bytes': 64}\n");
}
END_TEST

/* The file of the agent has no name; the process writes its steps there. */
START_TEST(of_the_job)
{
	char name[] = "/tmp/berth-timeline-XXXXXX", given[80], all[8192];
	const int fd = mkstemp(name);
	ssize_t n;

	snprintf(given, sizeof given, "2-3:/proc/self/fd/%d", fd);
	ck_assert(!timeline_start_job(given, 3, 0)); /* it has one */
	unlink(name);
	ck_assert(!timeline_start_job("2-3", 3, 0));
	ck_assert(!timeline_start_job("2-3:/proc/self/fd/9999", 3, 0));
	ck_assert(timeline_start_job(given, 3, 0));
	ck_assert_int_eq(timeline_start(path, 3, 0, why, sizeof why), BERTH_OK);
	for (uint32_t i = 1; i < 6; i++)
		operation("a", i, 0);
	ck_assert_int_eq(timeline_runs, 1 << TIMELINE_CALLER);
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	python(3, "assert [v['args']['step'] for v in x] == [1, 2, 3, 4, 5]");
	n = pread(fd, all, sizeof all - 1, 0);
	ck_assert_int_gt(n, 2);
	all[n] = '\0';
	ck_assert_str_eq(all + n - 3, "\n]\n");
	ck_assert_ptr_null(strstr(all, "\"step\":1"));
	ck_assert_ptr_nonnull(strstr(all, "\"step\":2"));
	ck_assert_ptr_nonnull(strstr(all, "\"step\":3"));
	ck_assert_ptr_null(strstr(all, "\"step\":4"));
	close(fd);
}
END_TEST

START_TEST(many_names)
{
	char name[2000];

	memset(name, '\1', sizeof name);
	name[sizeof name - 1] = '\0';
	ck_assert_int_eq(timeline_start(path, 0, 0, why, sizeof why), BERTH_OK);
	timeline_event(name, "LONG", 0, 1);
	for (unsigned i = 0; i < 70000; i++) {
		snprintf(name, sizeof name, "tensor %u", i);
		timeline_event(name, "FIRST", i, i + 1);
		timeline_event(name, "AGAIN", i, i + 1);
	}
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	python(0, "assert len(x) == 140001 and len(row) == 2 + 65536\n"
		  "assert row[x[0]['tid']] == '\\1' * 1024\n"
		  "assert row[x[99]['tid']] == row[x[100]['tid']] == 'tensor 49'\n"
		  "assert row[x[-1]['tid']] == 'others'\n");
}
END_TEST

/* A process that is killed leaves whole events, which lack only the last bracket. */
START_TEST(cut)
{
	char name[80], *text;
	struct stat s;
	FILE *f;

	ck_assert_int_eq(timeline_start(path, 1, 0, why, sizeof why), BERTH_OK);
	for (unsigned i = 0; i < 5000; i++)
		timeline_event("t", "ALLREDUCE", i, i + 1);
	snprintf(name, sizeof name, "%s.1", path);
	ck_assert_int_eq(stat(name, &s), 0);
	ck_assert_int_gt(s.st_size, 200000);
	text = malloc((size_t)s.st_size + 3);
	f = fopen(name, "r+");
	ck_assert_uint_eq(fread(text, 1, (size_t)s.st_size, f), (size_t)s.st_size);
	memcpy(text + s.st_size, "\n]", 3);
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	rewind(f);
	fputs(text, f);
	ck_assert_int_eq(ftruncate(fileno(f), s.st_size + 2), 0);
	fclose(f);
	free(text);
	python(1, "assert 4000 < len(x) < 5000\n");
}
END_TEST

enum { THREADS = 6, EACH = 5000 };

static void *draw(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	char name[32];

	for (unsigned i = 0; i < EACH; i++) {
		snprintf(name, sizeof name, "tensor %u", (me * 7 + i) % 100);
		timeline_event(name, "ALLREDUCE", me * EACH + i, me * EACH + i + 1);
	}
	return NULL;
}

START_TEST(of_threads)
{
	pthread_t t[THREADS];

	ck_assert_int_eq(timeline_start(path, 2, 0, why, sizeof why), BERTH_OK);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, draw, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	python(2, "assert sorted(round(v['ts'] * 1000) for v in x) == "
		  "list(range(6 * 5000))\n"
		  "for v in x:\n"
		  "    n = round(v['ts'] * 1000)\n"
		  "    assert row[v['tid']] == "
		  "'tensor %d' % ((n // 5000 * 7 + n % 5000) % 100)\n");
}
END_TEST

/* Started and stopped while others draw. */
START_TEST(at_any_time)
{
	pthread_t t[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, draw, (void *)i);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(timeline_start(path, 4, 0, why, sizeof why), BERTH_OK);
		ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why),
				 BERTH_OK);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	python(4, "");
}
END_TEST

START_TEST(not_writable)
{
	ck_assert_int_eq(timeline_start("/nonexistent/t", 0, 0, why, sizeof why),
			 BERTH_SYSTEM);
	ck_assert_str_eq(why, "the timeline \"/nonexistent/t\" can't be written: "
			      "No such file or directory");
	ck_assert_int_eq(timeline_runs, 0);
	/* a limit, as a disk that is full */
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1000, 1000 }), 0);
	ck_assert_int_eq(timeline_start(path, 5, 0, why, sizeof why), BERTH_OK);
	for (unsigned i = 0; i < 5000; i++)
		timeline_event("t", "ALLREDUCE", i, i + 1);
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_SYSTEM);
	ck_assert_ptr_nonnull(
		strstr(why, "t.5\" could not be written: File too large"));
}
END_TEST

/* A name that others have put there before us is neither followed nor cut off. */
START_TEST(planted)
{
	static const char *const says[] = { "it is a link", "(a hard link)",
					    "it belongs to another user",
					    "it is not a regular file" };
	char name[80], precious[80], text[16] = "";
	int fd;

	if (_i == 2 && geteuid())
		return; /* only root makes files of others */
	snprintf(name, sizeof name, "%s.8", path);
	snprintf(precious, sizeof precious, "%s.9", path);
	fd = open(precious, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	ck_assert_int_eq(write(fd, "precious", 8), 8);
	ck_assert_int_eq(_i == 0   ? symlink(precious, name)
			 : _i == 1 ? link(precious, name)
			 : _i == 2 ? rename(precious, name) || fchown(fd, 65534, 65534)
				   : mkfifo(name, 0666),
			 0);
	ck_assert_int_eq(timeline_start(path, 8, 0, why, sizeof why), BERTH_SYSTEM);
	ck_assert_msg(strstr(why, says[_i]) != NULL, "%s", why);
	ck_assert_int_eq(pread(fd, text, sizeof text, 0), 8);
	ck_assert_str_eq(text, "precious");
	close(fd);
}
END_TEST

START_TEST(of_a_child)
{
	int status;
	pid_t pid;

	ck_assert_int_eq(timeline_start(path, 6, 0, why, sizeof why), BERTH_OK);
	timeline_event("t", "OURS", 1, 2);
	pid = fork();
	if (!pid) {
		timeline_in_child();
		timeline_event("t", "CHILDS", 3, 4);
		_exit(timeline_stop(TIMELINE_CALLER, why, sizeof why) != BERTH_STATE ||
		      timeline_start(path, 6, 0, why, sizeof why) != BERTH_STATE);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	timeline_event("t", "OURS", 3, 4);
	ck_assert_int_eq(timeline_stop(TIMELINE_CALLER, why, sizeof why), BERTH_OK);
	python(6, "assert [v['name'] for v in x] == ['OURS', 'OURS']\n");
	/* which may have one of its own once ours has ended */
	pid = fork();
	if (!pid) {
		timeline_in_child();
		_exit(timeline_start(path, 7, 0, why, sizeof why) != BERTH_OK ||
		      timeline_stop(TIMELINE_CALLER, why, sizeof why) != BERTH_OK);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	python(7, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trace");
	TCase *t = tcase_create("trace"), *line = tcase_create("timeline");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, words);
	tcase_add_test(t, records);
	tcase_add_test(t, records_of_threads);
	tcase_add_test(t, last_ones);
	suite_add_tcase(s, line);
	tcase_set_timeout(line, 60);
	tcase_add_checked_fixture(line, enter, clean);
	tcase_add_test(line, few_events);
	tcase_add_test(line, steps);
	tcase_add_test(line, of_the_job);
	tcase_add_test(line, many_names);
	tcase_add_test(line, cut);
	tcase_add_test(line, of_threads);
	tcase_add_test(line, at_any_time);
	tcase_add_test(line, not_writable);
	tcase_add_loop_test(line, planted, 0, 4);
	tcase_add_test(line, of_a_child);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed > 0;
}
