/* facts.h - a job of many ranks that has ended, for tests of its report. */
#ifndef BERTH_TESTS_UNIT_FACTS_H
#define BERTH_TESTS_UNIT_FACTS_H

#include <check.h>

#include "common/str.h"
#include "launcher/insight/facts.h"
#include "tests/helpers/slow.h"

enum { FACTS_RANKS = 1024, FACTS_HOSTS = 256 };

static struct facts_host facts_host[FACTS_HOSTS];
static struct facts_rank facts_rank[FACTS_RANKS];
static struct facts_app facts_app;
static struct strv facts_argv, facts_env, facts_own;
static struct record facts_record;
static struct verdict facts_verdict;
static struct event_log facts_log;
static char facts_name[FACTS_HOSTS][16];
static struct facts facts;
static struct str facts_out;

/* Samples of RANK, one each second: it computes, and waits for the others. */
static void facts_fill(uint32_t rank, uint32_t samples)
{
	struct wire_rank_use m = {
		.rank = rank, .pid = 7, .state = "R", .cpus = "0-3"
	};
	struct wire_rank_ops ops = { .rank = rank, .init_round = 1 };

	for (uint32_t s = 1; s <= samples; s++) {
		const uint32_t wave = (s / 60 * 7 + rank * 13) % 40;

		m.clock_ns = ops.clock_ns = ops.last_ns = s * UINT64_C(1000000000);
		m.main_us += 400000 + wave * 10000;
		m.cpu_us += 1500000 + wave * 40000;
		m.delay_us += rank % 50 == 3 ? 100000 : 1000;
		m.resident_bytes = UINT64_C(3) << 30;
		ops.first_ns = 1;
		ops.ops += 100;
		ops.steps += 30;
		ops.blocked_us += 300000 - wave * 5000;
		record_ops(&facts_record, &ops);
		record_use(&facts_record, &m, "0-3", (int64_t)m.clock_ns);
	}
}

/* A job of RANKS on HOSTS that had SAMPLES of each rank. */
static void facts_make(uint32_t ranks, uint32_t hosts, uint32_t samples)
{
	strv_add(&facts_argv, "train.py");
	facts_app = (struct facts_app){ ranks, &facts_argv, &facts_own };
	record_open(&facts_record, ranks, hosts, 1000);
	for (uint32_t i = 0; i < hosts; i++) {
		snprintf(facts_name[i], sizeof facts_name[i], "n%03u", i);
		facts_host[i] = (struct facts_host){ .name = facts_name[i],
						     .cpus = 16,
						     .gpus = 4,
						     .idle = "",
						     .certificate = "" };
	}
	for (uint32_t i = 0; i < ranks; i++) {
		const uint32_t local = i % (ranks / hosts);

		facts_rank[i] = (struct facts_rank){ .host = i / (ranks / hosts),
						     .local = local,
						     .gpu = "GPU-46f7",
						     .gpu_name = "H200",
						     .gpu_index = local,
						     .cpus = local ? "4-7" : "0-3",
						     .numa = "0",
						     .visible = "0",
						     .why = "4 cores, the nearest",
						     .pid = 100 + i,
						     .lives = 1,
						     .ended = "exited with status 0",
						     .end_s = samples,
						     .strip_end_s = samples };
		facts_fill(i, samples);
	}
	facts_verdict.looked = true;
	facts = (struct facts){ .job = "0123456789abcdef",
				.version = "0.2.0",
				.begin = 1700000000,
				.wall_s = samples + 1.0,
				.app = &facts_app,
				.napp = 1,
				.env = &facts_env,
				.host = facts_host,
				.nhosts = hosts,
				.rank = facts_rank,
				.record = &facts_record,
				.verdict = &facts_verdict,
				.events = &facts_log };
}

/* The verdict names RANK. */
static inline void facts_find(uint32_t rank, const char *text)
{
	struct finding *f = &facts_verdict.v[facts_verdict.n++];

	*f = (struct finding){ .rule = "SLOW RANK", .gain = 0.27 };
	rank_set_add(&f->ranks, rank);
	f->text = xstrdup(text);
	f->advice = xstrdup("look for a slow core");
}

static void facts_free(void)
{
	strv_free(&facts_argv);
	strv_free(&facts_env);
	strv_free(&facts_own);
	record_free(&facts_record);
	verdict_free(&facts_verdict);
	event_log_free(&facts_log);
	str_free(&facts_out);
	memset(&facts_verdict, 0, sizeof facts_verdict);
}

static void facts_to_out(void *ctx, const char *bytes, size_t n)
{
	(void)ctx;
	str_addn(&facts_out, bytes, n);
}

#endif
