/* callback_rig.h - for tests of callback.h: the launcher behind a door, and agents that
 * call there. */
#ifndef BERTH_TESTS_CALLBACK_RIG_H
#define BERTH_TESTS_CALLBACK_RIG_H

#include "sealed_rig.h"

#include <netinet/in.h>

#include "common/wire.h"
#include "launcher/transport/callback.h"

static struct callback *door;
static size_t descriptors;

/* ---- the launcher ---- */

static struct sealed *stream; /* the last agent's that has called */
static char host[64];
static struct buf got;
static size_t calls, ends;
static bool close_in_call;

static void on_bytes(void *ctx, const void *data, size_t n)
{
	ck_assert_ptr_eq(ctx, &got);
	buf_add(&got, data, n);
}

static void on_writable(void *ctx)
{
	(void)ctx;
}

static void on_ended(void *ctx, const struct transport_end *end)
{
	(void)ctx;
	(void)end;
	ends++;
	sealed_close(stream);
	stream = NULL;
}

static void on_called(void *ctx, const char *name, struct sealed *s, const void *rest,
		      size_t n)
{
	static const struct transport_events events = { on_bytes, on_writable,
							on_ended };

	ck_assert_ptr_eq(ctx, &calls);
	calls++;
	snprintf(host, sizeof host, "%s", name);
	if (close_in_call) { /* the last that was awaited is not awaited any more */
		sealed_close(s);
		callback_close(door);
		door = NULL;
		return;
	}
	ck_assert_ptr_null(stream);
	stream = s;
	sealed_hand(s, &events, &got);
	buf_add(&got, rest, n);
}

static struct callback *open_door(unsigned first, unsigned last)
{
	struct err e = { 0 };
	struct callback *c =
		callback_open(base, key, first, last, on_called, &calls, &e);

	ck_assert_msg(c != NULL, "%s", e.text);
	return c;
}

/* The time of a caller is over when a test says so. */
static struct event *late;
static uint64_t late_ms;
void __real_loop_after_ms(struct event *e, uint64_t ms);
void __wrap_loop_after_ms(struct event *e, uint64_t ms);

void __wrap_loop_after_ms(struct event *e, uint64_t ms)
{
	late = e;
	late_ms = ms;
	__real_loop_after_ms(e, ms + RIG_PATIENCE_MS);
}

static void setup(void)
{
	rig_open();
	descriptors = count_descriptors();
	door = open_door(0, 0);
	stream = NULL;
	calls = ends = 0;
	close_in_call = false;
}

static void teardown(void)
{
	if (door)
		callback_close(door);
	if (stream)
		sealed_close(stream);
	buf_free(&got);
	ck_assert_uint_eq(count_descriptors(), descriptors);
	event_base_free(base);
}

/* ---- callers ---- */

static int connect_to(int family, unsigned port)
{
	const struct sockaddr_in a4 = { .sin_family = AF_INET,
					.sin_port = htons((uint16_t)port),
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
					 .sin6_port = htons((uint16_t)port),
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 &&
	    !connect(fd, family == AF_INET ? (const void *)&a4 : (const void *)&a6,
		     family == AF_INET ? sizeof a4 : sizeof a6))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Its end leaves nothing in the kernel: there are many. */
static struct far connected(void)
{
	const struct linger none = { .l_onoff = 1 };
	struct far f = { .fd = connect_to(AF_INET, callback_port(door)) };

	ck_assert_int_ge(f.fd, 0);
	setsockopt(f.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
	return f;
}

static void dropped(struct far *f)
{
	rig_until(far_has_ended, f);
	far_free(f);
}

static bool has_called(void *arg)
{
	return calls >= *(size_t *)arg;
}

/* `called` of NAME, and REST. */
static struct buf called(const char *name, const char *rest)
{
	struct buf b = { 0 };

	wire_pack_called(&b, &(struct wire_called){ .host = name });
	buf_add(&b, rest, strlen(rest));
	return b;
}

static void far_say_called(struct far *f, const char *name, const char *rest)
{
	struct buf b = called(name, rest);

	far_say(f, buf_head(&b), b.len);
	buf_free(&b);
}

static void gets_in(struct far *f)
{
	size_t n = calls + 1;

	far_say_called(f, "n1", "and");
	rig_until(has_called, &n);
	ck_assert_str_eq(host, "n1");
	ck_assert_uint_eq(got.len, 3);
	ck_assert(!memcmp(buf_head(&got), "and", 3));
}

/* An agent calls, and both sides hear each other. */
static void good_call(struct far *f)
{
	far_call(f);
	far_take_answer(f);
	gets_in(f);
	ck_assert_uint_eq(sealed_send(stream, "hello", 5), 5);
	for (const uint64_t end = clock_ms() + RIG_PATIENCE_MS; f->plain.len < 5;) {
		ck_assert_uint_lt(clock_ms(), end);
		rig_turn();
		far_hear(f);
	}
	ck_assert(!memcmp(buf_head(&f->plain), "hello", 5));
}

static TCase *add_case(Suite *s, const char *name)
{
	TCase *c = tcase_create(name);

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	suite_add_tcase(s, c);
	return c;
}

#endif
