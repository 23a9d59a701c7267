/* agent/pmi/pmi1.c and pmi1_line.h: lines and their answers, keys, barriers. */
#include "tests/unit/pmi1_rig.h"

#include "agent/pmi/pmi1_line.h"

/* ---- lines ---- */

static const struct {
	const char *line;
	enum pmi1_command command;
	const char *key, *value, *exitcode, *service, *port;
} lines[] = {
	{ "", PMI1_UNKNOWN, "", "", "", "", "" },
	{ "   ", PMI1_UNKNOWN, "", "", "", "", "" },
	{ "cmd", PMI1_UNKNOWN, "", "", "", "", "" },
	{ "cmd=", PMI1_UNKNOWN, "", "", "", "", "" },
	{ "cmd=inits", PMI1_UNKNOWN, "", "", "", "", "" },
	{ "cmd=init pmi_version=1 pmi_subversion=1", PMI1_INIT, "", "", "", "", "" },
	{ "  cmd=get_maxes  ", PMI1_GET_MAXES, "", "", "", "", "" },
	{ "cmd=get_appnum", PMI1_GET_APPNUM, "", "", "", "", "" },
	{ "cmd=get_my_kvsname", PMI1_GET_MY_KVSNAME, "", "", "", "", "" },
	{ "cmd=get_universe_size", PMI1_GET_UNIVERSE_SIZE, "", "", "", "", "" },
	{ "cmd=put kvsname=k key=a value=b", PMI1_PUT, "a", "b", "", "", "" },
	{ "cmd=put key=a value=b c=d  cmd=get ", PMI1_PUT, "a", "b c=d  cmd=get ", "",
	  "", "" },
	{ "cmd=put key=a=b value=", PMI1_PUT, "a=b", "", "", "", "" },
	{ "cmd=put key a value", PMI1_PUT, "", "", "", "", "" },
	{ "cmd=put key value=x", PMI1_PUT, "", "x", "", "", "" },
	{ "cmd=get key=a  kvsname=k", PMI1_GET, "a", "", "", "", "" },
	{ "key=a cmd=get", PMI1_GET, "a", "", "", "", "" },
	{ "cmd=get keys=a akey=b", PMI1_GET, "", "", "", "", "" },
	{ "cmd=barrier_in", PMI1_BARRIER_IN, "", "", "", "", "" },
	{ "cmd=finalize", PMI1_FINALIZE, "", "", "", "", "" },
	{ "cmd=abort exitcode=-7", PMI1_ABORT, "", "", "-7", "", "" },
	{ "cmd=publish_name service=s port=p", PMI1_PUBLISH_NAME, "", "", "", "s",
	  "p" },
	{ "cmd=publish_name service=a b=c,  d port=p q=r port=t ", PMI1_PUBLISH_NAME,
	  "", "", "", "a b=c,  d", "p q=r port=t " },
	{ "cmd=publish_name port=p service=s", PMI1_PUBLISH_NAME, "", "", "", "",
	  "p service=s" },
	{ "cmd=publish_name service= port=", PMI1_PUBLISH_NAME, "", "", "", "", "" },
	{ "cmd=publish_name service=s  port=p", PMI1_PUBLISH_NAME, "", "", "", "s ",
	  "p" },
	{ "cmd=lookup_name service=s", PMI1_LOOKUP_NAME, "", "", "", "s", "" },
	{ "cmd=lookup_name service=a b ", PMI1_LOOKUP_NAME, "", "", "", "a b ", "" },
	{ "cmd=unpublish_name service=s", PMI1_UNPUBLISH_NAME, "", "", "", "s", "" },
	{ "mcmd=spawn", PMI1_SPAWN, "", "", "", "", "" },
};

START_TEST(line_to_its_parts)
{
	char *text = xstrdup(lines[_i].line);
	const struct pmi1_line l = pmi1_parse(text);

	ck_assert_int_eq(l.command, lines[_i].command);
	ck_assert_str_eq(l.key, lines[_i].key);
	ck_assert_str_eq(l.value, lines[_i].value);
	ck_assert_str_eq(l.exitcode, lines[_i].exitcode);
	ck_assert_str_eq(l.service, lines[_i].service);
	ck_assert_str_eq(l.port, lines[_i].port);
	free(text);
}
END_TEST

static const struct {
	const char *line, *answer;
} answers[] = {
	{ "cmd=init pmi_version=1 pmi_subversion=1\n",
	  "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0" },
	{ "cmd=get_maxes\n",
	  "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024" },
	{ "cmd=get_appnum\n", "cmd=appnum appnum=6" },
	{ "cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_ab12_3" },
	{ "cmd=get_universe_size\n", "cmd=universe_size size=7" },
	{ "cmd=get kvsname=k key=none\n",
	  "cmd=get_result rc=-1 msg=key_none_not_found value=unknown" },
	{ "cmd=get\n", "cmd=get_result rc=-1 msg=key__not_found value=unknown" },
	{ "cmd=finalize\n", "cmd=finalize_ack" },
	{ "cmd=publish_name service=s port=\n",
	  "cmd=publish_result info=fail rc=-1 msg=invalid_service_or_port" },
	{ "cmd=publish_name service= port=p\n",
	  "cmd=publish_result info=fail rc=-1 msg=invalid_service_or_port" },
	{ "cmd=publish_name service=s port=p q\n",
	  "cmd=publish_result info=fail rc=-1 msg=invalid_service_or_port" },
	{ "cmd=publish_name service=s port=p\\q\n",
	  "cmd=publish_result info=fail rc=-1 msg=invalid_service_or_port" },
	{ "cmd=lookup_name\n",
	  "cmd=lookup_result info=fail rc=-1 msg=invalid_service_or_port" },
	{ "cmd=unpublish_name service=\n",
	  "cmd=unpublish_result info=fail rc=-1 msg=invalid_service_or_port" },
	{ "mcmd=spawn\nnprocs=1\ncmd=init\nexecname=x\nendcmd\n",
	  "cmd=spawn_result rc=-1 status=unsupported" },
	{ "cmd=other\n", "cmd=unknown_result rc=-1 msg=unsupported" },
	{ "\n", "cmd=unknown_result rc=-1 msg=unsupported" },
};

/* Of local rank 1, whole and byte by byte; one line gets one answer. */
START_TEST(line_to_its_answer)
{
	const char *line = answers[_i].line;

	open_server(2, 7, 2, JOB_PMI1);
	ask(1, line, answers[_i].answer);
	for (; *line; line++) {
		hears_nothing(1);
		say_bytes(1, line, 1);
	}
	hears(1, answers[_i].answer);
	hears_nothing(1);
	hears_nothing(0);
	close_server();
}
END_TEST

START_TEST(job_without_pmi1)
{
	open_server(2, 2, 1, 0);
	ck_assert_int_eq(rank_fd[0], -1);
	ck_assert_ptr_null(server_ended(server, 0, false));
	ck_assert_int_eq(exchange_data(0, "", 0, true), 0);
	exchange_failed(0);
	close_server();
}
END_TEST

/* Asked again: the first connection is hung up. */
START_TEST(connected_again)
{
	struct err e;
	int first;

	open_server(1, 1, 1, JOB_PMI1);
	first = rank_fd[0];
	ask(0, "cmd=finalize\n", "cmd=finalize_ack");
	ck_assert_int_eq(server_pmi1(server, 0, &rank_fd[0], &e), 0);
	ck_assert_int_eq(recv(first, &(char){ 0 }, 1, MSG_DONTWAIT), 0);
	close(first);
	ask(0, "cmd=finalize\n", "cmd=finalize_ack");
	close_server();
}
END_TEST

/* ---- keys ---- */

START_TEST(puts_and_gets)
{
	open_server(2, 2, 1, JOB_PMI1);
	put_ok(0, "cmd=put kvsname=k key=a value=x y = z \n");
	ask(0, "cmd=put kvsname=k key=a value=other\n",
	    "cmd=put_result rc=-1 msg=duplicate_key_a");
	ask(1, "cmd=put kvsname=k key=a value=other\n",
	    "cmd=put_result rc=-1 msg=duplicate_key_a");
	ask(0, "cmd=get kvsname=k key=a\n",
	    "cmd=get_result rc=0 msg=success value=x y = z ");
	put_ok(0, "cmd=put kvsname=k key=empty value=\n");
	ask(0, "cmd=get kvsname=k key=empty\n",
	    "cmd=get_result rc=0 msg=success value=");
	close_server();
}
END_TEST

/* Keys of 63 and values of 1023 bytes are the longest. */
START_TEST(too_long)
{
	const char *refused = "cmd=put_result rc=-1 msg=key_or_value_too_long";
	char key[66];

	memset(key, 'k', 65);
	key[64] = '\0';
	open_server(1, 1, 1, JOB_PMI1);
	ck_assert_str_eq(put_long(0, key, 1), refused);
	ck_assert_str_eq(put_long(0, key + 1, PMI1_VALUE_BYTES), refused);
	ck_assert_str_eq(put_long(0, "", 1), refused);
	ck_assert_str_eq(put_long(0, key + 1, PMI1_VALUE_BYTES - 1),
			 "cmd=put_result rc=0 msg=success");
	ask(0, "cmd=get key=none\n",
	    "cmd=get_result rc=-1 msg=key_none_not_found value=unknown");
	close_server();
}
END_TEST

/* Until the next barrier, of all ranks here together. */
START_TEST(no_room)
{
	const size_t each = 4 + 1001, most = 2 * EXCHANGE_RANK_BYTES;
	char key[8];
	struct buf b;
	size_t n = 0;

	open_server(2, 2, 1, JOB_PMI1);
	for (; (n + 1) * each <= most; n++) {
		snprintf(key, sizeof key, "%03zu", n);
		ck_assert_str_eq(put_long((int)(n % 2), key, 1000),
				 "cmd=put_result rc=0 msg=success");
	}
	ck_assert_str_eq(put_long(0, "end", 1000), "cmd=put_result rc=-1 msg=no_room");
	ask(0, "cmd=get key=end\n",
	    "cmd=get_result rc=-1 msg=key_end_not_found value=unknown");
	ck_assert_str_eq(put_long(1, "end", most - n * each - 5),
			 "cmd=put_result rc=0 msg=success");
	ck_assert_str_eq(put_long(1, "e", 0), "cmd=put_result rc=-1 msg=no_room");
	say(0, "cmd=barrier_in\n");
	say(1, "cmd=barrier_in\n");
	settle_all();
	b = exchange(0, true);
	ck_assert_uint_eq(b.len, most);
	ck_assert_int_eq(exchange_data(0, buf_head(&b), b.len, true), 0);
	buf_free(&b);
	hears(1, "cmd=barrier_out");
	hears(0, "cmd=barrier_out");
	ck_assert_str_eq(put_long(1, "e", 0), "cmd=put_result rc=0 msg=success");
	both_in();
	expect_exchange(1, "e\0", 3);
	ck_assert_int_eq(exchange_data(1, "e\0", 3, true), 0);
	both_out();
	close_server();
}
END_TEST

/* ---- barriers ---- */

START_TEST(barrier_of_one_host)
{
	static const char put[] = "a\0 1\0b\0002", next[] = "c\0003";

	open_server(2, 2, 1, JOB_PMI1);
	put_ok(0, "cmd=put kvsname=k key=a value= 1\n");
	put_ok(1, "cmd=put kvsname=k key=b value=2\n");
	both_in();
	hears_nothing(0);
	expect_exchange(0, put, sizeof put);
	ck_assert_int_eq(exchange_data(0, put, sizeof put, true), 0);
	both_out();
	ask(0, "cmd=get key=b\n", "cmd=get_result rc=0 msg=success value=2");
	ask(1, "cmd=get key=a\n", "cmd=get_result rc=0 msg=success value= 1");
	both_in(); /* nothing was put */
	expect_exchange(1, NULL, 0);
	ck_assert_int_eq(exchange_data(1, NULL, 0, true), 0);
	both_out();
	put_ok(1, "cmd=put kvsname=k key=c value=3\n");
	both_in();
	expect_exchange(2, next, sizeof next);
	ck_assert_int_eq(exchange_data(2, next, sizeof next, true), 0);
	both_out();
	close_server();
}
END_TEST

/* The data is split before byte _I, and once into single bytes. */
START_TEST(barrier_of_two_hosts)
{
	static const char all[] = "a\0 1\0b\0002\0c\0\0a\0other";
	const size_t at = (size_t)_i;

	open_server(2, 4, 2, JOB_PMI1);
	put_ok(0, "cmd=put kvsname=k key=a value= 1\n");
	both_in();
	expect_exchange(0, "a\0 1", 5);
	for (size_t i = 0; !at && i < sizeof all; i++)
		ck_assert_int_eq(exchange_data(0, all + i, 1, false), 0);
	if (at)
		ck_assert_int_eq(exchange_data(0, all, at, false), 0);
	hears_nothing(0);
	ck_assert_int_eq(exchange_data(0, all + at, at ? sizeof all - at : 0, true), 0);
	both_out();
	ask(0, "cmd=get key=b\n", "cmd=get_result rc=0 msg=success value=2");
	ask(1, "cmd=get key=c\n", "cmd=get_result rc=0 msg=success value=");
	ask(1, "cmd=get key=a\n", "cmd=get_result rc=0 msg=success value= 1");
	close_server();
}
END_TEST

/* More than one frame carries. */
START_TEST(barrier_in_parts)
{
	enum { N = 17 };
	size_t puts = 0;
	char key[8];
	struct buf b;

	open_server(N, N, 1, JOB_PMI1);
	for (; puts < 1080; puts++) {
		snprintf(key, sizeof key, "%04zu", puts);
		ck_assert_str_eq(put_long(3, key, 1000),
				 "cmd=put_result rc=0 msg=success");
	}
	for (int i = 0; i < N; i++)
		say(i, "cmd=barrier_in\n");
	settle_all();
	b = exchange(0, false);
	ck_assert_uint_eq(b.len, WIRE_PART_MAX);
	ck_assert_mem_eq(buf_head(&b), "0000\0vv", 7);
	ck_assert_int_eq(exchange_data(0, buf_head(&b), b.len, false), 0);
	buf_free(&b);
	b = exchange(0, true);
	ck_assert_uint_eq(b.len, puts * 1006 - WIRE_PART_MAX);
	ck_assert_int_eq(exchange_data(0, buf_head(&b), b.len, true), 0);
	buf_free(&b);
	for (int i = 0; i < N; i++)
		hears(i, "cmd=barrier_out");
	close_server();
}
END_TEST

static const struct {
	size_t in_barrier;
	uint64_t number;
	size_t n; /* of data; 0: its length and 1 */
	const char *data;
} lies[] = {
	{ 2, 1, 0, "a\0b" }, /* another barrier */
	{ 1, 0, 0, "a\0b" }, /* a rank is not in it */
	{ 0, 0, 4, "a\0b" },
	{ 2, 0, 1, "" }, /* no value */
	{ 2, 0, 2, "a" },
	{ 2, 0, 6, "a\0b\0c" },
	{ 2, 0, 3, "a\0b" }, /* without its end */
	{ 2, 0, 1, "a" },
	{ 2, 0, 2 * EXCHANGE_RANK_BYTES + 2, NULL }, /* more than ranks may put */
};

START_TEST(malformed_exchange_data)
{
	const size_t n = lies[_i].n ? lies[_i].n : 4;
	char *data = xcalloc(1, n);

	if (lies[_i].data)
		memcpy(data, lies[_i].data, n);
	open_server(2, 2, 1, JOB_PMI1);
	for (size_t i = 0; i < lies[_i].in_barrier; i++)
		say((int)i, "cmd=barrier_in\n");
	settle_all();
	if (lies[_i].in_barrier == 2)
		expect_exchange(0, NULL, 0);
	ck_assert_int_eq(exchange_data(lies[_i].number, data, n, true), -1);
	hears_nothing(0);
	hears_nothing(1);
	close_server();
	free(data);
}
END_TEST

/* No rank sends it before the first is out. */
START_TEST(two_barriers_at_once)
{
	open_server(2, 2, 1, JOB_PMI1);
	say(0, "cmd=barrier_in\ncmd=barrier_in\ncmd=finalize\n");
	ck_assert_ptr_null(hear(0));
	hears_nothing(1);
	close_server();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmi1");
	TCase *c = tcase_create("pmi1");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, line_to_its_parts, 0, LEN(lines));
	tcase_add_loop_test(c, line_to_its_answer, 0, LEN(answers));
	tcase_add_test(c, job_without_pmi1);
	tcase_add_test(c, connected_again);
	tcase_add_test(c, puts_and_gets);
	tcase_add_test(c, too_long);
	tcase_add_test(c, no_room);
	tcase_add_test(c, barrier_of_one_host);
	tcase_add_loop_test(c, barrier_of_two_hosts, 0, 21);
	tcase_add_test(c, barrier_in_parts);
	tcase_add_loop_test(c, malformed_exchange_data, 0, LEN(lies));
	tcase_add_test(c, two_barriers_at_once);
	suite_add_tcase(s, c);
	return run_all(s);
}
