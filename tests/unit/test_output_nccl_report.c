/* nccl_report.h: the table; each warning with the line that shows a better way, and
 * without.
 * takes_s: 0 */
#include <check.h>
#include <string.h>

#include "launcher/output/nccl_report.h"
#include "tests/unit/nccl_rig.h"

/* The warnings, one on a line. */
static char *warnings(void)
{
	struct strv texts = { 0 }, hints = { 0 };
	struct str out = { 0 };

	nccl_pairs_settle(pairs);
	nccl_report_warnings(&texts, &hints, pairs);
	ck_assert_uint_eq(texts.n, hints.n);
	for (size_t i = 0; i < texts.n; i++)
		str_addf(&out, "%s\n", texts.v[i]);
	strv_free(&texts);
	strv_free(&hints);
	return str_take(&out);
}

static void expect(const char *text)
{
	char *got = warnings();

	ck_assert_str_eq(got, text);
	free(got);
}

static char *table(void)
{
	struct str out = { 0 };

	nccl_pairs_settle(pairs);
	nccl_report_table(&out, pairs);
	return str_take(&out);
}

/* N hosts, with two ranks each, in one communicator. */
static void cluster(uint32_t n)
{
	for (uint32_t i = 0; i < 2 * n; i++) {
		char host[16];

		snprintf(host, sizeof host, "gpu%02u", i / 2 + 1);
		joins(i, host, i, 2 * n, i % 2, 7);
	}
}

static void net(uint32_t from, uint32_t to, const char *way)
{
	char host[16];

	snprintf(host, sizeof host, "gpu%02u", from / 2 + 1);
	says(from, host, "Channel 00/0 : %u[%u] -> %u[%u] [send] via NET/%s", from,
	     from % 2, to, to % 2, way);
	snprintf(host, sizeof host, "gpu%02u", to / 2 + 1);
	says(to, host, "Channel 00/0 : %u[%u] -> %u[%u] [receive] via NET/%s", from,
	     from % 2, to, to % 2, way);
}

START_TEST(two_hosts)
{
	char *text;

	cluster(2);
	says(0, "gpu01", "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB x");
	says(0, "gpu01", "Using network IB");
	says(0, "gpu01", "NCCL version 2.27.5+cuda12.9");
	says(0, "gpu01", "16 coll channels, 0 collnet channels, 16 nvls channels");
	says(0, "gpu01", "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM");
	says(2, "gpu02", "Channel 00 : 2[0] -> 3[1] via SHM/direct");
	net(1, 2, "IB/1/GDRDMA");
	net(3, 0, "IB/0/GDRDMA");
	says(2, "gpu02", "Channel 00/0 : 2[0] -> 9[1] via P2P/CUMEM");
	text = table();
	ck_assert_str_eq(text,
			 "NCCL 2.27.5+cuda12.9: 4 ranks on 2 hosts, 4 channels, "
			 "network IB, NVLS\n"
			 "  ranks                    via           channels  pairs"
			 "  NICs\n"
			 "  within gpu01             P2P/CUMEM            1      1\n"
			 "  within gpu02             SHM                  1      1\n"
			 "  between gpu01 and gpu02  NET/IB GDRDMA        2      2"
			 "  mlx5_1\n"
			 "  and 1 channel of ranks whose hosts are not known");
	free(text);
	expect("");
}
END_TEST

/* Rows of one kind are one, if there are many. */
START_TEST(many_hosts)
{
	enum { N = 64 };
	char *text;

	cluster(N);
	for (uint32_t i = 0; i < N; i++) {
		char host[16];

		snprintf(host, sizeof host, "gpu%02u", i + 1);
		says(2 * i, host, "Channel 00/0 : %u[0] -> %u[1] via %s", 2 * i,
		     2 * i + 1, i == 40 ? "SHM" : "P2P/CUMEM");
		net(2 * i + 1, (2 * i + 2) % (2 * N), i == 9 ? "IB/0" : "IB/0/GDRDMA");
	}
	text = table();
	ck_assert_str_eq(
		text, "NCCL: 128 ranks on 64 hosts, 128 channels, network IB\n"
		      "  ranks                    via           channels  pairs  NICs\n"
		      "  within gpu[01-40,42-64]  P2P/CUMEM           63     63\n"
		      "  within gpu41             SHM                  1      1\n"
		      "  between gpu[01-64]       NET/IB GDRDMA       63     63\n"
		      "  between gpu10 and gpu11  NET/IB               1      1");
	free(text);
	expect("channels without GPUDirect RDMA on gpu[10-11], where other channels of "
	       "this "
	       "job have it\n");
}
END_TEST

/* Whatever the names are, a row has its columns. */
START_TEST(long_names)
{
	char *text, *line, *rest, host[8][64];

	for (uint32_t i = 0; i < 8; i++) {
		memset(host[i], 'a' + (int)i, 60);
		host[i][60] = '\0';
		joins(i, host[i], i, 8, i % 2, 7);
		says(i, host[i],
		     "NET/IB : Using [0]%.30s:1/IB [1]q%.30s:1/IB ; OOB "
		     "eth0:10.0.0.1<0>",
		     host[i], host[i]);
	}
	for (uint32_t i = 0; i < 8; i++)
		for (uint32_t k = 0; k < 8; k++)
			for (uint32_t nic = 0; nic < 2; nic++)
				says(i, host[i],
				     "Channel 00/0 : %u[%u] -> %u[%u] [send] via NET/A "
				     "name "
				     "that has no end at all/%u/GDRDMA",
				     i, i % 2, k, k % 2, nic);
	text = rest = table();
	strsep(&rest, "\n");
	while ((line = strsep(&rest, "\n")))
		ck_assert_uint_le(strlen(line), 100);
	free(text);
}
END_TEST

START_TEST(sockets)
{
	cluster(3);
	net(1, 2, "Socket/0");
	expect("");
	says(0, "gpu01", "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB x");
	says(2, "gpu02", "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB x");
	expect("NET/Socket between gpu[01-02], although NCCL found InfiniBand on "
	       "gpu[01-02]\n");
	says(4, "gpu03", "NET/IB : No device found.");
	expect("NET/Socket between gpu[01-02], although NCCL found InfiniBand on "
	       "gpu[01-02]\n"
	       "NCCL found no InfiniBand device on gpu03, but on 2 other hosts\n");
}
END_TEST

/* Within a host it is no business of InfiniBand's. */
START_TEST(sockets_within_a_host)
{
	cluster(1);
	says(0, "gpu01", "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB x");
	net(0, 1, "Socket/0");
	expect("");
}
END_TEST

START_TEST(no_device_anywhere)
{
	cluster(2);
	says(0, "gpu01", "NET/IB : No device found.");
	says(2, "gpu02", "NET/IB : No device found.");
	net(1, 2, "Socket/0");
	expect("");
}
END_TEST

/* As a host sends, and as it receives: NCCL may do one of them alone everywhere. */
START_TEST(gdr)
{
	cluster(2);
	says(1, "gpu01", "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0");
	says(2, "gpu02", "Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0/GDRDMA");
	says(3, "gpu02", "Channel 00/0 : 3[1] -> 0[0] [send] via NET/IB/0");
	says(0, "gpu01", "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA");
	expect("");
	says(0, "gpu01", "Channel 01/0 : 3[1] -> 0[0] [receive] via NET/IB/1");
	expect("channels without GPUDirect RDMA on gpu01, where other channels of this "
	       "job "
	       "have it\n");
}
END_TEST

START_TEST(no_gdr_at_all)
{
	cluster(2);
	net(1, 2, "IB/0");
	net(3, 0, "IB/0");
	expect("");
}
END_TEST

START_TEST(detours)
{
	joins(0, "a", 0, 4, 0, 7);
	joins(1, "a", 1, 4, 1, 7);
	joins(2, "a", 2, 4, 2, 7);
	joins(3, "a", 3, 4, 3, 7);
	says(1, "a", "Channel 00 : 1[1] -> 2[2] via SHM/direct/direct");
	says(2, "a", "Channel 00 : 2[2] -> 3[3] via SHM/direct/direct");
	expect("");
	says(0, "a", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC");
	expect("host memory (SHM) between ranks 1-2, 2-3 on a, where 1 pair has P2P\n");
	says(3, "a", "Channel 00/0 : 3[3] -> 0[0] via P2P/indirect/1[1]");
	says(3, "a", "Channel 00/0 : 3[3] -> 1[1] [send] via NET/Socket/0");
	expect("host memory (SHM) between ranks 1-2, 2-3 on a, where 1 pair has P2P\n"
	       "a network between ranks 1-3 on a, where 1 pair has P2P\n"
	       "P2P through a third GPU between ranks 0-3 on a, where 1 pair has "
	       "P2P\n");
}
END_TEST

START_TEST(several_gpus_in_a_process)
{
	joins(0, "a", 0, 2, 0, 7);
	joins(0, "a", 1, 2, 1, 7);
	says(0, "a", "Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer");
	expect("rank 0 on a has several GPUs in one process\n");
}
END_TEST

START_TEST(versions)
{
	says(0, "a", "NCCL version 2.18.1+cuda12.1");
	says(1, "b", "NCCL version 2.18.1+cuda11.8");
	expect("");
	says(2, "c", "NCCL version 2.18.10+cuda12.1");
	expect("ranks have different versions of NCCL: 2.18.1+cuda12.1 on a, "
	       "2.18.10+cuda12.1 on c\n");
}
END_TEST

START_TEST(a_slow_bootstrap)
{
	says(1, "b",
	     "Init timings: rank 1 nranks 8 total 11.00 (kernels 0.10, bootstrap "
	     "10.00, allgathers 0.00)");
	expect("");
	says(0, "a",
	     "Init timings: rank 0 nranks 8 total 13.00 (kernels 0.10, bootstrap "
	     "12.34, allgathers 0.00)");
	says(2, "a",
	     "Init timings: rank 2 nranks 8 total 13.00 (kernels 0.10, bootstrap "
	     "11.00, allgathers 0.00)");
	expect("rank 0 on a was 12.3 s in the bootstrap of NCCL\n");
}
END_TEST

static void warns(uint32_t rank, const char *text)
{
	const struct nccl_origin from = { rank, "a" };
	struct str line = { 0 };
	struct nccl_line l;

	str_addf(&line, "a:1:2 [0] x.cc:3 NCCL WARN %s", text);
	nccl_line_read(&l, line.s, line.len);
	nccl_pairs_add(pairs, &from, &l);
	str_free(&line);
}

START_TEST(warnings_of_nccl)
{
	warns(3, "it is\x1b[31m bad");
	warns(4, "it is\x1b[31m bad");
	expect("NCCL of rank 3 on a, and 1 more: it is?[31m bad\n");
	for (int i = 0; i < 5; i++) {
		char text[8] = { (char)('a' + i), '\0' };

		warns(0, text);
	}
	expect("NCCL of rank 3 on a, and 1 more: it is?[31m bad\n"
	       "NCCL of rank 0 on a: a\n"
	       "NCCL of rank 0 on a: b\n"
	       "3 more warnings of NCCL\n");
}
END_TEST

START_TEST(json)
{
	struct str out = { 0 };

	cluster(2);
	says(0, "gpu01", "NCCL version 2.27.5");
	net(1, 2, "IB/0/GDRDMA");
	warns(0, "\"quoted\"");
	nccl_pairs_settle(pairs);
	nccl_report_json(&out, pairs);
	ck_assert_str_eq(
		str_text(&out),
		"{\"ranks\": 4, \"version\": \"2.27.5\", \"pairs\": [{\"via\": "
		"\"NET/IB GDRDMA\", \"within\": false, \"hosts\": [\"gpu01\", "
		"\"gpu02\"], \"nics\": [], \"channels\": 1, \"pairs\": 1}], "
		"\"unplaced\": 0, \"warnings\": [\"NCCL of rank 0 on gpu01: "
		"\\\"quoted\\\"\"]}");
	str_free(&out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nccl_report");
	TCase *c = tcase_create("report");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, rig_setup, rig_teardown);
	tcase_add_test(c, two_hosts);
	tcase_add_test(c, many_hosts);
	tcase_add_test(c, long_names);
	tcase_add_test(c, sockets);
	tcase_add_test(c, sockets_within_a_host);
	tcase_add_test(c, no_device_anywhere);
	tcase_add_test(c, gdr);
	tcase_add_test(c, no_gdr_at_all);
	tcase_add_test(c, detours);
	tcase_add_test(c, several_gpus_in_a_process);
	tcase_add_test(c, versions);
	tcase_add_test(c, a_slow_bootstrap);
	tcase_add_test(c, warnings_of_nccl);
	tcase_add_test(c, json);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
