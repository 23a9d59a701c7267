/* launcher/insight/verdict.h: records to findings.
 * takes_s: 0 */
#include <check.h>

#include "common/str.h"
#include "launcher/insight/verdict.h"

enum { RANKS = 4, MANY = 12, POINTS = 10 };

static struct record r;
static struct ranked ranked[MANY];
static const char *const hosts[] = { "n1", "n2" };
static struct look look;
static struct verdict v;

/* 10 s of each rank: it computes 0.5 of the time, waits 0.3 for others. */
static void setup(void)
{
	record_open(&r, RANKS, 1, 1000);
	for (uint32_t i = 0; i < RANKS; i++) {
		struct rank_record *one = &r.rank[i];

		ranked[i] =
			(struct ranked){ .host = i < 2 ? "n1" : "n2", .bound = "0-3" };
		one->sums = (struct sums){ .use_s = 10,
					   .main_s = 5,
					   .cpu_s = 10,
					   .ops_s = 10,
					   .blocked_s = 1,
					   .ops = 2000,
					   .steps = 1000,
					   .bytes = 1e9 };
		one->strip.v = xcalloc(POINTS, sizeof *one->strip.v);
		one->strip.n = one->strip.most = POINTS;
		one->strip.samples = 1;
		for (int k = 0; k < POINTS; k++)
			one->strip.v[k] = (struct point){ .span_s = 1,
							  .blocked = 0.1f,
							  .ops = 200 };
	}
	look = (struct look){ .record = &r, .rank = ranked, .host = hosts };
}

static void teardown(void)
{
	verdict_free(&v);
	record_free(&r);
}

/* RANK waits BLOCKED s of the 10. */
static void waits(uint32_t rank, double blocked)
{
	r.rank[rank].sums.blocked_s = blocked;
	for (int k = 0; k < POINTS; k++)
		r.rank[rank].strip.v[k].blocked = (float)blocked / 10;
}

/* All but RANK wait BLOCKED s for it. */
static void wait_for(uint32_t rank, double blocked)
{
	for (uint32_t i = 0; i < RANKS; i++)
		waits(i, i == rank ? 0.1 : blocked);
}

static void check_text(const char *expected)
{
	struct str s = { 0 };

	verdict_make(&v, &look);
	verdict_text(&s, &v);
	ck_assert_str_eq(str_text(&s), expected);
	str_free(&s);
}

static const char all_is_well[] = "\n  verdict: nothing to improve was found";

START_TEST(nothing_is_known)
{
	for (uint32_t i = 0; i < RANKS; i++)
		r.rank[i].sums = (struct sums){ .use_s = 1, .ops_s = 1, .ops = 9 };
	check_text("");
}
END_TEST

START_TEST(all_alike)
{
	check_text(all_is_well);
	waits(2, 0.5); /* 5 % */
	check_text(all_is_well);
}
END_TEST

START_TEST(a_rank_computes_longer)
{
	wait_for(2, 4);
	r.rank[2].sums.main_s = 9;
	r.rank[2].sums.cpu_s = 14;
	check_text(
		"\n  SLOW RANK: rank 2 on 'n2': others wait for it 4.0 ms of each step "
		"of 10.0 ms; it computes 90 % of the time (others 50) (a step would "
		"take 39 % less). Try: give it less work, or look for a slow core");
}
END_TEST

START_TEST(a_rank_has_fewer_threads)
{
	wait_for(2, 4);
	r.rank[2].sums.main_s = r.rank[2].sums.cpu_s = 9;
	check_text(
		"\n  SLOW RANK: rank 2 on 'n2': others wait for it 4.0 ms of each step "
		"of 10.0 ms; it computes 90 % of the time (others 50), with 0.9 CPUs "
		"(others 1.0) (a step would take 39 % less). Try: give it as many "
		"threads: OMP_NUM_THREADS");
}
END_TEST

START_TEST(a_rank_has_no_cpu)
{
	wait_for(0, 5);
	r.rank[0].sums.delay_s = 4.5;
	check_text(
		"\n  SLOW RANK: rank 0 on 'n1': others wait for it 5.0 ms of each step "
		"of 10.0 ms; it could run, and had no CPU, 45 % of the time (others 0) "
		"(a step would take 49 % less). Try: look for other processes on its "
		"CPUs, or a CPU quota");
}
END_TEST

START_TEST(a_rank_waits_for_data)
{
	wait_for(3, 5);
	r.rank[3].sums.read_bytes = 100e6;
	check_text(
		"\n  SLOW RANK: rank 3 on 'n2': others wait for it 5.0 ms of each step "
		"of 10.0 ms; it waited outside of libberth 49 % of the time (others "
		"0), "
		"reading 10 MB/s (a step would take 49 % less). Try: look at what it "
		"reads: a slow disk, a lock");
}
END_TEST

/* Two ranks of one host: both are named. */
START_TEST(two_slow_ranks)
{
	wait_for(2, 4);
	waits(3, 0.2);
	verdict_make(&v, &look);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_uint_eq(rank_set_count(&v.v[0].ranks), 2);
	ck_assert_double_eq_tol(v.v[0].gain, 0.39, 0.001);
	ck_assert_ptr_nonnull(strstr(v.v[0].text, "ranks 2-3: others wait for them"));
}
END_TEST

/* In most points another rank waits least: the sums are of chance. */
START_TEST(now_and_then)
{
	wait_for(2, 4);
	for (int k = 0; k < POINTS - 3; k++)
		r.rank[k % 2].strip.v[k].blocked = 0;
	check_text(all_is_well);
}
END_TEST

/* POINTS to 24 points: rank 2 takes 5 ms of a step of 6 ms, and 15 ms of one of 16 ms
 * from point FROM on; the others take 4 ms. */
static void slower_from(uint32_t from, uint32_t points)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		struct strip *s = &r.rank[i].strip;

		s->v = xreallocarray(s->v, points, sizeof *s->v);
		s->n = s->most = points;
		for (uint32_t k = 0; k < points; k++) {
			const float all = k < from ? 6 : 16;
			const float own = i != 2 ? 4 : k < from ? 5 : 15;

			s->v[k] = (struct point){ .span_s = 1,
						  .main = own / all,
						  .blocked = 1 - own / all,
						  .steps = 1000 / all,
						  .ops = 2000 / all };
		}
		r.rank[i].sums.blocked_s = 1;
	}
}

START_TEST(slower_than_before)
{
	slower_from(18, 24);
	check_text(
		"\n  SLOWER RANK: rank 2 on 'n2': slower than before for the last 6.0 "
		"s: a step takes 11.3 ms, it took 6.0; without the wait for others "
		"10.3 ms, it was 5.0; it computes longer (a step would take 47 % less)"
		". Try: look for a core with a lower clock, or work that grows there "
		"alone");
	verdict_free(&v);
	slower_from(400, 512); /* more points than bins */
	verdict_make(&v, &look);
	ck_assert_ptr_nonnull(strstr(v.v[0].text, "for the last 1 min 46 s: "));
	verdict_free(&v);
	look.crowded = true;
	check_text(all_is_well);
}
END_TEST

START_TEST(slower_because_it_waits)
{
	slower_from(18, 24);
	for (uint32_t k = 18; k < 24; k++)
		r.rank[2].strip.v[k].main = 0.25f;
	verdict_make(&v, &look);
	ck_assert_ptr_nonnull(strstr(v.v[0].text, "; it waits longer outside"));
	verdict_free(&v);
	for (uint32_t k = 18; k < 24; k++)
		r.rank[2].strip.v[k].delay = 0.7f;
	verdict_make(&v, &look);
	ck_assert_ptr_nonnull(strstr(v.v[0].text, "; it has no CPU for what"));
}
END_TEST

/* The work of all ranks has grown, or a rank was slow for a moment. */
START_TEST(all_are_slower)
{
	slower_from(18, 24);
	for (uint32_t i = 0; i < RANKS; i++)
		for (uint32_t k = 18; k < 24; k++)
			r.rank[i].strip.v[k].blocked = 0;
	check_text(all_is_well);
	slower_from(18, 24);
	for (uint32_t i = 0; i < RANKS; i++)
		for (uint32_t k = 20; k < 24; k++)
			r.rank[i].strip.v[k] = r.rank[i].strip.v[0];
	verdict_free(&v);
	check_text(all_is_well);
	verdict_free(&v);
	slower_from(3, 5); /* too few points */
	check_text(all_is_well);
}
END_TEST

/* The slow rank says it itself. */
START_TEST(slow_and_slower)
{
	slower_from(12, 24);
	for (uint32_t i = 0; i < RANKS; i++)
		r.rank[i].sums.blocked_s = i == 2 ? 0.1 : 4;
	r.rank[2].sums.main_s = 9;
	verdict_make(&v, &look);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_str_eq(v.v[0].rule, "SLOW RANK");
	ck_assert_ptr_nonnull(
		strstr(v.v[0].text, "; more than before for the last 12"));
}
END_TEST

/* Without samples a rank must be slower, and nobody knows why. */
START_TEST(without_samples)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		r.rank[i].sums.use_s = 0;
		r.rank[i].strip.n = 0;
	}
	wait_for(1, 1.3);
	check_text(all_is_well);
	wait_for(1, 4);
	check_text(
		"\n  SLOW RANK: rank 1 on 'n1': others wait for it 4.0 ms of each step "
		"of 10.0 ms (a step would take 39 % less). Try: --monitor shows why");
}
END_TEST

START_TEST(bindings)
{
	r.rank[1].moved = xstrdup("0");
	r.rank[1].points = 5;
	r.rank[3].moved = xstrdup("2");
	r.rank[3].points = 2; /* for a moment */
	check_text("\n  BINDING: rank 1 on 'n1': the program changed its CPUs, from "
		   "0-3 to "
		   "0. Try: look for taskset, OMP_PROC_BIND, KMP_AFFINITY, "
		   "GOMP_CPU_AFFINITY in the program");
}
END_TEST

START_TEST(input)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		r.rank[i].sums.children_s = 9.5;
		r.rank[i].children = 1;
	}
	check_text("\n  INPUT: each rank waits 40 % of the time outside of libberth; 4 "
		   "loader processes used 3.8 CPUs together (a step would take 40 % "
		   "less). "
		   "Try: more workers, or more CPUs for them: --bind-to socket");
	verdict_free(&v);
	for (uint32_t i = 0; i < RANKS; i++) {
		r.rank[i].sums.children_s = 0;
		r.rank[i].sums.disk_bytes = 20e6;
	}
	check_text(
		"\n  INPUT: each rank waits 40 % of the time outside of libberth, and "
		"reads 2 MB/s from a disk (a step would take 40 % less). Try: a faster "
		"disk, or a cache of the data");
	verdict_free(&v);
	for (uint32_t i = 0; i < RANKS; i++)
		r.rank[i].sums.disk_bytes = 0; /* who sleeps may want to */
	check_text(all_is_well);
}
END_TEST

START_TEST(collectives)
{
	for (uint32_t i = 0; i < RANKS; i++)
		waits(i, 3.5 + 0.1 * i);
	check_text(
		"\n  COLLECTIVES: each rank waits at least 35 % of the time in "
		"collectives: 1.0 MB and 2 operations a step of 10.0 ms (a step would "
		"take 35 % less). Try: a larger batch, or fewer and larger operations");
	verdict_free(&v);
	look.crowded = true; /* it waits for a CPU */
	check_text(all_is_well);
}
END_TEST

/* 1 MB a step take 1 ms at 8 Gbit/s. */
START_TEST(network)
{
	struct wire_host_use m = { .clock_ns = 1, .link_mbit = 10000 };

	record_grow(&r, RANKS, 2);
	for (uint32_t i = 0; i < RANKS; i++) {
		waits(i, 2.0 + 0.1 * i);
		ranked[i].at = i / 2;
	}
	record_host(&r, 0, &m);
	check_text(all_is_well); /* n2 has not said its rate */
	verdict_free(&v);
	m.link_mbit = 8000;
	record_host(&r, 1, &m);
	check_text(
		"\n  NETWORK: each rank waits at least 2.0 ms of each step of 10.0 ms "
		"in "
		"collectives: 1.0 MB and 2 operations between 2 hosts, at 4.00 Gbit/s; "
		"the slowest link, of 'n2', has 8 Gbit/s, and would take 1.0 ms (a "
		"step "
		"would take 10 % less). Try: look at which network is used (--net, "
		"--check), and for other traffic");
	verdict_free(&v);
	m.link_mbit = 7000; /* it is near */
	record_host(&r, 1, &m);
	check_text(all_is_well);
	verdict_free(&v);
	for (uint32_t i = 0; i < RANKS; i++)
		waits(i, 4); /* and COLLECTIVES says nothing */
	verdict_make(&v, &look);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_str_eq(v.v[0].rule, "NETWORK");
	ck_assert_ptr_nonnull(strstr(v.v[0].text, " at 2.00 Gbit/s"));
	verdict_free(&v);
	for (uint32_t i = 0; i < RANKS; i++) {
		waits(i, 2);
		ranked[i].at = 0; /* one host */
	}
	check_text(all_is_well);
}
END_TEST

/* 10 samples of each GPU: so busy, so full. */
static void use_gpus(double busy, double full)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		struct rank_record *one = &r.rank[i];

		one->sums.gpu_samples = 10;
		one->sums.gpu = 10 * busy;
		one->sums.power = 5;
		one->sums.clock = 10;
		one->gpu.total_bytes = 1000;
		one->gpu_peak_bytes = (uint64_t)(1000 * full);
	}
}

START_TEST(gpus)
{
	use_gpus(0.95, 0.8);
	check_text(all_is_well);
	use_gpus(0.5, 0.8);
	check_text(
		"\n  GPU: ranks 0-3: the GPU is busy 50 % of the time, at 50 % of its "
		"power (a step would take 50 % less). Try: larger batches; look for "
		"the "
		"input and for what runs on the CPU");
	verdict_free(&v);
	for (uint32_t i = 0; i < RANKS; i++)
		r.rank[i].sums.main_s = 9.5;
	use_gpus(0.85, 0.8); /* a note */
	check_text(
		"\n  GPU: ranks 0-3: the GPU is busy 85 % of the time, at 50 % of its "
		"power; the main thread computes 95 % of it. Try: larger batches, "
		"torch.compile or CUDA graphs, so that it launches less");
}
END_TEST

/* A GPU of each rank for an hour; each 12 s it does nothing for LOW s, if that is not
 * 0. */
static void use_gpus_with_dips(uint32_t low)
{
	struct wire_gpu_use m = { .total_bytes = 1000, .used_bytes = 800 };

	for (m.rank = 0; m.rank < RANKS; m.rank++)
		for (uint32_t s = 0; s < 3600; s++) {
			m.clock_ns = (1000 + s) * UINT64_C(1000000000);
			m.busy = s < 5 ? 0 : s % 12 < low ? 20 : 98; /* it starts */
			record_gpu(&r, &m);
		}
}

START_TEST(dips_of_gpus)
{
	use_gpus_with_dips(1);
	check_text("\n  GPU DIPS: ranks 0-3: the GPU is busy 91 % of the time; below "
		   "50 % each 12.0 s, for 1.0 s. Try: look for what comes as often: a "
		   "checkpoint, an evaluation, a log, a pause of the input");
	verdict_free(&v);
	for (uint32_t i = 0; i < RANKS; i++)
		r.rank[i].dips.n = 4; /* they are few */
	check_text(all_is_well);
}
END_TEST

/* Far apart, and at any time: as an evaluation when there is something new. */
START_TEST(dips_at_any_time)
{
	struct wire_gpu_use m = { .rank = 1, .total_bytes = 1000, .used_bytes = 800 };

	for (uint32_t s = 0, next = 10; s < 3600; s++) {
		m.clock_ns = (1000 + s) * UINT64_C(1000000000);
		m.busy = s == next ? 0 : 98;
		next = s == next ? s + 5 + (s * 2654435761u >> 16) % 300 : next;
		record_gpu(&r, &m);
	}
	ck_assert_uint_gt(r.rank[1].dips.n, 10);
	check_text(all_is_well);
}
END_TEST

START_TEST(idle_gpus_with_dips)
{
	use_gpus_with_dips(4);
	verdict_make(&v, &look);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_ptr_nonnull(strstr(
		v.v[0].text, " of its power; below 50 % each 12.0 s, for 4.0 s"));
}
END_TEST

START_TEST(clocks_of_gpus)
{
	use_gpus(0.95, 0.8);
	r.rank[3].sums.slowed = 6;
	r.rank[3].sums.clock = 5.5;
	check_text(
		"\n  GPU CLOCKS: rank 3 on 'n2': heat or power lowered the clocks of "
		"the "
		"GPU 60 % of the time, to 55 % of the highest. Try: tell the admins: "
		"cooling, power supply; use other GPUs meanwhile");
}
END_TEST

START_TEST(memory_of_gpus)
{
	use_gpus(0.95, 0.45);
	check_text(
		"\n  GPU MEMORY: the memory of the GPUs was at most 45 % full. Try: a "
		"batch 2.0 times as large");
	verdict_free(&v);
	use_gpus(0.95, 0.7);
	r.rank[1].gpu_peak_bytes = 850;
	check_text(
		"\n  GPU MEMORY: rank 1 on 'n1': the memory of its GPU was 85 % full; "
		"the emptiest was 70 %. Try: look at what that rank keeps more than "
		"others");
	verdict_free(&v);
	use_gpus(0.95, 0.98);
	check_text(
		"\n  GPU MEMORY: rank 0 on 'n1': the memory of its GPU was 98 % full; "
		"the emptiest was 98 %. Try: a smaller batch, before one is too large");
}
END_TEST

/* There may be more to say than five lines. */
START_TEST(five_at_most)
{
	use_gpus(0.5, 0.45);
	wait_for(2, 4);
	r.rank[2].sums.main_s = 9;
	r.rank[2].sums.slowed = 10;
	r.rank[1].moved = xstrdup("0");
	r.rank[1].points = 10;
	for (uint32_t i = 0; i < RANKS; i++)
		r.rank[i].sums.disk_bytes = 20e6;
	verdict_make(&v, &look);
	ck_assert_uint_le(v.n, VERDICT_MOST);
	ck_assert_uint_ge(v.n, 4);
}
END_TEST

START_TEST(memory)
{
	struct wire_host_use m = { .clock_ns = 1 };

	record_host(&r, 0, &m);
	m.clock_ns += UINT64_C(10000000000);
	m.memory_us = 2000000;
	record_host(&r, 0, &m);
	check_text(
		"\n  MEMORY: a host waited for memory 20 % of the time (a step would "
		"take 20 % less). Try: fewer ranks or loaders a host, or smaller "
		"batches");
}
END_TEST

START_TEST(scaling)
{
	record_grow(&r, MANY, 1);
	for (uint32_t i = RANKS; i < MANY; i++) {
		ranked[i] = ranked[0];
		r.rank[i].sums = r.rank[0].sums;
	}
	check_text(all_is_well); /* nothing is known of fewer ranks */
	verdict_free(&v);
	look.fewest = (struct ledger_row){ .np = 2, .steps = 125 };
	check_text(
		"\n  SCALING: 12 ranks take 100 steps/s, 2 took 125: 9.6 times the "
		"work "
		"of one rank, 80 % of linear; 85 % is good (a step would take 20 % "
		"less). Try: what is named above; larger batches, or fewer and larger "
		"operations");
	verdict_free(&v);
	look.fewest.steps = 115;
	check_text(all_is_well);
	verdict_free(&v);
	look.fewest.steps = 50; /* they share the work */
	check_text(all_is_well);
	verdict_free(&v);
	look.fewest.steps = 125;
	r.nranks--;
	check_text(all_is_well);
	r.nranks++;
}
END_TEST

/* Samples that agents did not send are said, also if there is too little to look at. */
START_TEST(samples_are_missing)
{
	struct wire_host_use m = { .clock_ns = 1 };

	record_grow(&r, RANKS, 2);
	record_host(&r, 0, &m);
	m.dropped = 3;
	record_host(&r, 1, &m);
	check_text("\n  host 'n2' lagged: 3 samples of 4 are missing"
		   "\n  verdict: nothing to improve was found");
	verdict_free(&v);
	m.dropped = 1;
	record_host(&r, 0, &m);
	for (uint32_t i = 0; i < RANKS; i++)
		r.rank[i].sums = (struct sums){ 0 };
	check_text("\n  host 'n2' lagged: 3 samples of 4 are missing, and some of 1 "
		   "more host");
}
END_TEST

START_TEST(long_texts_are_cut)
{
	char cpus[5000];

	memset(cpus, '1', sizeof cpus - 1);
	cpus[sizeof cpus - 1] = '\0';
	r.rank[1].moved = xstrdup(cpus);
	r.rank[1].points = 5;
	verdict_make(&v, &look);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_uint_lt(strlen(v.v[0].text), 1100);
	ck_assert_ptr_nonnull(strstr(v.v[0].text, " [cut here]"));
}
END_TEST

START_TEST(for_programs)
{
	struct str s = { 0 };

	wait_for(2, 4);
	r.rank[2].sums.main_s = 9;
	r.rank[2].sums.cpu_s = 14;
	verdict_make(&v, &look);
	verdict_json(&s, &v);
	ck_assert_str_eq(
		str_text(&s),
		"[{\"gain\": 0.390, \"ranks\": [2], \"rule\": \"SLOW RANK\", \"text\": "
		"\"rank 2 on 'n2': others wait for it 4.0 ms of each step of 10.0 ms; "
		"it "
		"computes 90 % of the time (others 50)\", \"try\": \"give it less "
		"work, or "
		"look for a slow core\"}]");
	str_free(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_verdict");
	TCase *t = tcase_create("verdict");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, nothing_is_known);
	tcase_add_test(t, all_alike);
	tcase_add_test(t, a_rank_computes_longer);
	tcase_add_test(t, a_rank_has_fewer_threads);
	tcase_add_test(t, a_rank_has_no_cpu);
	tcase_add_test(t, a_rank_waits_for_data);
	tcase_add_test(t, two_slow_ranks);
	tcase_add_test(t, now_and_then);
	tcase_add_test(t, slower_than_before);
	tcase_add_test(t, slower_because_it_waits);
	tcase_add_test(t, all_are_slower);
	tcase_add_test(t, slow_and_slower);
	tcase_add_test(t, without_samples);
	tcase_add_test(t, bindings);
	tcase_add_test(t, input);
	tcase_add_test(t, collectives);
	tcase_add_test(t, network);
	tcase_add_test(t, gpus);
	tcase_add_test(t, dips_of_gpus);
	tcase_add_test(t, dips_at_any_time);
	tcase_add_test(t, idle_gpus_with_dips);
	tcase_add_test(t, clocks_of_gpus);
	tcase_add_test(t, memory_of_gpus);
	tcase_add_test(t, five_at_most);
	tcase_add_test(t, memory);
	tcase_add_test(t, scaling);
	tcase_add_test(t, samples_are_missing);
	tcase_add_test(t, long_texts_are_cut);
	tcase_add_test(t, for_programs);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
