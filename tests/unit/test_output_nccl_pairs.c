/* nccl_pairs.h: ranks of communicators become ranks of the job and their hosts.
 * takes_s: 0 */
#include <check.h>
#include <string.h>

#include "tests/unit/nccl_rig.h"

/* The communicator has the ranks in another order than the job. */
START_TEST(ranks_of_a_communicator)
{
	static const char *const host[] = { "a", "a", "b", "b" };

	for (uint32_t i = 0; i < 4; i++)
		joins(i, host[i], 3 - i, 4, i % 2, 7);
	says(3, "b", "Channel 00/0 : 0[1] -> 1[0] via P2P/CUMEM");
	says(3, "b", "Channel 01/0 : 0[1] -> 1[0] via P2P/CUMEM");
	says(2, "b", "Channel 00/0 : 1[0] -> 2[1] [send] via NET/IB/3/GDRDMA");
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(pairs->nrows, 2);
	ck_assert_uint_eq(channels_of("b", "b", NCCL_CUMEM), 2);
	ck_assert_uint_eq(row("b", "b", NCCL_CUMEM)->pairs, 1);
	ck_assert_uint_eq(channels_of("a", "b", NCCL_NET), 1);
	ck_assert(row("a", "b", NCCL_NET)->gdr);
	ck_assert_uint_eq(pairs->unplaced, 0);
}
END_TEST

/* What a line says of its peer comes before the peer's own line. */
START_TEST(a_peer_that_comes_later)
{
	joins(0, "a", 0, 2, 0, 7);
	says(0, "a", "Channel 00/0 : 0[0] -> 1[4] [send] via NET/IB/0");
	joins(1, "b", 1, 2, 4, 7);
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(channels_of("a", "b", NCCL_NET), 1);
}
END_TEST

/* Two communicators have a rank 1: the device tells which is meant, else it is the
 * latest. */
START_TEST(two_communicators)
{
	joins(0, "a", 0, 2, 0, 7);
	joins(1, "a", 1, 2, 1, 7);
	joins(0, "a", 0, 2, 0, 8);
	joins(2, "b", 1, 2, 5, 8);
	says(0, "a", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC");
	says(0, "a", "Channel 00/0 : 0[0] -> 1[5] [send] via NET/IB/0");
	says(0, "a", "Ring 00 : 0 -> 1 [send] via NET/IB/1/GDRDMA");
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(channels_of("a", "a", NCCL_IPC), 1);
	ck_assert_uint_eq(channels_of("a", "b", NCCL_NET), 1);
	ck_assert_uint_eq(pairs->nrows, 3);
	ck_assert_uint_eq(pairs->unplaced, 0);
}
END_TEST

/* Ranks that were split by color: nothing but the address of the parent says so. */
START_TEST(parts_of_a_communicator)
{
	static const char *const host[] = { "a", "a", "b", "b" };

	for (uint32_t i = 0; i < 4; i++)
		joins(i, host[i], i, 4, i % 2, 7);
	for (int start = 1; start >= 0; start--)
		for (uint32_t i = 0; i < 4; i++)
			says(i, host[i],
			     "ncclCommSplit comm 0x%x rank %u nranks 2 cudaDev 0 "
			     "nvmlDev %u busId %x000 parent 0x700 childCount 1 color "
			     "%u key 0%s- Init %s",
			     0x9000 + i, i / 2, i % 2, i % 2 + 1, i % 2,
			     start ? "" : " ", start ? "START" : "COMPLETE");
	says(1, "a", "Channel 00/0 : 0[1] -> 1[1] [send] via NET/IB/0");
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(channels_of("a", "b", NCCL_NET), 1);
	ck_assert_uint_eq(row("a", "b", NCCL_NET)->odd[0][1], 3);
}
END_TEST

/* No commId: the first of two ranks, then the second one. */
START_TEST(old_forms)
{
	for (uint32_t i = 0; i < 2; i++)
		for (unsigned k = 0; k < 2; k++) {
			says(i, i ? "b" : "a",
			     "comm 0x9%u rank 0 nranks 1 cudaDev 0 busId 0 - Init "
			     "COMPLETE",
			     k);
			says(i, i ? "b" : "a",
			     "comm 0x%u rank %u nranks 2 cudaDev 0 busId %u000 - Init "
			     "COMPLETE",
			     k + 1, k ? !i : i, i + 1);
		}
	says(0, "a", "Channel 00 : 0[1000] -> 1[2000] [send] via NET/IB/0");
	says(0, "a", "Channel 00 : 1[1000] -> 0[2000] [send] via NET/IB/1");
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(channels_of("a", "b", NCCL_NET), 2);
	/* ranks 2 and 3 have one of their own, which looks like the first */
	says(2, "c", "comm 0x1 rank 1 nranks 2 cudaDev 0 busId 2000 - Init COMPLETE");
	says(0, "a", "Ring 00 : 0 -> 1 [send] via NET/IB/0");
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(channels_of("a", "b", NCCL_NET), 2);
	ck_assert_uint_eq(pairs->unplaced, 1);
}
END_TEST

/* Nothing says who the ranks are: each that prints a channel does. */
START_TEST(channels_alone)
{
	says(NCCL_NO_RANK, "a", "Ring 00 : 0 -> 1 [send] via NET/Socket/0");
	says(NCCL_NO_RANK, "b", "Ring 00 : 1[0] -> 2[1] via P2P/IPC");
	says(NCCL_NO_RANK, "b", "Ring 00 : 0 -> 1 [receive] via NET/Socket/0");
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(channels_of("a", "b", NCCL_NET), 1);
	ck_assert_uint_eq(pairs->unplaced, 1);
	ck_assert_uint_eq(pairs->process[0].rank, NCCL_NO_RANK);
}
END_TEST

/* In a file a process has the number of its rank in the largest communicator. */
START_TEST(names_in_a_file)
{
	joins(NCCL_NO_RANK, "a", 1, 2, 0, 7);
	joins(NCCL_NO_RANK, "a", 5, 8, 0, 8);
	joins(NCCL_NO_RANK, "a", 0, 4, 0, 9);
	ck_assert_uint_eq(pairs->nprocesses, 1);
	ck_assert_uint_eq(pairs->process[0].rank, 5);
}
END_TEST

/* More kinds of channels than wait at a time: none is lost. */
START_TEST(very_many_channels)
{
	enum { N = 400 };
	char host[16];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < N; i++) {
		snprintf(host, sizeof host, "n%u", i / 2);
		joins(i, host, i, N, i % 2, 7);
	}
	for (uint32_t i = 0; i < N; i++)
		for (uint32_t k = 0; k < N; k++) {
			snprintf(host, sizeof host, "n%u", i / 2);
			if (k / 2 == i / 2)
				says(i, host, "Channel 00/1 : %u[%u] -> %u[%u] via SHM",
				     i, i % 2, k, k % 2);
			else
				says(i, host,
				     "Channel 00/1 : %u[%u] -> %u[%u] [send] via "
				     "NET/IB/0",
				     i, i % 2, k, k % 2);
		}
	nccl_pairs_settle(pairs);
	for (size_t i = 0; i < pairs->nrows; i++)
		sum += pairs->row[i].channels;
	ck_assert_uint_eq(sum, N * N);
	ck_assert_uint_le(pairs->nrows,
			  NCCL_ROWS_MAX + 2); /* the rest in one of a kind */
	ck_assert_uint_eq(channels_of("n3", "n3", NCCL_SHM), 4);
	ck_assert_uint_eq(row("n3", "n3", NCCL_SHM)->pairs, 3);
	ck_assert_uint_gt(channels_of("", "", NCCL_NET), 0);
	ck_assert_uint_eq(pairs->unplaced, 0);
}
END_TEST

/* Ranks that lie. */
START_TEST(lies)
{
	joins(0, "a", 0, 2000000, 0, 7);
	joins(1, "a", 0, 2000000, 0, 8); /* there is no room for both */
	joins(1, "a", 1, 3, 0, 7);       /* another size */
	says(1, "a",
	     "comm 0x1 rank 0 nranks 2 parent 0x2 childCount 1 color 0 - Init START");
	says(2, "a", "Channel 00/0 : 2000000000[0] -> 1[1] via SHM");
	says(2, "a", "Channel 00/0 : 0[0] -> 2000000000[1] via SHM");
	for (unsigned i = 0; i < 20; i++) {
		says(0, "a", "NET/N%u : Using [0]x%u:1", i, i);
		says(0, "a", "Channel 00/0 : 0[0] -> 1[1] [send] via NET/N%u/99", i);
		says(0, "a", "NCCL version 2.%u.1", i);
	}
	nccl_pairs_settle(pairs);
	ck_assert_uint_eq(pairs->nrows, 0);
	ck_assert_uint_eq(pairs->unplaced, 22);
	ck_assert_uint_eq(pairs->versions.n, NCCL_WORDS_MAX);
	ck_assert_uint_eq(pairs->networks.n, NCCL_WORDS_MAX);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nccl_pairs");
	TCase *c = tcase_create("pairs");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, rig_setup, rig_teardown);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, ranks_of_a_communicator);
	tcase_add_test(c, a_peer_that_comes_later);
	tcase_add_test(c, two_communicators);
	tcase_add_test(c, parts_of_a_communicator);
	tcase_add_test(c, old_forms);
	tcase_add_test(c, channels_alone);
	tcase_add_test(c, names_in_a_file);
	tcase_add_test(c, very_many_channels);
	tcase_add_test(c, lies);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
