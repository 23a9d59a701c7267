/* nccl_log.h: lines of streams, however the bytes come, and of files.
 * takes_s: 0 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "launcher/output/nccl_log.h"

#define HEAD "n1:1:2 [0] NCCL INFO "

static const char text[] =
	"epoch 1\n"
	"NCCL version 2.18.1+cuda12.1\n" HEAD
	"comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x12 - Init START\n"
	"loss 0.5\r" HEAD "Channel 00/0 : 0[1000] -> 1[2000] via P2P/IPC\n"
	"\n"
	"[2026-11-22 08:24:33] n1:1:2 [0] a.cc:3 NCCL WARN it is bad\n"
	"epoch 2\nepoch 3\n" HEAD "Channel 01/0 : 0[1000] -> 1[2000] via P2P/IPC\n"
	"n1:5:6 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 0 busId 2000 commId "
	"0x12 - "
	"Init START\nNCCL WARN has no end";

static void check_pairs(struct nccl_log *l)
{
	const struct nccl_pairs *p = nccl_log_pairs(l);

	ck_assert_uint_eq(p->nrows, 1);
	ck_assert_uint_eq(p->row[0].channels, 2);
	ck_assert_uint_eq(p->lines, 6);
}

/* In a file of all ranks, in parts of each size. */
START_TEST(bytes_in_parts)
{
	for (size_t step = 1; step < sizeof text; step++) {
		struct nccl_log *l = nccl_log_open(2);
		struct str show = { 0 };

		for (size_t at = 0; at < sizeof text - 1; at += step) {
			const size_t left = sizeof text - 1 - at;

			nccl_log_put(l, NCCL_LOG_ALL, 3, NULL, text + at,
				     left < step ? left : step, &show);
		}
		check_pairs(l);
		ck_assert_str_eq(
			str_text(&show),
			"NCCL version 2.18.1+cuda12.1\n\n[2026-11-22 08:24:33] "
			"n1:1:2 [0] a.cc:3 NCCL WARN it is bad\n");
		str_free(&show);
		nccl_log_free(l);
	}
}
END_TEST

START_TEST(streams_of_ranks)
{
	static const char one[] = HEAD "Channel 00/0 : 0[1] -> 1";
	static const char two[] = "[2] via SHM\n";
	struct nccl_log *l = nccl_log_open(2);
	const struct nccl_pairs *p;

	for (uint32_t i = 0; i < 2; i++) {
		char init[128];
		const int n = snprintf(init, sizeof init,
				       HEAD "comm 0x1 rank %u nranks 2 busId %u commId "
					    "0x12 - Init START\n",
				       i, i + 1);

		nccl_log_put(l, i, 1, i ? "b" : "a", init, (size_t)n, NULL);
	}
	nccl_log_put(l, 0, 1, "a", one, sizeof one - 1, NULL);
	nccl_log_put(l, 1, 1, "b", two, sizeof two - 1, NULL); /* of others */
	nccl_log_put(l, 0, 2, "a", two, sizeof two - 1, NULL);
	nccl_log_put(l, 0, 1, "a", two, sizeof two - 1, NULL);
	nccl_log_put(l, 0, 1, "a", one, sizeof one - 1, NULL);
	nccl_log_again(l, 0); /* its line is lost */
	nccl_log_put(l, 0, 1, "a", two, sizeof two - 1, NULL);
	p = nccl_log_pairs(l);
	ck_assert_uint_eq(p->nrows, 1);
	ck_assert_uint_eq(p->row[0].channels, 1);
	ck_assert_str_eq(p->host[p->row[0].host[1]].name, "b");
	nccl_log_free(l);
}
END_TEST

/* Without an end, much is thrown away; NCCL's text behind it counts. */
START_TEST(a_line_without_end)
{
	static const char end[] = "x " HEAD "Channel 00/0 : 0[1] -> 1[2] via SHM\n";
	struct nccl_log *l = nccl_log_open(1);
	char bytes[10000];

	memset(bytes, 'x', sizeof bytes);
	for (int i = 0; i < 1000; i++)
		nccl_log_put(l, 0, 2, "a", bytes, i % 3 ? sizeof bytes : 100, NULL);
	nccl_log_put(l, 0, 2, "a", end, sizeof end - 1, NULL);
	ck_assert_uint_eq(nccl_log_pairs(l)->unplaced, 1);
	nccl_log_free(l);
}
END_TEST

START_TEST(files)
{
	struct strv none = { 0 };
	struct err e = { 0 };

	strv_add(&none, "/no/such/file");
	ck_assert_int_eq(nccl_log_files(&none, &e), -1);
	ck_assert_int_eq(e.id, E_NCCL_LOG);
	strv_free(&none);
	strv_add(&none, "/");
	ck_assert_int_eq(nccl_log_files(&none, &e), -1);
	strv_free(&none);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nccl_log");
	TCase *c = tcase_create("log");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, bytes_in_parts);
	tcase_add_test(c, streams_of_ranks);
	tcase_add_test(c, a_line_without_end);
	tcase_add_test(c, files);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
