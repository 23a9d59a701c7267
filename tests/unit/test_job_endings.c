/* launcher/job: single endings of a job, from its first agent to its status. */
#include "tests/unit/job_rig.h"

/* All agents are up, and all ranks run. */
static void run_on(size_t nhosts, const char *options)
{
	quiet();
	rig_open(nhosts, options);
	job_begin(&g.j);
	turn();
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
}

static void end_rank(size_t host, uint32_t local, uint32_t code)
{
	now_ms += 1;
	exits(g.agent[host], local, code);
	deliver(g.agent[host]);
	turn();
}

/* The job is over, with STATUS. */
static void ended_with(int status)
{
	int got;

	ck_assert_int_eq(g.j.phase, JOB_DONE);
	got = job_finish(&g.j);
	rig_close();
	ck_assert_int_eq(got, status);
}

static void signal_comes(int signo)
{
	job_signal(&g.j, signo);
	turn();
}

static void lose_host(size_t host)
{
	now_ms += 1;
	lose(g.agent[host]);
	turn();
}

START_TEST(all_well)
{
	run_on(2, "--stdin none -np 4");
	for (uint32_t i = 0; i < 4; i++)
		end_rank(i / 2, i % 2, 0);
	deliver_all();
	ended_with(0);
}
END_TEST

START_TEST(term_then_the_last_agent_dies)
{
	run_on(1, "--stdin none -np 2");
	g.j.spec.managed = true; /* the grace has no end */
	signal_comes(SIGTERM);
	ck_assert_uint_eq(g.j.deadline_ms, 0);
	lose_host(0);
	deliver_all(); /* by the agent that cleans up */
	ck_assert(g.cleaned[0]);
	ended_with(143);
}
END_TEST

START_TEST(interrupt_has_a_grace_in_a_managed_job)
{
	run_on(1, "--stdin none -np 2 --kill-grace 2");
	g.r.kill_grace_given = false;
	g.j.spec.managed = true;
	signal_comes(SIGTERM);
	ck_assert_uint_eq(g.j.deadline_ms, 0);
	signal_comes(SIGINT);
	ck_assert_uint_eq(g.j.deadline_ms, now_ms + 2000);
	pass(2000);
	ck_assert_int_eq(g.j.phase, JOB_STOP);
	ck_assert_uint_eq(g.j.grace_ms, 2000); /* TERM, and KILL 2 s later */
	deliver_all();
	ended_with(143);
}
END_TEST

START_TEST(the_first_signal_starts_the_grace)
{
	run_on(1, "--stdin none -np 2 --kill-grace 2");
	signal_comes(SIGTERM);
	pass(1000);
	signal_comes(SIGTERM);
	signal_comes(SIGHUP);
	ck_assert_uint_eq(g.orders_of_kill, 0);
	pass(1000);
	ck_assert_uint_eq(g.orders_of_kill, 1);
	deliver_all();
	ended_with(143);
}
END_TEST

START_TEST(signals_before_the_first_hello)
{
	static const int signals[] = { SIGTERM, SIGHUP, SIGINT };

	quiet();
	rig_open(1, "--stdin none");
	g.j.agents.host[0].slots = SLOTS_AUTO; /* np is not known yet */
	job_begin(&g.j);
	turn();
	signal_comes(signals[_i]);
	ck_assert_int_eq(g.j.phase, JOB_DONE);
	ck_assert_int_eq(phase_death(&g.j), signals[_i] == SIGINT ? SIGINT : 0);
	ended_with(128 + signals[_i]);
}
END_TEST

START_TEST(interrupt_while_agents_start)
{
	quiet();
	rig_open(2, "--stdin none -np 4");
	job_begin(&g.j);
	turn();
	deliver(g.agent[0]);
	turn();
	g.agent[0]->mute = true; /* it does not even leave */
	signal_comes(SIGINT);
	ck_assert_int_eq(g.j.phase, JOB_CLOSE);
	pass(500);
	ended_with(130);
}
END_TEST

/* The report of the failure breaks the pipe. */
START_TEST(stderr_has_no_reader_before_a_restart)
{
	run_on(1, "--stdin none -np 2 --restarts 1");
	dup2(g.broken, 1); /* one sink: both are the same file */
	dup2(g.broken, 2);
	signal(SIGPIPE, SIG_IGN);
	end_rank(0, 0, 3);
	deliver_all();
	for (int i = 0; i < 5; i++, turn(), deliver_all())
		;
	ck_assert(g.j.unread);
	ck_assert_uint_le(g.j.epoch, 2);
	ck_assert_int_eq(phase_death(&g.j), SIGPIPE);
	ck_assert(!g.agent[0]->started || g.agent[0]->epoch == 1);
	ended_with(3);
}
END_TEST

/* The reader leaves when the agents of the next epoch are already asked. */
START_TEST(a_reader_leaves_while_the_next_epoch_starts)
{
	run_on(1, "--stdin none -np 1 --restarts 1");
	end_rank(0, 0, 3);
	while (g.j.epoch == 1) {
		deliver(g.agent[0]);
		turn();
	}
	ck_assert_int_eq(g.j.phase, JOB_PLACE);
	g.j.unread = g.j.unread_new = true;
	turn();
	deliver_all();
	ck_assert_int_eq(phase_death(&g.j), SIGPIPE);
	ck_assert(!g.agent[0]->started);
	ended_with(0);
}
END_TEST

START_TEST(time_stopped_counts_in_no_deadline)
{
	quiet();
	rig_open(2, "--stdin none -np 4 --start-timeout 5");
	job_begin(&g.j);
	turn();
	deliver(g.agent[0]); /* it is up, the other one is not */
	turn();
	now_ms += 4000;
	stopped_ms = 60000;
	__real_raise(SIGTSTP);
	for (int i = 0; i < 5; i++)
		turn();
	ck_assert_uint_eq(g.suspends, 1);
	ck_assert_int_eq(g.j.phase, JOB_LAUNCH);
	ck_assert_uint_eq(g.j.deadline_ms, now_ms + 3000);
	ck_assert_uint_eq(g.j.agents.setup.deadline_ms, now_ms + 1000);
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	signal_comes(SIGINT);
	signal_comes(SIGINT);
	deliver_all();
	ended_with(130);
}
END_TEST

START_TEST(term_between_an_end_and_its_restart)
{
	run_on(1, "--stdin none -np 2 --restarts 1");
	end_rank(0, 0, 3);
	ck_assert_int_eq(g.j.phase, JOB_FAIL);
	signal_comes(SIGTERM);
	deliver_all();
	ck_assert_uint_eq(g.j.epoch, 1);
	ended_with(143);
}
END_TEST

START_TEST(term_after_a_failure)
{
	run_on(1, "--stdin none -np 2");
	end_rank(0, 0, 3);
	signal_comes(SIGTERM);
	deliver_all();
	ended_with(3);
}
END_TEST

START_TEST(a_host_is_lost_whose_ranks_had_ended)
{
	run_on(2, "--stdin none -np 4");
	end_rank(1, 0, 0);
	end_rank(1, 1, 0);
	lose_host(1);
	deliver_all();
	ck_assert(g.cleaned[1]);
	ck_assert(g.agent[0]->told_stop);
	ended_with(241);
}
END_TEST

START_TEST(all_hosts_are_lost)
{
	run_on(2, _i ? "--stdin none -np 4 --restarts 2" : "--stdin none -np 4");
	lose_host(0);
	lose_host(1);
	deliver_all();
	ck_assert(g.cleaned[0] && g.cleaned[1]);
	ck_assert_uint_eq(g.j.epoch, 1);
	ended_with(241);
}
END_TEST

START_TEST(a_host_is_lost_and_the_others_start_again)
{
	run_on(3, "--stdin none -np 4 --restarts 1");
	lose_host(0);
	deliver_all();
	ck_assert_uint_eq(g.j.epoch, 2);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	for (uint32_t i = 0; i < 4; i++)
		end_rank(1 + i / 2, i % 2, 0);
	deliver_all();
	ended_with(0);
}
END_TEST

/* Host 1 is faster.  Each line comes when all ranks run, or have ended. */
START_TEST(bindings_come_together_and_sorted)
{
	FILE *said = tmpfile();
	char line[256], ranks[8] = "";
	size_t n = 0;

	quiet();
	dup2(fileno(said), 2);
	rig_open(2, "--stdin none -np 4 --report-bindings");
	job_begin(&g.j);
	turn();
	while (g.j.phase < JOB_RUN)
		for (size_t i = 2; i-- && g.j.phase < JOB_RUN;)
			if (has_answer(g.agent[i])) {
				deliver(g.agent[i]);
				turn();
			}
	end_rank(1, 0, 0); /* delivers that it runs, and the next ones */
	deliver(g.agent[1]);
	deliver(g.agent[1]);
	deliver(g.agent[0]);
	turn();
	fflush(NULL);
	ck_assert_int_eq(ftell(said), 0);
	deliver(g.agent[0]);
	turn();
	rewind(said);
	while (n < 7 && fgets(line, sizeof line, said))
		if (sscanf(line, "runner: rank %c on h", &ranks[n]) == 1)
			n++;
	ck_assert_str_eq(ranks, "0123");
	fclose(said);
	deliver_all();
	for (uint32_t i = 0; i < 4; i++)
		if (i != 2)
			end_rank(i / 2, i % 2, 0);
	deliver_all();
	ended_with(0);
}
END_TEST

static void one_machine(size_t a, size_t b)
{
	g.machine[a] = g.machine[b] = "boot 1 2";
}

START_TEST(two_names_of_one_machine)
{
	quiet();
	one_machine(0, 1);
	rig_open(2, "--stdin none -np 4");
	job_begin(&g.j);
	turn();
	deliver_all();
	ck_assert(!g.agent[0]->nranks && !g.agent[1]->nranks);
	ck_assert_int_eq(g.j.err.id, E_SAME_HOST);
	ended_with(2);
}
END_TEST

START_TEST(two_names_that_are_allowed)
{
	one_machine(0, 1);
	run_on(2, "--stdin none -np 4 --allow-same-host");
	for (uint32_t i = 0; i < 4; i++)
		end_rank(i / 2, i % 2, 0);
	deliver_all();
	ended_with(0);
}
END_TEST

/* Host 2 is a spare without an agent until host 1 is lost. */
START_TEST(a_spare_is_another_name_of_a_host)
{
	one_machine(0, 2);
	run_on(3, "--stdin none -np 4 --restarts 1");
	ck_assert_ptr_null(g.agent[2]);
	lose_host(1);
	deliver_all();
	ck_assert_uint_eq(g.j.epoch, 2);
	ck_assert(!g.agent[2]->nranks);
	ended_with(2);
}
END_TEST

/* It was told to leave, does not, and is needed again. */
START_TEST(an_agent_that_leaves_is_needed_again)
{
	quiet();
	rig_open(2, "--stdin none -np 2 --restarts 1");
	g.j.agents.host[0].slots = g.j.agents.host[1].slots = SLOTS_AUTO;
	job_begin(&g.j);
	turn();
	deliver(g.agent[1]);
	g.agent[1]->mute = true;
	turn();
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	lose_host(0);
	deliver_all();
	ck_assert_uint_eq(g.j.epoch, 2);
	ck_assert(g.agent[1]->started);
	end_rank(1, 0, 0);
	end_rank(1, 1, 0);
	deliver_all();
	ended_with(0);
}
END_TEST

START_TEST(third_interrupt_in_each_phase)
{
	run_on(2, "--stdin none -np 4");
	signal_comes(SIGINT);
	signal_comes(SIGINT);
	ck_assert_int_eq(g.j.phase, JOB_STOP);
	ck_assert_uint_eq(g.orders_of_kill, 2);
	signal_comes(SIGINT);
	pass(500);
	ck_assert(!g.cleaned[0] && !g.cleaned[1]);
	ck_assert(g.j.run[0].unconfirmed && g.j.run[1].unconfirmed);
	ended_with(130);
}
END_TEST

START_TEST(a_rank_that_was_not_started_cannot_end)
{
	quiet();
	rig_open(2, "--stdin none -np 4");
	job_begin(&g.j);
	turn();
	deliver(g.agent[0]);
	deliver(g.agent[1]);
	turn();
	ck_assert_int_eq(g.j.phase, JOB_PLACE);
	for (int i = 0; i < 3; i++)
		deliver(g.agent[0]); /* its berths, and placed */
	exits(g.agent[0], 0, 0);
	deliver(g.agent[0]);
	deliver_all();
	ended_with(240);
}
END_TEST

/* No rank starts, on the hosts that have the program either. */
static void lack_program(const char *options, const char *text)
{
	quiet();
	rig_open(3, options);
	job_begin(&g.j);
	turn();
	deliver_all();
	for (size_t i = 0; i < 3; i++)
		ck_assert(!g.agent[i]->started && g.agent[i]->told_stop);
	ck_assert(!g.j.ran);
	ck_assert_str_eq(g.j.err.text, text);
	ended_with(127);
}

START_TEST(a_program_is_missing_on_some_hosts)
{
	g.cannot[2] = true;
	lack_program("--stdin none -np 6 --keep-going",
		     "rank 4 on 'h2' could not start: there is no program 'x'");
	g.cannot[1] = g.cannot[2] = true;
	lack_program("--stdin none -np 6 --restarts 2",
		     "the ranks on 'h[1-2]' could not start: there is no program 'x'");
}
END_TEST

START_TEST(a_spare_lacks_the_program)
{
	g.cannot[2] = true;
	run_on(3, "--stdin none -np 4 --restarts 2");
	lose_host(0);
	deliver_all();
	ck_assert_uint_eq(g.j.epoch, 2);
	ck_assert(!g.agent[2]->started);
	ended_with(127);
}
END_TEST

static void check_on(size_t nhosts)
{
	quiet();
	rig_open(nhosts, "--check -np 4");
	job_begin(&g.j);
	turn();
}

static void no_rank_started(int status)
{
	for (size_t i = 0; i < g.nhosts; i++)
		ck_assert(!g.agent[i]->started && !g.agent[i]->told_stop);
	ended_with(status);
}

START_TEST(checks)
{
	check_on(2);
	deliver_all();
	ck_assert_uint_eq(g.j.checks.n, 10); /* ssh, agent, program, imports, clock */
	no_rank_started(0);
	g.clock_ahead_ns = 800000000;
	check_on(2);
	deliver_all();
	no_rank_started(0);
	for (int k = -1; k <= 1; k += 2) {
		g.clock_ahead_ns = (uint64_t)(k * 1200000000LL);
		check_on(2);
		deliver_all();
		no_rank_started(240);
	}
	g.clock_ahead_ns = 0;
	g.cannot[1] = true;
	check_on(2);
	deliver_all();
	no_rank_started(240);
}
END_TEST

/* A lost host gets a line, whenever it is lost, and the others are asked. */
START_TEST(a_check_of_a_lost_host)
{
	static const enum job_phase phases[] = { JOB_LAUNCH, JOB_PLACE, JOB_CHECK };

	check_on(2);
	while (g.j.phase < phases[_i]) {
		for (size_t i = 0; i < 2; i++)
			if (has_answer(g.agent[i]))
				deliver(g.agent[i]);
		turn();
	}
	lose_host(0);
	deliver_all();
	ck_assert_uint_eq(g.j.run[1].check_rows, 1);
	no_rank_started(240);
}
END_TEST

START_TEST(a_check_without_an_answer)
{
	check_on(2);
	while (g.j.phase < JOB_CHECK) {
		for (size_t i = 0; i < 2; i++)
			if (has_answer(g.agent[i]))
				deliver(g.agent[i]);
		turn();
	}
	g.agent[1]->mute = true;
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_CHECK);
	pass(32000);
	deliver_all();
	no_rank_started(240);
}
END_TEST

START_TEST(a_check_is_interrupted)
{
	check_on(2);
	signal_comes(SIGINT);
	deliver_all();
	if (g.j.phase != JOB_DONE)
		pass(500);
	no_rank_started(130);
}
END_TEST

static void add(Suite *s, const char *name, const TTest *test, int times)
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test, 0, times);
	suite_add_tcase(s, t);
}

int main(void)
{
	Suite *s = suite_create("job endings");
	SRunner *r;
	int failed;

	add(s, "well", all_well, 1);
	add(s, "term, agent dies", term_then_the_last_agent_dies, 1);
	add(s, "managed", interrupt_has_a_grace_in_a_managed_job, 1);
	add(s, "one grace", the_first_signal_starts_the_grace, 1);
	add(s, "before hello", signals_before_the_first_hello, 3);
	add(s, "while starting", interrupt_while_agents_start, 1);
	add(s, "no reader", stderr_has_no_reader_before_a_restart, 1);
	add(s, "reader leaves", a_reader_leaves_while_the_next_epoch_starts, 1);
	add(s, "stopped", time_stopped_counts_in_no_deadline, 1);
	add(s, "term, restart", term_between_an_end_and_its_restart, 1);
	add(s, "failure, term", term_after_a_failure, 1);
	add(s, "lost, ended", a_host_is_lost_whose_ranks_had_ended, 1);
	add(s, "all lost", all_hosts_are_lost, 2);
	add(s, "lost, again", a_host_is_lost_and_the_others_start_again, 1);
	add(s, "bindings", bindings_come_together_and_sorted, 1);
	add(s, "same host", two_names_of_one_machine, 1);
	add(s, "allowed", two_names_that_are_allowed, 1);
	add(s, "same spare", a_spare_is_another_name_of_a_host, 1);
	add(s, "leaving, again", an_agent_that_leaves_is_needed_again, 1);
	add(s, "third ^C", third_interrupt_in_each_phase, 1);
	add(s, "not started", a_rank_that_was_not_started_cannot_end, 1);
	add(s, "no program", a_program_is_missing_on_some_hosts, 1);
	add(s, "no program, spare", a_spare_lacks_the_program, 1);
	add(s, "check", checks, 1);
	add(s, "check, lost", a_check_of_a_lost_host, 3);
	add(s, "check, no answer", a_check_without_an_answer, 1);
	add(s, "check, ^C", a_check_is_interrupted, 1);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
