/* agents.h: which transport is next, which reason is told, and call-backs that are
 * NULL. */
#include <check.h>
#include <event2/event.h>
#include <time.h>

#include "launcher/hosts/agents.h"

/* A transport in memory: the test says what comes. */
struct conn {
	const struct transport_events *events;
	void *ctx;
};

static struct conn *one;

static struct conn *mem_start(const struct transport_setup *setup,
			      const struct target *t,
			      const struct transport_events *events, void *ctx)
{
	(void)setup;
	(void)t;
	one = xcalloc(1, sizeof *one);
	*one = (struct conn){ events, ctx };
	return one;
}

static bool unread; /* the agent reads nothing */

static size_t mem_send(struct conn *c, const void *data, size_t n)
{
	(void)c;
	(void)data;
	return unread ? 0 : n;
}

static void mem_close(struct conn *c)
{
	free(c);
}

static const struct transport memory = { "memory", mem_start, mem_send, mem_close,
					 NULL };
static const struct agents_events none = { 0 };
static struct agents agents;

static void setup(void)
{
	agents = (struct agents){ .base = event_base_new(),
				  .host = xcalloc(1, sizeof *agents.host),
				  .n = 1,
				  .host_timeout_ms = 60000,
				  .events = &none };
	agents.setup.base = agents.base;
	agents.setup.deadline_ms = clock_ms() + 20000;
	agents.host->name = xstrdup("n1");
	agents.host->target.name = agents.host->name;
	agents.host->transport = &memory;
	agents_start(&agents, agents.host);
}

static void teardown(void)
{
	struct event_base *base = agents.base;

	agents_free(&agents);
	event_base_free(base);
}

static void say_hello(void)
{
	struct wire_hello m = { .version = BERTH_VERSION,
				.wire = WIRE_VERSION,
				.address = "10.0.0.1",
				.cpus = 4,
				.cores = 2 };
	struct buf out = { 0 };

	buf_add(&out, WIRE_MAGIC, WIRE_MAGIC_BYTES);
	wire_pack_hello(&out, &m);
	one->events->bytes(one->ctx, buf_head(&out), out.len);
	buf_free(&out);
}

START_TEST(call_backs_may_be_null)
{
	struct host *h = agents.host;
	struct transport_end end = { .said = "" };
	struct buf out = { 0 };
	struct err e;

	say_hello();
	ck_assert_int_eq(h->state, HOST_UP);
	ck_assert_uint_eq(h->cores, 2);
	wire_pack_stop_ack(&out, &(struct wire_stop_ack){ 0 });
	one->events->bytes(one->ctx, buf_head(&out), out.len);
	buf_free(&out);
	agents_leave(h);
	one->events->ended(one->ctx, &end);
	ck_assert_int_eq(h->state, HOST_CLOSED);
	agents_start(&agents, h);
	err_set(&e, E_HOST_SILENT, "n1", 60u);
	agents_give_up(h, &e);
	ck_assert_int_eq(h->state, HOST_LOST);
	ck_assert_int_eq(h->err.id, E_HOST_SILENT);
}
END_TEST

/* The ssh program is next where libssh cannot log in.  If it fails, too, libssh's
 * reason is told. */
START_TEST(the_ssh_program_is_next)
{
	struct host *h = agents.host;
	struct transport_end end = { .status = -1, .said = "", .needs_openssh = true };

	ck_assert(!setenv("PATH", "/nowhere", 1));
	err_set(&end.err, E_SSH_AUTH, "n1", "sshd accepts hostbased");
	one->events->ended(one->ctx, &end);
	ck_assert_ptr_eq(h->transport, &transport_openssh);
	ck_assert_int_eq(h->state, HOST_STARTING);
	while (h->state == HOST_STARTING)
		ck_assert_int_eq(event_base_loop(agents.base, EVLOOP_ONCE), 0);
	ck_assert_int_eq(h->state, HOST_LOST);
	ck_assert_int_eq(h->err.id, E_SSH_AUTH);
}
END_TEST

/* What the job has for it may wait, and 4 MiB more. */
START_TEST(an_agent_that_reads_no_answer_is_given_up)
{
	struct host *h = agents.host;
	struct buf out = { 0 };
	char *answers;

	say_hello();
	unread = true;
	answers = xcalloc(1, (9 << 20) + 1);
	buf_add(&h->out, answers, 9 << 20);
	free(answers);
	h->out_due = 5 << 20;
	wire_pack_stop_ack(&out, &(struct wire_stop_ack){ 0 });
	one->events->bytes(one->ctx, buf_head(&out), out.len);
	ck_assert_int_eq(h->state, HOST_UP);
	buf_add(&h->out, "", 1);
	one->events->bytes(one->ctx, buf_head(&out), out.len);
	buf_free(&out);
	unread = false;
	ck_assert_int_eq(h->state, HOST_LOST);
	ck_assert_int_eq(h->err.id, E_WIRE);
	ck_assert_ptr_nonnull(strstr(h->err.text, "n1: "));
}
END_TEST

START_TEST(a_later_loss_has_its_own_reason)
{
	struct host *h = agents.host;
	struct transport_end end = { .status = 3, .said = "a\nlast words\n" };

	err_set(&h->err, E_SSH_AUTH, "n1", "of an earlier try");
	say_hello();
	one->events->ended(one->ctx, &end);
	ck_assert_int_eq(h->err.id, E_AGENT_LOST);
	ck_assert_ptr_nonnull(strstr(h->err.text, "(its status: 3): last words"));
}
END_TEST

static uint64_t on_our_clock(const struct host *h, uint64_t at_ns)
{
	return (uint64_t)agents_time(h, at_ns);
}

/* By the error of its clock an exit may seem to be in the future when we hear of it.
 * Two of them keep their order, whichever is told first. */
START_TEST(times_keep_their_order)
{
	struct host *h = agents.host;
	const uint64_t s = 1000000000;
	uint64_t now, theirs;

	say_hello();
	h->clock_offset_ns = 123456789 * s;
	h->clock_error_ns = 2 * s;
	now = clock_ns();
	theirs = now + h->clock_offset_ns;
	ck_assert_uint_eq(on_our_clock(h, theirs + s), now + s);
	ck_assert_uint_eq(on_our_clock(h, theirs + s - 1), now + s - 1);
	ck_assert_uint_ge(on_our_clock(h, theirs + 3600 * s), now);
	ck_assert_uint_le(on_our_clock(h, theirs + 3600 * s), clock_ns());
	ck_assert_uint_ge(on_our_clock(h, 0), now);
	ck_assert_uint_le(on_our_clock(h, 0), clock_ns());
}
END_TEST

/* ---- turns ---- */

static int told;

static void take_long(void *ctx, struct host *h, const struct wire_frame *f)
{
	(void)ctx;
	(void)h;
	(void)f;
	told++;
	nanosleep(&(struct timespec){ .tv_nsec = 15 * 1000 * 1000 }, NULL);
}

static const struct agents_events slow = { .frame = take_long };

static void say_frames(struct buf *out, int n)
{
	while (n--)
		wire_pack_stop_ack(out, &(struct wire_stop_ack){ 0 });
}

/* Other hosts, and timers, come between frames that take long; in whichever parts the
 * bytes come, each frame is taken once. */
START_TEST(frames_that_take_long_wait)
{
	struct buf out = { 0 };
	size_t half;

	agents.events = &slow;
	say_hello();
	told = 0;
	say_frames(&out, 4);
	half = out.len / 8 * 5; /* two frames and a half */
	one->events->bytes(one->ctx, buf_head(&out), half);
	ck_assert_int_eq(told, 1);
	one->events->bytes(one->ctx, (char *)buf_head(&out) + half, out.len - half);
	ck_assert_int_eq(told, 1);
	for (int i = 2; i <= 4; i++) {
		event_base_loop(agents.base, EVLOOP_ONCE);
		ck_assert_int_eq(told, i);
	}
	event_base_loop(agents.base, EVLOOP_NONBLOCK);
	ck_assert_int_eq(told, 4);
	ck_assert_uint_eq(agents.host->in.len, 0);
	buf_free(&out);
}
END_TEST

START_TEST(frames_that_wait_come_before_the_end)
{
	const struct transport_end end = { .said = "" };
	struct buf out = { 0 };

	agents.events = &slow;
	say_hello();
	told = 0;
	say_frames(&out, 3);
	one->events->bytes(one->ctx, buf_head(&out), out.len);
	ck_assert_int_eq(told, 1);
	one->events->ended(one->ctx, &end);
	ck_assert_int_eq(told, 3);
	ck_assert_int_eq(agents.host->state, HOST_LOST);
	event_base_loop(agents.base, EVLOOP_NONBLOCK);
	ck_assert_int_eq(told, 3);
	buf_free(&out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agents");
	TCase *c = tcase_create("agents");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, call_backs_may_be_null);
	tcase_add_test(c, the_ssh_program_is_next);
	tcase_add_test(c, an_agent_that_reads_no_answer_is_given_up);
	tcase_add_test(c, a_later_loss_has_its_own_reason);
	tcase_add_test(c, times_keep_their_order);
	tcase_add_test(c, frames_that_take_long_wait);
	tcase_add_test(c, frames_that_wait_come_before_the_end);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
