/* call.h: what an agent takes for runner's, by how it was told to read it. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <unistd.h>

#include "agent/call.h"
#include "common/munge.h"

/* ---- MUNGE ---- */

/* A credential is "MUNGE:" and what it holds, as text, of the socket that was given. */
static const char *held;
static size_t nheld;
static const char *fails;
static const char *want_socket;
static int unwraps;

int __wrap_munge_unwrap(const char *socket, const char *credential, struct buf *out,
			struct str *why);
int __wrap_munge_unwrap(const char *socket, const char *credential, struct buf *out,
			struct str *why)
{
	unwraps++;
	ck_assert_pstr_eq(socket, want_socket);
	ck_assert_str_eq(credential, "MUNGE:x:");
	if (fails) {
		str_add(why, fails);
		return -1;
	}
	buf_add(out, held, nheld);
	return 0;
}

/* ---- calls ---- */

static const unsigned char key[KEY_BYTES] = "of the job";
static const struct call_how munge = { .munge = true }, clear = { .munge = false };

static struct call call;
static struct err e;

static void setup(void)
{
	fails = want_socket = NULL;
	unwraps = 0;
	memset(&call, 0xff, sizeof call);
	e = (struct err){ 0 };
}

static struct wire_door door_of(const char *const *addresses, size_t n)
{
	return (struct wire_door){ .key = { key, sizeof key },
				   .addresses = { addresses, n },
				   .port = 4711,
				   .within_ms = 20000,
				   .copy = 1 };
}

static const char *const usual[] = { "10.77.0.3", "fd00::5" };

static struct buf door(void)
{
	const struct wire_door m = door_of(usual, 2);
	struct buf b = { 0 };

	wire_pack_door(&b, &m);
	return b;
}

/* A `call` that has these bytes, taken as HOW says.  -1, or 0. */
static int take(const struct call_how *how, const void *bytes, size_t n)
{
	const struct wire_call m = { .version = BERTH_VERSION,
				     .wire = WIRE_VERSION,
				     .door = { bytes, n } };
	struct wire_frame f;
	struct buf b = { 0 };
	int rc;

	wire_pack_call(&b, &m);
	ck_assert_int_eq(wire_next_from(WIRE_LAUNCHER, &f, buf_head(&b), b.len, NULL),
			 (long)b.len);
	rc = call_take(&call, how, &f, &e);
	ck_assert_int_eq(rc != 0, e.id != ERR_NONE);
	buf_free(&b);
	return rc;
}

static int take_credential(const struct call_how *how, const void *bytes, size_t n)
{
	held = bytes;
	nheld = n;
	return take(how, "MUNGE:x:", 8);
}

static void is_usual(void)
{
	struct str where = { 0 };

	ck_assert(!memcmp(call.key, key, sizeof key));
	ck_assert_uint_eq(call.within_ms, 20000);
	ck_assert(call.copy);
	ck_assert_uint_eq(call.n, 2);
	call_where(&where, &call);
	ck_assert_str_eq(str_text(&where), "10.77.0.3, fd00::5 (port 4711)");
	str_free(&where);
}

static void refuses(const char *text)
{
	ck_assert_msg(strstr(e.text, text) != NULL, "%s", e.text);
	e = (struct err){ 0 };
}

START_TEST(by_munge)
{
	struct buf b = door();

	ck_assert_int_eq(take_credential(&munge, buf_head(&b), b.len), 0);
	ck_assert_int_eq(unwraps, 1);
	is_usual();
	buf_free(&b);
}
END_TEST

START_TEST(by_another_socket)
{
	struct call_how how;
	struct buf b = door();

	ck_assert(call_how_read(&how, "munge:/run/other"));
	want_socket = "/run/other";
	ck_assert_int_eq(take_credential(&how, buf_head(&b), b.len), 0);
	is_usual();
	buf_free(&b);
}
END_TEST

START_TEST(in_clear)
{
	struct buf b = door();

	ck_assert_int_eq(take(&clear, buf_head(&b), b.len), 0);
	is_usual();
	ck_assert_int_eq(unwraps, 0);
	buf_free(&b);
}
END_TEST

/* Any process on the network can say what it likes on stdin. */
START_TEST(a_key_in_clear_where_munge_was_said)
{
	struct buf b = door();

	ck_assert_int_eq(take(&munge, buf_head(&b), b.len), -1);
	ck_assert_int_eq(e.id, E_CALL);
	refuses("runner uses MUNGE, and the message on stdin is not a credential");
	ck_assert_int_eq(take(&munge, "", 0), -1);
	refuses("not a credential");
	ck_assert_int_eq(take(&munge, "MUNGE", 5), -1);
	refuses("not a credential");
	ck_assert_int_eq(take(&munge, "MUNGE:x:\0", 9), -1);
	refuses("not a credential");
	ck_assert_int_eq(unwraps, 0);
	ck_assert_uint_eq(call.n, 0);
	ck_assert(!call.copy);
	buf_free(&b);
}
END_TEST

START_TEST(a_credential_where_clear_was_said)
{
	ck_assert_int_eq(take(&clear, "MUNGE:x:", 8), -1);
	refuses("stdin has no message of runner's");
	ck_assert_int_eq(unwraps, 0);
}
END_TEST

START_TEST(munge_says_why)
{
	struct buf b = door();

	fails = "the credential is 4000 s old";
	ck_assert_int_eq(take_credential(&munge, buf_head(&b), b.len), -1);
	refuses("cannot call runner: the credential is 4000 s old");
	ck_assert_uint_eq(call.n, 0);
	buf_free(&b);
}
END_TEST

/* What a credential of our own holds may be of another program. */
START_TEST(a_credential_of_something_else)
{
	struct buf b = door();

	for (size_t n = 0; n < b.len; n++) {
		ck_assert_int_eq(take_credential(&munge, buf_head(&b), n), -1);
		refuses("stdin has no message of runner's");
	}
	buf_add(&b, "", 1);
	ck_assert_int_eq(take_credential(&munge, buf_head(&b), b.len), -1);
	refuses("stdin has no message of runner's");
	buf_head(&b)[4] = WIRE_call;
	ck_assert_int_eq(take_credential(&munge, buf_head(&b), b.len - 1), -1);
	refuses("stdin has no message of runner's");
	ck_assert_uint_eq(call.n, 0);
	buf_free(&b);
}
END_TEST

START_TEST(what_cannot_be_called)
{
	static const char *const names[] = { "localhost", "a.name" };
	const struct wire_door doors[] = {
		{ .addresses = { usual, 2 }, .port = 4711 },
		{ .key = { key, 31 }, .addresses = { usual, 2 }, .port = 4711 },
		{ .key = { key, 32 }, .addresses = { usual, 2 } },
		{ .key = { key, 32 }, .addresses = { usual, 2 }, .port = 65536 },
		{ .key = { key, 32 }, .port = 4711 },
		{ .key = { key, 32 }, .addresses = { names, 2 }, .port = 4711 },
	};

	for (size_t i = 0; i < sizeof doors / sizeof *doors; i++) {
		struct buf b = { 0 };

		wire_pack_door(&b, &doors[i]);
		ck_assert_int_eq(take_credential(&munge, buf_head(&b), b.len), -1);
		refuses(i < 2 ? "no key" : "no address");
		buf_free(&b);
	}
}
END_TEST

START_TEST(many_addresses)
{
	const char *many[CALL_ADDRESSES_MOST + 9];
	struct wire_door m = door_of(many, sizeof many / sizeof *many);
	struct str where = { 0 };
	struct buf b = { 0 };

	for (size_t i = 0; i < sizeof many / sizeof *many; i++)
		many[i] = "10.0.0.1";
	wire_pack_door(&b, &m);
	ck_assert_int_eq(take_credential(&munge, buf_head(&b), b.len), 0);
	ck_assert_uint_eq(call.n, CALL_ADDRESSES_MOST);
	call_where(&where, &call);
	ck_assert_ptr_nonnull(
		strstr(str_text(&where), "10.0.0.1 and 58 more (port 4711)"));
	str_free(&where);
	buf_free(&b);
}
END_TEST

/* Before anything else is looked at, so that a copy can be sent. */
START_TEST(another_version)
{
	const struct wire_call m = { .version = "0.0.1", .wire = 3 };
	struct wire_frame f;
	struct buf b = { 0 };

	wire_pack_call(&b, &m);
	ck_assert_int_gt(wire_next_from(WIRE_LAUNCHER, &f, buf_head(&b), b.len, NULL),
			 0);
	ck_assert_int_eq(call_take(&call, &munge, &f, &e), -1);
	ck_assert_int_eq(e.id, E_AGENT_OTHER);
	ck_assert_int_eq(unwraps, 0);
	buf_free(&b);
}
END_TEST

START_TEST(how_it_is_read)
{
	static const char *const none[] = { "",       "munge:", "mung",   "mungex",
					    "clear:", "Clear",  "munge ", "clearx" };
	struct call_how how;

	ck_assert(call_how_read(&how, "munge") && how.munge && !how.socket);
	ck_assert(call_how_read(&how, "clear") && !how.munge && !how.socket);
	ck_assert(call_how_read(&how, "munge:/a:b") && how.munge);
	ck_assert_str_eq(how.socket, "/a:b");
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		ck_assert(!call_how_read(&how, none[i]));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("call");
	TCase *c = tcase_create("call");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, by_munge);
	tcase_add_test(c, by_another_socket);
	tcase_add_test(c, in_clear);
	tcase_add_test(c, a_key_in_clear_where_munge_was_said);
	tcase_add_test(c, a_credential_where_clear_was_said);
	tcase_add_test(c, munge_says_why);
	tcase_add_test(c, a_credential_of_something_else);
	tcase_add_test(c, what_cannot_be_called);
	tcase_add_test(c, many_addresses);
	tcase_add_test(c, another_version);
	tcase_add_test(c, how_it_is_read);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
