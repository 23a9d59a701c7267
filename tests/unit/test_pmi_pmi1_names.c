/* agent/pmi/pmi1_names.h and its use in pmi1.c: what ranks publish and look up. */
#include "tests/unit/pmi1_rig.h"

#include "agent/pmi/pmi1_line.h"

/* What the launcher hears next about names: "publish RANK KEY=VALUE", to be freed; its
 * id in *ID. */
static char *heard_name(uint32_t *id)
{
	struct wire_frame f;
	struct wire_publish p;
	struct wire_lookup l;
	struct wire_unpublish u;
	char *text = NULL;
	long n = wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, NULL);

	ck_assert_int_gt(n, 0);
	if (f.type == WIRE_publish) {
		ck_assert(!wire_unpack_publish(&p, f.payload, f.n, NULL));
		ck_assert(p.epoch == 3 && p.keys.n == 1 && p.sizes.n == 1 && !p.once);
		ck_assert_uint_eq(p.sizes.v[0], p.values.n);
		*id = p.id;
		text = xasprintf("publish %u %s=%.*s", p.rank, p.keys.v[0],
				 (int)p.values.n, (const char *)p.values.p);
		wire_free_publish(&p);
	} else if (f.type == WIRE_lookup) {
		ck_assert(!wire_unpack_lookup(&l, f.payload, f.n, NULL));
		ck_assert(l.epoch == 3 && l.keys.n == 1 && !l.wait && !l.timeout_s);
		*id = l.id;
		text = xasprintf("lookup %u %s", l.rank, l.keys.v[0]);
		wire_free_lookup(&l);
	} else {
		ck_assert_uint_eq(f.type, WIRE_unpublish);
		ck_assert(!wire_unpack_unpublish(&u, f.payload, f.n, NULL));
		ck_assert(u.epoch == 3 && u.keys.n == 1);
		*id = u.id;
		text = xasprintf("unpublish %u %s", u.rank, u.keys.v[0]);
		wire_free_unpublish(&u);
	}
	buf_drop(&out, (size_t)n);
	return text;
}

/* Rank R says LINE, and the launcher hears TEXT: the id of the request. */
static uint32_t asks(int r, const char *line, const char *text)
{
	uint32_t id = 0;
	char *heard_text;

	say(r, line);
	while (!out.len)
		turn();
	heard_text = heard_name(&id);
	ck_assert_str_eq(heard_text, text);
	free(heard_text);
	return id;
}

static void found_bytes(uint32_t epoch, uint32_t id, uint32_t status, const void *value,
			size_t n)
{
	const char *key = "pmi1:s";
	const uint32_t owner = 1, size = (uint32_t)n;
	struct buf b = { 0 };

	wire_pack_found(&b, &(struct wire_found){ epoch,
						  id,
						  status,
						  { &key, n > 0 },
						  { &owner, n > 0 },
						  { &size, n > 0 },
						  { value, n } });
	ck_assert_int_eq(give(&b), 0);
}

static void found(uint32_t id, uint32_t status, const char *value)
{
	found_bytes(3, id, status, value, strlen(value));
}

START_TEST(published_looked_up_taken_back)
{
	uint32_t id;

	open_server(2, 7, 2, JOB_PMI1);
	id = asks(1, "cmd=publish_name service=a service, of #=1 port=tag#0$x#\n",
		  "publish 1 pmi1:a service, of #=1=tag#0$x#");
	hears_nothing(1);
	found(id, FOUND_ALL, "");
	hears(1, "cmd=publish_result info=ok rc=0 msg=success");
	id = asks(0, "cmd=lookup_name service=a service, of #=1\n",
		  "lookup 0 pmi1:a service, of #=1");
	found(id, FOUND_ALL, "tag#0$x#");
	hears(0, "cmd=lookup_result info=ok rc=0 msg=success port=tag#0$x#");
	id = asks(1, "cmd=unpublish_name service=s\n", "unpublish 1 pmi1:s");
	found(id, FOUND_ALL, "");
	hears(1, "cmd=unpublish_result info=ok rc=0 msg=success");
	close_server();
}
END_TEST

/* What it has written goes on after the answer, and no other rank waits. */
START_TEST(a_rank_waits_for_its_answer)
{
	uint32_t first, second;

	open_server(2, 2, 1, JOB_PMI1);
	first = asks(0, "cmd=lookup_name service=s\ncmd=get_appnum\n",
		     "lookup 0 pmi1:s");
	hears_nothing(0);
	ask(1, "cmd=get_appnum\n", "cmd=appnum appnum=6");
	second = asks(1, "cmd=lookup_name service=s\n", "lookup 1 pmi1:s");
	ck_assert_uint_ne(first, second);
	found(second, FOUND_ALL, "p");
	hears(1, "cmd=lookup_result info=ok rc=0 msg=success port=p");
	hears_nothing(0);
	found(first, FOUND_NONE, "");
	hears(0, "cmd=lookup_result info=fail rc=-1 msg=service_not_found");
	hears(0, "cmd=appnum appnum=5");
	close_server();
}
END_TEST

static const struct {
	const char *line;
	uint32_t status;
	const char *value, *answer;
} failures[] = {
	{ "cmd=publish_name service=s port=p\n", FOUND_DUPLICATE, "",
	  "cmd=publish_result info=fail rc=-1 msg=key_already_present" },
	{ "cmd=publish_name service=s port=p\n", FOUND_NO_ROOM, "",
	  "cmd=publish_result info=fail rc=-1 msg=no_room" },
	{ "cmd=unpublish_name service=s\n", FOUND_NONE, "",
	  "cmd=unpublish_result info=fail rc=-1 msg=service_not_found" },
	{ "cmd=lookup_name service=s\n", 77, "p",
	  "cmd=lookup_result info=fail rc=-1 msg=failed" },
	/* what no answer can carry */
	{ "cmd=lookup_name service=s\n", FOUND_ALL, "",
	  "cmd=lookup_result info=fail rc=-1 msg=failed" },
	{ "cmd=lookup_name service=s\n", FOUND_ALL, "p\ncmd=x",
	  "cmd=lookup_result info=fail rc=-1 msg=failed" },
	{ "cmd=lookup_name service=s\n", FOUND_ALL, "p q",
	  "cmd=lookup_result info=fail rc=-1 msg=failed" },
};

START_TEST(what_is_not_so)
{
	uint32_t id = 0;

	open_server(1, 1, 1, JOB_PMI1);
	say(0, failures[_i].line);
	while (!out.len)
		turn();
	free(heard_name(&id));
	found(id, failures[_i].status, failures[_i].value);
	hears(0, failures[_i].answer);
	close_server();
}
END_TEST

/* The longest port is carried, and a longer one is refused. */
START_TEST(long_ports)
{
	char *port = xmalloc(PMI1_VALUE_BYTES + 1), *line, *answer;
	uint32_t id = 0;

	memset(port, 'p', PMI1_VALUE_BYTES);
	port[PMI1_VALUE_BYTES] = '\0';
	open_server(1, 1, 1, JOB_PMI1);
	line = xasprintf("cmd=publish_name service=s port=%s\n", port);
	ask(0, line, "cmd=publish_result info=fail rc=-1 msg=invalid_service_or_port");
	free(line);
	port[PMI1_VALUE_BYTES - 1] = '\0';
	line = xasprintf("cmd=publish_name service=s port=%s\n", port);
	say(0, line);
	while (!out.len)
		turn();
	free(heard_name(&id));
	found(id, FOUND_ALL, "");
	hears(0, "cmd=publish_result info=ok rc=0 msg=success");
	id = asks(0, "cmd=lookup_name service=s\n", "lookup 0 pmi1:s");
	found(id, FOUND_ALL, port);
	answer = xasprintf("cmd=lookup_result info=ok rc=0 msg=success port=%s", port);
	hears(0, answer);
	free(line);
	free(answer);
	free(port);
	close_server();
}
END_TEST

/* Answers that nobody awaits: of another id, of another epoch, the second time, after
 * the rank has a new connection, and has ended. */
START_TEST(strange_answers)
{
	struct err e;
	uint32_t id;

	open_server(1, 1, 1, JOB_PMI1);
	id = asks(0, "cmd=lookup_name service=s\n", "lookup 0 pmi1:s");
	found(id + 1, FOUND_ALL, "p");
	found(id & INT32_MAX, FOUND_ALL, "p"); /* libpmix' */
	found_bytes(2, id, FOUND_ALL, "p", 1);
	hears_nothing(0);
	found(id, FOUND_ALL, "q");
	hears(0, "cmd=lookup_result info=ok rc=0 msg=success port=q");
	found(id, FOUND_ALL, "p");
	hears_nothing(0);
	id = asks(0, "cmd=lookup_name service=s\n", "lookup 0 pmi1:s");
	close(rank_fd[0]);
	ck_assert_int_eq(server_pmi1(server, 0, &rank_fd[0], &e), 0);
	found(id, FOUND_ALL, "p");
	hears_nothing(0);
	id = asks(0, "cmd=lookup_name service=s\n", "lookup 0 pmi1:s");
	ck_assert_ptr_null(server_ended(server, 0, false));
	found(id, FOUND_ALL, "p");
	close_server();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmi1_names");
	TCase *t = tcase_create("names");

	tcase_add_test(t, published_looked_up_taken_back);
	tcase_add_test(t, a_rank_waits_for_its_answer);
	tcase_add_loop_test(t, what_is_not_so, 0, LEN(failures));
	tcase_add_test(t, long_ports);
	tcase_add_test(t, strange_answers);
	suite_add_tcase(s, t);
	return run_all(s);
}
