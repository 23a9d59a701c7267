/* agent/monitor/gpu_use.h: its child, with a stand-in for NVML. */
#include "tests/unit/stand_in.h"

#include <event2/event.h>

#include "agent/monitor/gpu_use.h"
#include "common/loop.h"

static struct event_base *base;
static struct gpus gpus;
static struct berth berths[3];
static struct placement placement = { .v = berths, .n = 3 };
static const uint32_t ranks[] = { 4, 5, 6 };
static struct wire_job job = { .epoch = 7, .ranks = { ranks, 3 }, .monitor_ms = 50 };
static struct gpu_use use;
static struct buf out;

static void setup(void)
{
	base = loop_open();
	use = (struct gpu_use){ 0 };
	out = (struct buf){ 0 };
	four_gpus(&gpus);
	berths[0].gpu = 2;
	berths[1].gpu = 4; /* an instance */
	berths[2].gpu = -1;
}

static void teardown(void)
{
	gpu_use_end(&use);
	gpu_free(&gpus);
	event_base_free(base);
	buf_free(&out);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
}

static void begin(const char *nvml)
{
	set_nvml(nvml);
	gpu_use_begin(&use, base, &out, &job, &gpus, &placement);
}

/* The next frame, as it comes. */
static struct wire_gpu_use next_frame(void)
{
	struct wire_gpu_use m;
	struct wire_frame f;
	struct err e;
	long n;

	while (!(n = wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, &e)))
		event_base_loop(base, EVLOOP_ONCE);
	ck_assert_int_gt(n, 0);
	ck_assert_uint_eq(f.type, WIRE_gpu_use);
	ck_assert(!wire_unpack_gpu_use(&m, f.payload, f.n, &e));
	buf_drop(&out, (size_t)n);
	return m;
}

#define TWO_GPUS                                                                       \
	"gpu 0000:10:00.0 GPU-aaaa2\nused 5\n"                                         \
	"gpu 0000:20:00.0 GPU-bbbb\nused 600\n"                                        \
	"state 83 300000 700000 1095 1980 71 64 1000\n"

START_TEST(a_rank_with_a_gpu)
{
	struct wire_gpu_use m, later;

	begin(TWO_GPUS);
	m = next_frame();
	ck_assert_uint_eq(m.epoch, 7);
	ck_assert_uint_eq(m.rank, 4);
	ck_assert_uint_eq(m.busy, 83);
	ck_assert_uint_eq(m.used_bytes, 600);
	ck_assert_uint_eq(m.total_bytes, 1000);
	ck_assert_uint_eq(m.power_mw, 300000);
	ck_assert_uint_eq(m.cap_mw, 700000);
	ck_assert_uint_eq(m.sm_mhz, 1095);
	ck_assert_uint_eq(m.sm_most_mhz, 1980);
	ck_assert_uint_eq(m.celsius, 71);
	ck_assert_uint_eq(m.slowed, 64);
	ck_assert_uint_eq(m.pcie_bytes, 5000);
	later = next_frame();
	ck_assert_uint_eq(later.rank, 4);
	ck_assert_uint_ge(later.clock_ns - m.clock_ns, 50000000);
}
END_TEST

/* The child ends by itself where NVML cannot start, or has none of the GPUs. */
START_TEST(nothing_to_watch)
{
	static const char *const nvml[] = { NULL, "gpu 0000:10:00.0 GPU-aaaa2\n" };

	for (int i = 0; i < 2; i++) {
		begin(nvml[i]);
		while (use.readable)
			event_base_loop(base, EVLOOP_ONCE);
		ck_assert_uint_eq(out.len, 0);
	}
}
END_TEST

START_TEST(no_gpu_at_all)
{
	gpus.n = 0;
	begin(TWO_GPUS);
	ck_assert_ptr_null(use.readable);
	gpus.n = 5;
}
END_TEST

/* If the launcher does not read, frames are dropped as wholes. */
START_TEST(a_launcher_that_lags)
{
	char *old = xcalloc(1, 300 << 10);
	struct wire_gpu_use m;

	begin(TWO_GPUS);
	m = next_frame();
	buf_add(&out, old, 300 << 10);
	for (int i = 0; i < 5; i++)
		event_base_loop(base, EVLOOP_ONCE);
	ck_assert_uint_eq(out.len, 300 << 10);
	buf_drop(&out, 300 << 10);
	ck_assert_uint_gt(next_frame().clock_ns, m.clock_ns);
	free(old);
}
END_TEST

static Suite *make(void)
{
	Suite *s = suite_create("monitor_gpu_use");
	TCase *t = tcase_create("gpus");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_rank_with_a_gpu);
	tcase_add_test(t, nothing_to_watch);
	tcase_add_test(t, no_gpu_at_all);
	tcase_add_test(t, a_launcher_that_lags);
	suite_add_tcase(s, t);
	return s;
}

int main(int argc, char **argv)
{
	(void)argc;
	return run_suite(make, argv);
}
