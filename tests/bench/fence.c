/* fence.c - a PMIx fence beside the barest echo through the launcher, in turns within
 * one process.
 *
 *     runner -np 16 -H n[1-16] build/bench/fence BYTES STEPS
 *
 * Each rank is a client of PMIx and of PMI-1 at one time.  A step of each side makes
 * BYTES bytes of each rank known to all: PMIx_Put, PMIx_Commit and PMIx_Fence with its
 * data; `put` and `barrier_in` lines, written at once.  Rank 0 writes a line for each
 * pair of steps: microseconds of the echo, of the fence, of PMIx_Fence alone in it.
 * Under a launcher without PMI-1 there is no echo. */
#include <pmix.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	BLOCK = 10,          /* steps of one side, then as many of the other */
	PIECE = 1024,        /* bytes that one `put` carries, with its key */
	LINES_MOST = 1 << 20 /* bytes of the lines of a step */
};

static pmix_proc_t me;
static int pmi;       /* the socket of PMI-1 */
static FILE *answers; /* the same, to be read */

struct times {
	double whole, call; /* us */
};

static void __attribute__((noreturn)) fail(const char *what, const char *why)
{
	fprintf(stderr, "fence: %s: %s\n", what, why);
	_exit(1);
}

static void check(pmix_status_t status, const char *call)
{
	if (status != PMIX_SUCCESS)
		fail(call, PMIx_Error_string(status));
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* ---- PMI-1 ---- */

static void say(const char *lines, size_t n)
{
	while (n) {
		const ssize_t wrote = write(pmi, lines, n);

		if (wrote < 0)
			fail("PMI-1", "the agent does not read");
		lines += wrote;
		n -= (size_t)wrote;
	}
}

static void hear(const char *beginning)
{
	char line[4096] = "";

	if (!fgets(line, sizeof line, answers) ||
	    strncmp(line, beginning, strlen(beginning)) != 0)
		fail(beginning, line);
}

static void pmi_begin(void)
{
	static const char init[] = "cmd=init pmi_version=1 pmi_subversion=1\n";
	const char *fd = getenv("PMI_FD");

	if (!fd) {
		pmi = -1;
		return;
	}
	pmi = (int)strtol(fd, NULL, 10);
	answers = fdopen(dup(pmi), "r");
	if (!answers)
		fail("PMI_FD", fd);
	say(init, strlen(init));
	hear("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
}

static void pmi_end(void)
{
	if (pmi < 0)
		return;
	say("cmd=finalize\n", strlen("cmd=finalize\n"));
	hear("cmd=finalize_ack");
}

/* No key comes twice. */
static size_t add_put(char *at, size_t step, size_t piece, size_t bytes)
{
	char key[64];
	const int nkey = snprintf(key, sizeof key, "%u.%zu.%zu", me.rank, step, piece);
	const int value = (int)bytes > nkey + 2 ? (int)bytes - nkey - 2 : 1;

	return (size_t)sprintf(at, "cmd=put kvsname=k key=%s value=%0*d\n", key, value,
			       0);
}

static struct times echo(size_t bytes, size_t step)
{
	static char lines[LINES_MOST];
	const double begin = now_us();
	struct times t;
	size_t n = 0, puts = 0;

	for (size_t sent = 0; sent < bytes; sent += PIECE)
		n += add_put(lines + n, step, puts++,
			     bytes - sent < PIECE ? bytes - sent : PIECE);
	n += (size_t)sprintf(lines + n, "cmd=barrier_in\n");
	say(lines, n);
	while (puts--)
		hear("cmd=put_result rc=0");
	hear("cmd=barrier_out");
	t.whole = t.call = now_us() - begin;
	return t;
}

/* ---- PMIx ---- */

static struct times fence(size_t bytes, size_t step)
{
	static char data[LINES_MOST];
	pmix_value_t v = { .type = PMIX_BYTE_OBJECT, .data.bo = { data, bytes } };
	const double begin = now_us();
	pmix_info_t directive;
	pmix_proc_t all;
	struct times t;
	double called;

	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	PMIX_INFO_LOAD(&directive, PMIX_COLLECT_DATA, NULL, PMIX_BOOL);
	memset(data, (int)step, bytes);
	if (bytes) {
		check(PMIx_Put(PMIX_GLOBAL, "fence", &v), "PMIx_Put");
		check(PMIx_Commit(), "PMIx_Commit");
	}
	called = now_us();
	check(PMIx_Fence(&all, 1, &directive, bytes != 0), "PMIx_Fence");
	t.whole = now_us() - begin;
	t.call = now_us() - called;
	return t;
}

static uint32_t job_size(void)
{
	pmix_proc_t all;
	pmix_value_t *v = NULL;
	uint32_t size;

	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	check(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &v), PMIX_JOB_SIZE);
	size = v->data.uint32;
	PMIX_VALUE_RELEASE(v);
	return size;
}

/* The last step of another rank has come with the last fence.  Once: libpmix keeps what
 * a rank has got. */
static void check_other(size_t bytes, size_t step)
{
	pmix_proc_t other;
	pmix_value_t *v = NULL;
	pmix_info_t now;

	PMIX_LOAD_PROCID(&other, me.nspace, (me.rank + 1) % job_size());
	PMIX_INFO_LOAD(&now, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
	check(PMIx_Get(&other, "fence", &now, 1, &v), "PMIx_Get");
	if (v->type != PMIX_BYTE_OBJECT || v->data.bo.size != bytes ||
	    v->data.bo.bytes[bytes - 1] != (char)step)
		fail("PMIx_Get", "not what that rank has put");
	PMIX_VALUE_RELEASE(v);
}

/* The first step of a block waits for ranks that are late from the block before. */
static void do_block(struct times (*side)(size_t bytes, size_t step), size_t bytes,
		     size_t first, struct times *t)
{
	side(bytes, first);
	for (size_t i = 0; i < BLOCK; i++)
		t[i] = side(bytes, first + 1 + i);
}

static void do_steps(size_t bytes, size_t steps)
{
	struct times e[BLOCK] = { 0 }, f[BLOCK];
	size_t last = 0;

	for (size_t i = 0; i < steps; i += BLOCK + 1) {
		if (pmi >= 0)
			do_block(echo, bytes, i, e);
		do_block(fence, bytes, i, f);
		last = i + BLOCK;
		for (size_t k = 0; k < BLOCK && me.rank == 0; k++)
			printf("%.1f %.1f %.1f\n", e[k].whole, f[k].whole, f[k].call);
	}
	if (bytes && steps)
		check_other(bytes, last);
}

int main(int argc, char **argv)
{
	const size_t bytes = argc == 3 ? strtoul(argv[1], NULL, 10) : LINES_MOST;

	if (bytes > LINES_MOST / 2)
		fail("usage", "fence BYTES STEPS");
	pmi_begin();
	check(PMIx_Init(&me, NULL, 0), "PMIx_Init");
	do_steps(bytes, strtoul(argv[2], NULL, 10));
	check(PMIx_Finalize(NULL, 0), "PMIx_Finalize");
	pmi_end();
	return 0;
}
