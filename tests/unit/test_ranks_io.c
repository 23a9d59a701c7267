/* berth-agent from the launcher's end of its stream: output, input, credit.
 * takes_s: 3 */
#include "far.h"

static struct far far;

static void job(const struct far_job *j)
{
	far_open(&far, NULL, NULL);
	far_start(&far, j);
}

/* Wait for all N ranks, then end the job and let the agent go. */
static void finish(size_t n)
{
	far_until(&far, far.nended == n);
	FAR_SEND(&far, stop, far.epoch, 1000);
	far_until(&far, far.gone);
	ck_assert_uint_eq(far.unkillable, 0);
}

/* ---- output ---- */

START_TEST(two_streams_byte_exact)
{
	job(&(struct far_job){
		.argv = { SH("printf 'a\\0\\377b\\r\\n'; printf 'no end' >&2") } });
	finish(1);
	ck_assert_uint_eq(far.rank[0].out[1].len, 6);
	ck_assert_mem_eq(far.rank[0].out[1].s, "a\0\377b\r\n", 6);
	ck_assert_str_eq(str_text(&far.rank[0].out[2]), "no end");
	far_close(&far);
}
END_TEST

START_TEST(stdout_is_a_raw_pty)
{
	job(&(struct far_job){
		.argv = { SH("test -t 1 && ! test -t 2 && printf 'x\\n\\ty\\n'") },
		.flags = JOB_PTY,
		.n = 3 });
	finish(3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq((int)far.rank[i].status, 0);
		ck_assert_str_eq(str_text(&far.rank[i].out[1]), "x\n\ty\n");
	}
	far_close(&far);
}
END_TEST

/* NCCL's log is a pipe that ranks do not inherit.  Both ways to open it; a rank whose
 * user has chosen a level gets none. */
START_TEST(log_of_nccl)
{
	static const char *const own[] = { "PATH=/usr/bin:/bin", "NCCL_DEBUG=INFO",
					   NULL };
	static const char script[] =
		"for i in 1 2 3; do echo line $i > \"${NCCL_DEBUG_FILE-/dev/null}\"; "
		"done; "
		"echo no end | tr -d '\\n' >> \"${NCCL_DEBUG_FILE-/dev/null}\"; "
		"echo \"$NCCL_DEBUG ${NCCL_DEBUG_SUBSYS-unset} $(ls /proc/self/fd | wc "
		"-l)\"";

	for (int i = 0; i < 2; i++) {
		job(&(struct far_job){ .argv = { SH(script) },
				       .flags = JOB_NCCL_LOG,
				       .env = i ? own : NULL,
				       .n = 3 });
		finish(3);
		for (int k = 0; k < 3; k++) {
			ck_assert_int_eq((int)far.rank[k].status, 0);
			ck_assert_str_eq(str_text(&far.rank[k].out[1]),
					 i ? "INFO unset 5\n" : "INFO INIT 5\n");
			ck_assert_str_eq(str_text(&far.rank[k].out[3]),
					 i ? "" : "line 1\nline 2\nline 3\nno end");
			ck_assert_str_eq(str_text(&far.rank[k].out[2]), "");
		}
		far_close(&far);
	}
}
END_TEST

/* A new pty has the size that came last, and a rank hears of a new one. */
START_TEST(pty_has_the_size_of_the_window)
{
	far_open(&far, NULL, NULL);
	FAR_SEND(&far, window, 24, 80);
	FAR_SEND(&far, window, 40, 132);
	far_start(&far,
		  &(struct far_job){
			  .argv = { SH("trap 'stty size <&1; exit' WINCH; stty "
				       "size <&1; while :; do sleep 0.01; done") },
			  .flags = JOB_PTY,
			  .n = 2 });
	far_until(&far, far.rank[0].out[1].len && far.rank[1].out[1].len);
	FAR_SEND(&far, window, 50, 100);
	finish(2);
	for (int i = 0; i < 2; i++)
		ck_assert_str_eq(str_text(&far.rank[i].out[1]), "40 132\n50 100\n");
	far_close(&far);
}
END_TEST

static long rss_kib(pid_t guardian)
{
	char path[64], line[256];
	long kib = -1, agent = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", guardian, guardian);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%ld", &agent) != 1)
		agent = guardian; /* a kernel without that file */
	if (f)
		fclose(f);
	snprintf(path, sizeof path, "/proc/%ld/status", agent);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

START_TEST(no_credit_no_output)
{
	enum { CREDIT = 65536, ALL = 64 << 20 };
	long before, after;

	far_open(&far, NULL, NULL);
	before = rss_kib(far.guardian);
	far_start(&far, &(struct far_job){
				.argv = { ARGV("head", "-c", "67108864", "/dev/zero") },
				.credit = CREDIT });
	far_until(&far, far.credit_left <= WIRE_OUTPUT_HEAD_BYTES);
	for (int i = 0; i < 20; i++)
		far_sync(&far); /* heartbeats are answered, and no byte comes */
	ck_assert_uint_gt(far.output_bytes, 0);
	ck_assert_uint_lt(far.output_bytes, CREDIT);
	after = rss_kib(far.guardian);
	ck_assert_msg(after - before < 4096, "%ld KiB, then %ld", before, after);
	/* the rest as the launcher takes it */
	far.refill = true;
	far.credit_left += CREDIT;
	FAR_SEND(&far, credit, far.epoch, CREDIT);
	finish(1);
	ck_assert_uint_eq(far.output_bytes, ALL);
	ck_assert_int_eq((int)far.rank[0].status, 0);
	far_close(&far);
}
END_TEST

/* Every pipe is full before the first byte is asked for, and all that is asked for is
 * in there: who writes to it may get its turns late.  That the ranks have ended says
 * so. */
START_TEST(credit_is_shared_fairly)
{
	enum { N = 8, STEP = 16384 };

	job(&(struct far_job){
		.argv = { SH("head -c 65536 /dev/zero; cat /dev/zero & exit 0") },
		.n = N,
		.credit = 1 });
	far_until(&far, far.nended == N);
	for (int i = 0; i < 3 * N; i++) {
		far.credit_left += STEP;
		FAR_SEND(&far, credit, far.epoch, STEP);
		far_until(&far, far.credit_left <= WIRE_OUTPUT_HEAD_BYTES);
	}
	for (int i = 0; i < N; i++)
		ck_assert_msg(far.rank[i].out[1].len > 2 * STEP, "rank %d: %zu bytes",
			      i, far.rank[i].out[1].len);
	FAR_SEND(&far, stop, far.epoch, 0);
	far.refill = true;
	far.credit_left += 1 << 20;
	FAR_SEND(&far, credit, far.epoch, 1 << 20);
	far_until(&far, far.gone);
	far_close(&far);
}
END_TEST

START_TEST(output_before_its_ending)
{
	/* More than a pipe holds in one read, both streams. */
	job(&(struct far_job){ .argv = { SH("head -c 200000 /dev/zero; exit 4") },
			       .n = 4 });
	finish(4);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(far.rank[i].out_at_end, 200000);
	far_close(&far);
}
END_TEST

START_TEST(endings_pass_a_stopped_reader)
{
	/* a pipe takes so much without a reader */
	job(&(struct far_job){ .argv = { SH("head -c 65536 /dev/zero; exit 5") },
			       .credit = 1000 });
	far_until(&far, far.nended == 1);
	ck_assert_int_eq((int)far.rank[0].status, W_EXITCODE(5, 0));
	FAR_SEND(&far, stop, far.epoch, 0);
	far_until(&far, far.ending);
	far_sync(&far);
	ck_assert(!far.gone); /* 64 KiB are still to come */
	far.refill = true;
	far.credit_left += 1 << 20;
	FAR_SEND(&far, credit, far.epoch, 1 << 20);
	far_until(&far, far.gone);
	ck_assert_uint_eq(far.output_bytes, 65536);
	far_close(&far);
}
END_TEST

/* The child waits until its shell has been reaped. */
START_TEST(background_child_goes_on_writing)
{
	const char *script = "(while kill -0 $$ 2>&-; do :; done; echo late) & exit 0";

	job(&(struct far_job){ .argv = { SH(script) } });
	/* in either order: the reaper drains the pipes before it tells of the end */
	far_until(&far, far.rank[0].out[1].len == 5 && far.rank[0].ended);
	finish(1);
	far_close(&far);
}
END_TEST

/* ---- input ---- */

static void send_input(const char *p, size_t n)
{
	while (n) {
		uint32_t part = n < WIRE_DATA_MAX ? (uint32_t)n : WIRE_DATA_MAX;

		far_until(&far, far.input_credit >= part);
		far.input_credit -= part;
		FAR_SEND(&far, input, far.epoch, { p, part });
		p += part;
		n -= part;
	}
}

static char *noise(size_t n)
{
	char *p = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 2654435761u >> 13);
	return p;
}

START_TEST(stdin_of_one_rank)
{
	enum { N = 3000000 };
	char *data = noise(N);

	job(&(struct far_job){
		.argv = { ARGV("cat") }, .n = 3, .stdin_rank_plus_1 = 2 });
	send_input(data, N);
	FAR_SEND(&far, input, far.epoch, { "", 0 });
	finish(3);
	ck_assert_uint_eq(far.rank[0].out[1].len, 0);
	ck_assert_uint_eq(far.rank[1].out[1].len, N);
	ck_assert_mem_eq(far.rank[1].out[1].s, data, N);
	far_close(&far);
	free(data);
}
END_TEST

START_TEST(stdin_of_all)
{
	enum { N = 1000000 };
	char *data = noise(N);

	job(&(struct far_job){ .argv = { ARGV("cat"), ARGV("true"), ARGV("wc", "-c") },
			       .stdin_all = true });
	send_input(data, N);
	FAR_SEND(&far, input, far.epoch, { "", 0 });
	finish(3);
	ck_assert_uint_eq(far.rank[0].out[1].len, N);
	ck_assert_mem_eq(far.rank[0].out[1].s, data, N);
	ck_assert_str_eq(str_text(&far.rank[2].out[1]), "1000000\n");
	far_close(&far);
	free(data);
}
END_TEST

START_TEST(stdin_waits_for_the_slowest)
{
	char *data = noise(1 << 20);

	job(&(struct far_job){ .argv = { ARGV("cat"), SH("while :; do sleep 9; done") },
			       .stdin_all = true });
	far_until(&far, far.input_credit == 262144);
	send_input(data, 262144);
	far_until(&far, far.rank[0].out[1].len == 262144);
	far_sync(&far);
	ck_assert_uint_lt(far.input_credit, 131072); /* what its pipe took, no more */
	FAR_SEND(&far, stop, far.epoch, 0);
	far_until(&far, far.gone);
	far_close(&far);
	free(data);
}
END_TEST

START_TEST(no_stdin_is_empty)
{
	job(&(struct far_job){ .argv = { ARGV("cat") }, .n = 2 });
	finish(2);
	ck_assert_uint_eq(far.input_credit, 0);
	ck_assert_int_eq((int)far.rank[0].status, 0);
	far_close(&far);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("io");
	TCase *t = tcase_create("agent_io");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, two_streams_byte_exact);
	tcase_add_test(t, stdout_is_a_raw_pty);
	tcase_add_test(t, log_of_nccl);
	tcase_add_test(t, pty_has_the_size_of_the_window);
	tcase_add_test(t, no_credit_no_output);
	tcase_add_test(t, credit_is_shared_fairly);
	tcase_add_test(t, output_before_its_ending);
	tcase_add_test(t, endings_pass_a_stopped_reader);
	tcase_add_test(t, background_child_goes_on_writing);
	tcase_add_test(t, stdin_of_one_rank);
	tcase_add_test(t, stdin_of_all);
	tcase_add_test(t, stdin_waits_for_the_slowest);
	tcase_add_test(t, no_stdin_is_empty);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
