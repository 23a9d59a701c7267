/* nccl_line.h: each form of a line, of each version that has one of its own; and lines
 * that other output has torn.
 * takes_s: 0 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "launcher/output/nccl_line.h"

#define HEAD "gpu01:4012:4077 [3] NCCL INFO "

static struct nccl_line read_line(const char *text)
{
	struct nccl_line l;

	nccl_line_read(&l, text, strlen(text));
	return l;
}

static bool is_text(const struct nccl_text *t, const char *text)
{
	return t->n == strlen(text) && !memcmp(t->p, text, t->n);
}

static const struct {
	const char *line;
	enum nccl_way way;
	uint32_t from, to;
	uint64_t from_dev, to_dev;
	const char *net;
	uint32_t nic;
	bool receives, gdr;
} channels[] = {
	/* 2.3, 2.4 */
	{ "Ring 00 : 0[0] -> 1[1] via P2P/IPC", NCCL_IPC, 0, 1, 0, 1, "", 0, 0, 0 },
	{ "Ring 01 : 16 -> 0 [send] via NET/IB/0", NCCL_NET, 16, 0, NCCL_NO_DEV,
	  NCCL_NO_DEV, "IB", 0, 0, 0 },
	{ "Ring 00 : 15 -> 0 [receive] via NET/IB/1/GDRDMA", NCCL_NET, 15, 0,
	  NCCL_NO_DEV, NCCL_NO_DEV, "IB", 1, 1, 1 },
	{ "Ring 00 : 2[2] -> 3[3] via direct shared memory", NCCL_SHM, 2, 3, 2, 3, "",
	  0, 0, 0 },
	/* to 2.17 */
	{ "Channel 02 : 2[201c0] -> 7[a01d0] via P2P/IPC/read", NCCL_IPC, 2, 7, 0x201c0,
	  0xa01d0, "", 0, 0, 0 },
	{ "Channel 00 : 1[101d0] -> 8[101c0] [send] via NET/AWS Libfabric/0/GDRDMA",
	  NCCL_NET, 1, 8, 0x101d0, 0x101c0, "AWS Libfabric", 0, 0, 1 },
	/* 2.18 to 2.22 */
	{ "Channel 05/0 : 0[1b000] -> 1[43000] via P2P/CUMEM", NCCL_CUMEM, 0, 1,
	  0x1b000, 0x43000, "", 0, 0, 0 },
	{ "Channel 05/1 : 0[1b000] -> 1[43000] via P2P/IPC/read/CE", NCCL_IPC, 0, 1,
	  0x1b000, 0x43000, "", 0, 0, 0 },
	{ "Channel 00 : 13[5] -> 14[6] via SHM/direct/direct", NCCL_SHM, 13, 14, 5, 6,
	  "", 0, 0, 0 },
	{ "Channel 00 : 13[5] -> 14[6] via SHM/CE/direct", NCCL_SHM, 13, 14, 5, 6, "",
	  0, 0, 0 },
	{ "Channel 07/0 : 8[0] -> 0[0] [send] via NET/IB/3(2)/GDRDMA", NCCL_NET, 8, 0,
	  0, 0, "IB", 3, 0, 1 },
	/* to 2.32 */
	{ "Channel 00 : 13[5] -> 14[6] via SHM/direct", NCCL_SHM, 13, 14, 5, 6, "", 0,
	  0, 0 },
	{ "Channel 00/0 : 3[3] -> 4[0] via P2P/MNNVL", NCCL_MNNVL, 3, 4, 3, 0, "", 0, 0,
	  0 },
	{ "Channel 00/0 : 3[3] -> 4[4] via P2P/direct pointer/read", NCCL_POINTER, 3, 4,
	  3, 4, "", 0, 0, 0 },
	{ "Channel 00/0 : 3[3] -> 4[4] via P2P/indirect/5[5]/read", NCCL_INDIRECT, 3, 4,
	  3, 4, "", 0, 0, 0 },
	{ "Channel 63/1 : 120[7] -> 7[15] [receive] via NET/IB/0/GDRDMA(PCI)/Shared",
	  NCCL_NET, 120, 7, 7, 0x15, "IB", 0, 1, 1 },
	{ "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/1/Shared", NCCL_NET, 0, 1,
	  0, 0, "Socket", 1, 0, 0 },
	{ "Channel 00/0 : 0[0] -> 1[0] [send] via NET/NCCL RDMA Plugin v6/2", NCCL_NET,
	  0, 1, 0, 0, "NCCL RDMA Plugin v6", 2, 0, 0 },
	/* RCCL */
	{ "Channel 00/0 : 4092[d6000] -> 0[d6000] [receive] via NET/AWS "
	  "Libfabric/2/GDRDMA comm 0x9bbf3b0 nRanks 4096",
	  NCCL_NET, 4092, 0, 0xd6000, 0xd6000, "AWS Libfabric", 2, 1, 1 },
	{ "Channel 00/0 : 0[d6000] -> 3[c6000] via P2P/IPC comm 0x9bbf3b0 nRanks 4096",
	  NCCL_IPC, 0, 3, 0xd6000, 0xc6000, "", 0, 0, 0 },
};

START_TEST(a_channel)
{
	char text[256];
	struct nccl_line l;

	snprintf(text, sizeof text, HEAD "%s", channels[_i].line);
	l = read_line(text);
	ck_assert_int_eq(l.says, NCCL_CHANNEL);
	ck_assert(is_text(&l.host, "gpu01"));
	ck_assert_uint_eq(l.pid, 4012);
	ck_assert_int_eq(l.way, channels[_i].way);
	ck_assert_uint_eq(l.from, channels[_i].from);
	ck_assert_uint_eq(l.to, channels[_i].to);
	ck_assert_uint_eq(l.from_dev, channels[_i].from_dev);
	ck_assert_uint_eq(l.to_dev, channels[_i].to_dev);
	ck_assert(is_text(&l.net, channels[_i].net));
	ck_assert_uint_eq(l.nic, channels[_i].nic);
	ck_assert_int_eq(l.receives, channels[_i].receives);
	ck_assert_int_eq(l.gdr, channels[_i].gdr);
}
END_TEST

static const char *const torn[] = {
	"Channel 00/02 :    0   1   2   3",
	"Channel 00/0 : 0[0] -> 1[1] via P",
	"Channel 00/0 : 0[0] -> 1[1] via Pstep 3",
	"Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEMstep 3",
	"Channel 00/0 : 0[0] -> 1[1] via P2P/UNKNOWN",
	"Channel 00/0 : 0[0] -> 1",
	"Channel 00/0 : 0[0] -> 1[1",
	"Channel 00/0 : 0[0] -> [1] via SHM",
	"Channel 00/0 : 0[0] -> 99999999999[1] via SHM",
	"Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB",
	"Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/",
	"Channel 00/0 : 0[0] -> 1[1] [send] via NET//0",
	"Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0(",
	"Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0x",
	"CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA",
	"Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
	"comm 0x rank 0 nranks 4 - Init COMPLETE",
	"comm 0x1 rank 4 nranks 4 - Init COMPLETE",
	"comm 0x1 rank 4 - Init COMPLETE",
	"comm 0x1 rank 0 nranks 4 cudaDev 0 busId 1000 commId 0x12",
	"Init timings - ncclCommInitRank: rank 7 nranks 8 total 3.68 (kernels 0.34, "
	"alloc",
	"NET/IB : Using [RO]; OOB net1:10.10.100.241<0>",
	"NET/IB : Using ",
	"NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
	"16 coll chan",
	"",
};

START_TEST(nothing_is_made_of_a_part)
{
	char text[256];

	snprintf(text, sizeof text, HEAD "%s", torn[_i]);
	ck_assert_int_eq(read_line(text).says, NCCL_OTHER);
}
END_TEST

static const struct {
	const char *line;
	uint32_t rank, nranks;
	uint64_t comm, id, parent, bus, nvml;
	bool complete;
} inits[] = {
	{ "comm 0x7f3fd4001980 rank 0 nranks 2 cudaDev 0 nvmlDev 5 - Init COMPLETE", 0,
	  2, 0x7f3fd4001980, 0, 0, NCCL_NO_DEV, 5, true },
	{ "comm 0x7f3fd4001980 rank 1 nranks 2 cudaDev 0 busId a01d0 - Init COMPLETE",
	  1, 2, 0x7f3fd4001980, 0, 0, 0xa01d0, NCCL_NO_DEV, true },
	{ "comm 0x55 rank 3 nranks 16 cudaDev 3 busId 61000 commId 0x5bfdf821d2742f21 "
	  "- "
	  "Init START",
	  3, 16, 0x55, 0x5bfdf821d2742f21, 0, 0x61000, NCCL_NO_DEV, false },
	{ "ncclCommInitRank comm 0x55 rank 3 nranks 16 cudaDev 0 nvmlDev 3 busId 61000 "
	  "commId 0x12 - Init COMPLETE",
	  3, 16, 0x55, 0x12, 0, 0x61000, 3, true },
	{ "[Rank 3] ncclCommInitRankConfig comm 0x55 rank 3 nranks 16 cudaDev 0 "
	  "nvmlDev "
	  "3 busId 61000 commId 0x12 - Init START",
	  3, 16, 0x55, 0x12, 0, 0x61000, 3, false },
	{ "ncclCommSplit comm 0x77 rank 1 nranks 4 cudaDev 0 nvmlDev 3 busId 61000 "
	  "parent 0x55 childCount 2 color 9 key 3- Init START",
	  1, 4, 0x77, 0, 0x55, 0x61000, 3, false },
	{ "ncclCommSplit comm 0x77 rank 1 nranks 4 cudaDev 0 nvmlDev 3 busId 61000 "
	  "parent 0x55 splitCount 2 color 9 key 3 - Init COMPLETE",
	  1, 4, 0x77, 0, 0x55, 0x61000, 3, true },
	{ "ncclCommSplit comm 0x77 rank 1 nranks 4 cudaDev 0 nvmlDev 3 busId 61000 "
	  "parent 0x55 color 9 key 3 commId 0x13 - Init COMPLETE",
	  1, 4, 0x77, 0x13, 0x55, 0x61000, 3, true },
};

START_TEST(a_communicator)
{
	char text[256];
	struct nccl_line l;

	snprintf(text, sizeof text, HEAD "%s", inits[_i].line);
	l = read_line(text);
	ck_assert_int_eq(l.says, NCCL_INIT);
	ck_assert_uint_eq(l.rank, inits[_i].rank);
	ck_assert_uint_eq(l.nranks, inits[_i].nranks);
	ck_assert_uint_eq(l.comm, inits[_i].comm);
	ck_assert_uint_eq(l.id, inits[_i].id);
	ck_assert_uint_eq(l.parent, inits[_i].parent);
	ck_assert_uint_eq(l.bus, inits[_i].bus);
	ck_assert_uint_eq(l.nvml, inits[_i].nvml);
	ck_assert_int_eq(l.complete, inits[_i].complete);
	if (l.parent) {
		ck_assert_uint_eq(l.color, 9);
		ck_assert_uint_eq(l.child, l.id ? 0 : 2);
	}
}
END_TEST

/* What stands in front of "host:pid:tid". */
static const struct {
	const char *line, *host;
	uint32_t pid;
} heads[] = {
	{ "a.b-c_1:12:34 [0] NCCL INFO x", "a.b-c_1", 12 },
	{ "[1,0]<stdout>:n2:12:34 [15] NCCL INFO x", "n2", 12 },
	{ "3: n2:12:34 [0] NCCL INFO x", "n2", 12 },
	{ "[2026-11-22 08:24:33] n2:12:34 [0] NCCL INFO x", "n2", 12 },
	{ "[rank3]: n2:12:34 [0] NCCL INFO x", "n2", 12 },
	{ "n2:12:34 [0] misc/socket.cc:50 NCCL WARN x", "n2", 12 },
	{ "[2026-11-22 08:24:33] n2:12:34 [0] a.cc:5 (f) NCCL WARN x", "n2", 12 },
	{ "NCCL INFO x", "", 0 },
	{ "n2:12 [0] NCCL INFO x", "", 0 },
	{ "n2:12:34 NCCL INFO x", "", 0 },
	{ "n2:12:34 [] NCCL INFO x", "", 0 },
	{ "n2:99999999999:34 [0] NCCL INFO x", "", 0 },
};

START_TEST(a_head)
{
	const struct nccl_line l = read_line(heads[_i].line);

	ck_assert_int_eq(l.says,
			 strstr(heads[_i].line, "WARN") ? NCCL_WARN : NCCL_OTHER);
	ck_assert(is_text(&l.host, heads[_i].host));
	ck_assert_uint_eq(l.pid, heads[_i].pid);
}
END_TEST

static const struct {
	const char *line, *version;
} versions[] = {
	{ "NCCL version 2.18.1+cuda12.1", "2.18.1+cuda12.1" },
	{ HEAD "NCCL version 2.22.3+cuda12.5\r", "2.22.3+cuda12.5" },
	{ "NCCL version 2.30.7 compiled with CUDA 12.9", "2.30.7" },
	{ "[0]<stdout>:RCCL version 2.18.3+hip6.0 HEAD:2f6d59e", "2.18.3+hip6.0" },
};

START_TEST(a_version)
{
	const struct nccl_line l = read_line(versions[_i].line);

	ck_assert_int_eq(l.says, NCCL_VERSION);
	ck_assert(is_text(&l.text, versions[_i].version));
}
END_TEST

START_TEST(networks)
{
	struct nccl_line l = read_line(
		HEAD "NET/IB : Using [0]mlx5_0:1/IB [3]bond-1:1/RoCE [RO]; OOB "
		     "eth0:10.0.0.1<0>");
	struct nccl_text name;
	uint32_t number;

	ck_assert_int_eq(l.says, NCCL_NICS);
	ck_assert(is_text(&l.net, "IB"));
	ck_assert(nccl_line_nic(&l, 0, &number, &name) && !number);
	ck_assert(is_text(&name, "mlx5_0"));
	ck_assert(nccl_line_nic(&l, 1, &number, &name) && number == 3);
	ck_assert(is_text(&name, "bond-1"));
	ck_assert(!nccl_line_nic(&l, 2, &number, &name));
	l = read_line(HEAD "NET/Socket : Using [0]eno1:192.168.50.11<0>");
	ck_assert_int_eq(l.says, NCCL_NICS);
	ck_assert(is_text(&l.net, "Socket"));
	l = read_line(HEAD "NET/IB : No device found.");
	ck_assert_int_eq(l.says, NCCL_NO_DEVICE);
	ck_assert(is_text(&l.net, "IB"));
	l = read_line(HEAD "Using network AWS Libfabric");
	ck_assert_int_eq(l.says, NCCL_NETWORK);
	ck_assert(is_text(&l.net, "AWS Libfabric"));
}
END_TEST

START_TEST(numbers)
{
	struct nccl_line l = read_line(
		HEAD "24 coll channels, 16 collnet channels, 8 nvls channels, 32 p2p "
		     "channels, 2 p2p channels per peer");

	ck_assert_int_eq(l.says, NCCL_CHANNELS);
	ck_assert_uint_eq(l.collnet, 16);
	ck_assert_uint_eq(l.nvls, 8);
	l = read_line(HEAD "Init timings: rank 0 nranks 8 total 13.41 (kernels 0.12, "
			   "bootstrap 12.35, allgathers 0.00)");
	ck_assert_int_eq(l.says, NCCL_TIMINGS);
	ck_assert_double_eq_tol(l.bootstrap_s, 12.35, 1e-9);
	l = read_line(HEAD
		      "Init timings - ncclCommInitRank: rank 5 nranks 16 total 1.58 "
		      "(kernels 0.26, alloc 0.97, bootstrap 0.07, rest 0.00)");
	ck_assert_int_eq(l.says, NCCL_TIMINGS);
	ck_assert_uint_eq(l.rank, 5);
	ck_assert_double_eq_tol(l.bootstrap_s, 0.07, 1e-9);
}
END_TEST

START_TEST(other_lines)
{
	ck_assert_int_eq(read_line("").says, NCCL_NOTHING);
	ck_assert_int_eq(read_line("epoch 3").says, NCCL_NOTHING);
	ck_assert_int_eq(read_line("NCCL version: unknown").says, NCCL_NOTHING);
	ck_assert_int_eq(read_line("NCCL version 2").says, NCCL_NOTHING);
	ck_assert_int_eq(read_line("a:1:2 [0] NCCL INFO").says, NCCL_NOTHING);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

int main(void)
{
	Suite *s = suite_create("nccl_line");
	TCase *c = tcase_create("lines");
	SRunner *r;
	int failed;

	tcase_add_loop_test(c, a_channel, 0, COUNT(channels));
	tcase_add_loop_test(c, nothing_is_made_of_a_part, 0, COUNT(torn));
	tcase_add_loop_test(c, a_communicator, 0, COUNT(inits));
	tcase_add_loop_test(c, a_head, 0, COUNT(heads));
	tcase_add_loop_test(c, a_version, 0, COUNT(versions));
	tcase_add_test(c, networks);
	tcase_add_test(c, numbers);
	tcase_add_test(c, other_lines);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
