/* callback.h: who has the key gets in, whatever else calls; nobody else does. */
#include "callback_rig.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "launcher/cli/values.h"

START_TEST(an_agent_is_handed_over)
{
	struct far f = connected();

	good_call(&f);
	callback_close(door); /* the stream goes on */
	door = NULL;
	far_say(&f, " more", 5);
	for (const uint64_t end = clock_ms() + RIG_PATIENCE_MS; got.len < 8;) {
		ck_assert_uint_lt(clock_ms(), end);
		rig_turn();
	}
	ck_assert(!memcmp(buf_head(&got), "and more", 8));
	far_free(&f);
	for (const uint64_t end = clock_ms() + RIG_PATIENCE_MS; !ends; rig_turn())
		ck_assert_uint_lt(clock_ms(), end);
}
END_TEST

START_TEST(by_both_families)
{
	struct far f = { .fd = connect_to(AF_INET6, callback_port(door)) };

	if (f.fd < 0) {
		puts("note: this machine has no IPv6: not tested");
		return;
	}
	good_call(&f);
	far_free(&f);
}
END_TEST

/* Each byte of `called` in a chunk of its own. */
START_TEST(called_in_parts)
{
	struct far f = connected();
	struct buf b = called("host.of.slurm", "");
	size_t one = 1;

	far_call(&f);
	far_take_answer(&f);
	for (size_t i = 0; i < b.len; i++) {
		ck_assert_uint_eq(calls, 0);
		far_say(&f, buf_head(&b) + i, 1);
		rig_turn();
	}
	rig_until(has_called, &one);
	ck_assert_str_eq(host, "host.of.slurm");
	ck_assert_uint_eq(got.len, 0);
	buf_free(&b);
	far_free(&f);
}
END_TEST

START_TEST(may_be_closed_in_a_call)
{
	struct far waits = connected(), f = connected();

	rig_turn();
	close_in_call = true;
	far_call(&f);
	far_take_answer(&f);
	far_say_called(&f, "n1", "and");
	dropped(&f);
	dropped(&waits);
	ck_assert_uint_eq(calls, 1);
}
END_TEST

/* ---- who is refused ---- */

START_TEST(another_key_is_refused)
{
	struct far f = connected();
	unsigned char other[KEY_BYTES];

	memcpy(other, key, sizeof other);
	other[0] ^= 1;
	key_call(&f.side, other, f.call);
	far_write(&f, f.call, sizeof f.call);
	dropped(&f);
	ck_assert_uint_eq(calls, 0);
}
END_TEST

/* Garbage of every length: what is as long as a call is refused at once, and what is
 * shorter with its end.  Nothing is answered. */
START_TEST(garbage_is_refused)
{
	unsigned char garbage[2 * KEY_CALL_BYTES];

	for (size_t n = 0; n <= sizeof garbage; n++) {
		struct far f = connected();

		key_random(garbage);
		for (size_t at = KEY_BYTES; at + KEY_BYTES <= sizeof garbage;
		     at += KEY_BYTES)
			key_random(garbage + at);
		far_write(&f, garbage, n);
		if (n < KEY_CALL_BYTES)
			shutdown(f.fd, SHUT_WR);
		rig_until(far_has_ended, &f);
		ck_assert_uint_eq(f.in.len, 0);
		far_free(&f);
	}
	ck_assert_uint_eq(calls, 0);
}
END_TEST

static void replayed(const struct far *f)
{
	struct far again = connected();

	far_write(&again, f->call, sizeof f->call);
	rig_until(far_has_ended, &again);
	ck_assert_uint_eq(again.in.len, 0);
	far_free(&again);
}

/* A call that was recorded gets no answer, whether its agent has gone on or not. */
START_TEST(a_replayed_call_is_dropped)
{
	struct far f = connected(), next;

	far_call(&f);
	far_take_answer(&f);
	replayed(&f);
	gets_in(&f);
	for (int i = 0; i < 3; i++)
		replayed(&f);
	ck_assert_uint_eq(calls, 1);
	buf_drop(&got, got.len);
	sealed_close(stream);
	stream = NULL;
	next = connected(); /* of the same key */
	good_call(&next);
	replayed(&f);
	replayed(&next);
	far_free(&f);
	far_free(&next);
}
END_TEST

/* An agent may try often; each of its calls is a new one. */
START_TEST(all_of_many_calls_are_known)
{
	enum { MANY = 3000 }; /* the table grows */
	static struct far f[MANY];

	for (size_t i = 0; i < MANY; i++) {
		f[i] = connected();
		far_call(&f[i]);
		far_take_answer(&f[i]);
		far_free(&(struct far){ .fd = f[i].fd, .in = f[i].in });
	}
	for (size_t i = 0; i < MANY; i += 7)
		replayed(&f[i]);
}
END_TEST

/* A call that is cut off, or a `called`. */
static const struct silent_case {
	size_t bytes; /* of the call */
	const char *says;
	size_t n;
} silents[] = {
	{ 0, NULL, 0 },
	{ KEY_CALL_BYTES / 2, NULL, 0 },
	{ KEY_CALL_BYTES - 1, NULL, 0 },
	{ KEY_CALL_BYTES, NULL, 0 },
	{ KEY_CALL_BYTES, "\x09\0\0\0\x2e\x04", 6 },
};

START_TEST(silence_is_cut_off)
{
	const struct silent_case *k = &silents[_i];
	struct far f = connected();

	key_call(&f.side, key, f.call);
	far_write(&f, f.call, k->bytes);
	late = NULL;
	while (!late)
		rig_turn();
	ck_assert_uint_eq(late_ms, 5000);
	if (k->bytes == KEY_CALL_BYTES)
		far_take_answer(&f);
	if (k->n)
		far_say(&f, k->says, k->n);
	for (int i = 0; i < 3; i++)
		rig_turn();
	ck_assert(!far_has_ended(&f));
	event_active(late, EV_TIMEOUT, 0);
	dropped(&f);
	ck_assert_uint_eq(calls, 0);
}
END_TEST

/* With the key, but not as an agent begins. */
static const struct wrong_case {
	const char *head; /* of a frame: u32 bytes, its type */
	size_t bytes;     /* in all */
} wrongs[] = {
	{ "\x00\x08\0\0\x2e", 2053 }, /* a long `called` */
	{ "\xff\xff\xff\xff\x2e", 100 },
	{ "\x00\0\0\0\x2e", 5 },        /* an empty one */
	{ "\x05\0\0\0\x2e", 10 },       /* a text without its end */
	{ "\x04\0\0\0\x01", 9 },        /* hello */
	{ "\x04\0\0\0\x2d", 9 },        /* call, which runner sends */
	{ "\x04\0\0\0\xff", 9 },        /* no message */
	{ "\0berth1\n", 8 },            /* an agent of ssh */
	{ "\x00\x03\0\0\x01", 1 << 20 } /* endless */
};

START_TEST(another_message_is_refused)
{
	const struct wrong_case *k = &wrongs[_i];
	struct far f = connected();
	unsigned char *bytes = xcalloc(1, k->bytes);
	struct buf sealed = { 0 };

	memset(bytes, 'n', k->bytes);
	memcpy(bytes, k->head, k->bytes < 8 ? 5 : k->bytes == 8 ? 8 : 5);
	far_call(&f);
	far_take_answer(&f);
	key_seal(&f.side, &sealed, bytes, k->bytes);
	/* maybe not all of it: it may be refused before */
	send(f.fd, buf_head(&sealed), sealed.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	dropped(&f);
	ck_assert_uint_eq(calls, 0);
	buf_free(&sealed);
	free(bytes);
}
END_TEST

/* What `called` says, in a message of another kind. */
START_TEST(another_type_is_refused)
{
	struct far f = connected();
	struct buf b = called("n1", "");

	buf_head(&b)[4] = WIRE_terminate;
	far_call(&f);
	far_take_answer(&f);
	far_say(&f, buf_head(&b), b.len);
	dropped(&f);
	ck_assert_uint_eq(calls, 0);
	buf_free(&b);
}
END_TEST

START_TEST(its_end_closes_all)
{
	struct far f[3] = { connected(), connected(), connected() };

	far_call(&f[1]);
	far_take_answer(&f[1]);
	rig_turn();
	callback_close(door);
	door = NULL;
	for (size_t i = 0; i < 3; i++)
		dropped(&f[i]);
}
END_TEST

/* ---- ports ---- */

START_TEST(a_taken_port_is_passed_over)
{
	const unsigned port = callback_port(door);
	struct callback *next;
	struct err e = { 0 };

	ck_assert_uint_ne(port, 0);
	ck_assert_ptr_null(callback_open(base, key, port, port, on_called, NULL, &e));
	ck_assert_int_eq(e.id, E_SYSTEM);
	next = open_door(port, port < 65000 ? port + 500 : 65535);
	ck_assert_uint_gt(callback_port(next), port);
	callback_close(next);
}
END_TEST

/* Connections that it closed itself keep the port of their ends for a minute. */
START_TEST(its_port_can_be_had_again)
{
	const unsigned first = 20000 + (unsigned)getpid() % 10000;
	struct far f;
	unsigned port;

	callback_close(door);
	door = open_door(first, first + 1000);
	port = callback_port(door);
	f = (struct far){ .fd = connect_to(AF_INET, port) };
	good_call(&f);
	sealed_close(stream);
	stream = NULL;
	callback_close(door);
	dropped(&f);
	door = open_door(port, port);
	ck_assert_uint_eq(callback_port(door), port);
}
END_TEST

/* ---- addresses ---- */

/* Of a machine with loopback, two networks, one that is down, one without address. */
static struct ifaddrs given[8];
static struct sockaddr_storage addresses[8];
int __wrap_getifaddrs(struct ifaddrs **all);
void __wrap_freeifaddrs(struct ifaddrs *all);

int __wrap_getifaddrs(struct ifaddrs **all)
{
	static const struct {
		const char *address;
		unsigned flags;
	} machine[] = {
		{ "127.0.0.1", IFF_UP | IFF_LOOPBACK },
		{ "::1", IFF_UP | IFF_LOOPBACK },
		{ "10.77.0.9", IFF_UP },
		{ "192.168.130.7", IFF_UP },
		{ "10.99.0.1", 0 },
		{ "fd00:8:9::5", IFF_UP },
		{ "fe80::1", IFF_UP },
		{ NULL, IFF_UP },
	};
	const size_t n = sizeof machine / sizeof *machine;

	for (size_t i = 0; i < n; i++) {
		struct sockaddr_in *a4 = (void *)&addresses[i];
		struct sockaddr_in6 *a6 = (void *)&addresses[i];
		const char *text = machine[i].address;

		given[i] =
			(struct ifaddrs){ .ifa_flags = machine[i].flags,
					  .ifa_next = i + 1 < n ? &given[i + 1] : NULL,
					  .ifa_addr = text ? (void *)a4 : NULL };
		a4->sin_family = text && strchr(text, ':') ? AF_INET6 : AF_INET;
		if (text && a4->sin_family == AF_INET)
			ck_assert_int_eq(inet_pton(AF_INET, text, &a4->sin_addr), 1);
		else if (text)
			ck_assert_int_eq(inet_pton(AF_INET6, text, &a6->sin6_addr), 1);
	}
	*all = given;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *all)
{
	ck_assert_ptr_eq(all, given);
}

static const struct net_case {
	const char *net, *want;
} nets[] = {
	{ NULL, "10.77.0.9 192.168.130.7 fd00:8:9::5 " },
	{ "10.0.0.0/8", "10.77.0.9 " },
	{ "10.76.0.0/15", "10.77.0.9 " },
	{ "10.78.0.0/15", "" },
	{ "10.77.0.8/31", "10.77.0.9 " },
	{ "10.77.0.10/31", "" },
	{ "10.77.0.9", "10.77.0.9 " },
	{ "10.77.0.9/32", "10.77.0.9 " },
	{ "10.77.0.8/32", "" },
	{ "128.0.0.0/1", "192.168.130.7 " },
	{ "192.168.128.0/18,10.99.0.0/16", "192.168.130.7 " },
	{ "0.0.0.0/0", "10.77.0.9 192.168.130.7 " },
	{ "::/0", "fd00:8:9::5 " },
	{ "fc00::/7", "fd00:8:9::5 " },
	{ "fd00:8:8::/47", "fd00:8:9::5 " },
	{ "fd00:8:a::/47", "" },
	{ "fd00:8:9::4/127", "fd00:8:9::5 " },
	{ "fd00:8:9::6/127", "" },
	{ "fd00:8:9::5", "fd00:8:9::5 " },
	{ "10.0.0.0/8,fd00::/8", "10.77.0.9 fd00:8:9::5 " },
	{ "172.16.0.0/12,fe80::/10", "" },
	/* the machine's own, if it has none else there */
	{ "127.0.0.0/9", "127.0.0.1 " },
	{ "127.128.0.0/9", "" },
	{ "::1", "::1 " },
	{ "127.0.0.0/8,::/127", "127.0.0.1 ::1 " },
};

START_TEST(addresses_in_ranges)
{
	struct strv out = { 0 };
	struct str all = { 0 };
	struct request r = { 0 };
	const struct setting s = { .r = &r };

	ck_assert(!nets[_i].net || !value_net(&s, nets[_i].net, NULL));
	callback_addresses(&out, r.reach.net, r.reach.nnet);
	free(r.reach.net);
	strv_free(&r.env.export);
	for (size_t i = 0; i < out.n; i++)
		str_addf(&all, "%s ", out.v[i]);
	ck_assert_str_eq(str_text(&all), nets[_i].want);
	str_free(&all);
	strv_free(&out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("callback");
	TCase *c = add_case(s, "agents");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, an_agent_is_handed_over);
	tcase_add_test(c, by_both_families);
	tcase_add_test(c, called_in_parts);
	tcase_add_test(c, may_be_closed_in_a_call);
	tcase_add_test(c, another_key_is_refused);
	tcase_add_test(c, garbage_is_refused);
	tcase_add_test(c, a_replayed_call_is_dropped);
	tcase_add_test(c, all_of_many_calls_are_known);
	tcase_add_loop_test(c, silence_is_cut_off, 0, sizeof silents / sizeof *silents);
	tcase_add_loop_test(c, another_message_is_refused, 0,
			    sizeof wrongs / sizeof *wrongs);
	tcase_add_test(c, another_type_is_refused);
	tcase_add_test(c, its_end_closes_all);
	c = add_case(s, "where");
	tcase_add_test(c, a_taken_port_is_passed_over);
	tcase_add_test(c, its_port_can_be_had_again);
	tcase_add_loop_test(c, addresses_in_ranges, 0, sizeof nets / sizeof *nets);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
