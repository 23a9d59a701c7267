/* lib/boot/boot_caller: processes that no launcher started, with an allgather over
 * memory that they share.  It fails on one of them, or gives what no rank said.
 * takes_s: 13 */
#include "ranks.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/base/clock.h"
#include "lib/base/wait.h"
#include "lib/boot/boot_caller.h"
#include "tests/helpers/calls.h"

enum { RANKS = 5, BYTES_MOST = 4096, CALLS = 4, LIMIT_S = 50, ELEMENTS = 100000 };

/* One bootstrap: each rank's messages of its last two calls.  Before a rank makes call
 * K + 2, all have made call K + 1, so they have read what it gave in call K. */
struct hub {
	struct post given[RANKS]; /* how many calls */
	_Atomic uint64_t broken;
	unsigned char message[RANKS][2][BYTES_MOST];
};

struct shared {
	struct hub hub[3];
	struct post full; /* the way to rank 0's memory */
};

/* How a call fails on one rank: it takes part, or the others wait for it, or no rank
 * can make a call any more. */
enum fault { NO_FAULT, AFTER, ABSENT, BROKEN };

struct line {
	struct hub *hub;
	unsigned me, n, made;
	unsigned asked; /* by the library */
	unsigned fault_at;
	enum fault fault;
	int64_t patience_ms;
	/* At call CHANGED_AT, N bytes from AT on of what this rank gives are VALUE. */
	unsigned changed_at;
	size_t at, n_changed;
	unsigned char value;
};

static int allgather(void *ctx, const void *in, void *out, size_t bytes)
{
	struct line *l = ctx;
	struct hub *h = l->hub;
	const bool fails = ++l->asked == l->fault_at;
	struct wait w = { .yields = 20, .broken = &h->broken };
	unsigned char *mine = h->message[l->me][(l->made + 1) % 2];

	if (fails && l->fault == BROKEN)
		atomic_store(&h->broken, BERTH_PEER_LOST);
	if (bytes > BYTES_MOST || atomic_load(&h->broken) ||
	    (fails && l->fault == ABSENT))
		return 7;
	memcpy(mine, in, bytes);
	if (l->asked == l->changed_at)
		memset(mine + l->at, l->value, l->n_changed);
	post(&h->given[l->me], ++l->made);
	w.deadline_ns = clock_until(l->patience_ms);
	for (unsigned r = 0; r < l->n; r++) {
		if (wait_for(&w, &h->given[r], l->made))
			return 5;
		memcpy((unsigned char *)out + r * bytes, h->message[r][l->made % 2],
		       bytes);
	}
	return fails ? 7 : 0;
}

static struct line line_of(struct ranks *r, unsigned hub)
{
	struct shared *s = r->region;

	return (struct line){
		.hub = &s->hub[hub], .me = r->me, .n = r->n, .patience_ms = 20000
	};
}

static struct berth_bootstrap bootstrap_of(struct line *l)
{
	return (struct berth_bootstrap){ .size = sizeof(struct berth_bootstrap),
					 .rank = (int)l->me,
					 .ranks = (int)l->n,
					 .allgather = allgather,
					 .ctx = l };
}

static berth_result begin(const struct berth_bootstrap *b)
{
	const struct berth_config c = { .size = sizeof c, .bootstrap = b };

	return berth_init(&c);
}

#define FINE(r, call)                                                                  \
	RANKS_ASSERT((r), !(call), "%s: %s", #call, berth_last_error()->text)

/* X becomes the sum over all ranks. */
static berth_result sum(int32_t *x, size_t n)
{
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_I32, .in = x,
			   .out = x, .count = n, .timeout_ms = 30000);

	return berth_run(&d, -1, NULL);
}

static void check_sum(struct ranks *r, unsigned me, unsigned n)
{
	const size_t bytes = ELEMENTS * sizeof(int32_t);
	int32_t *x = ranks_array(r, bytes), *part = ranks_array(r, bytes);
	uint32_t *want = calloc(ELEMENTS, sizeof *want);

	ranks_fill(x, BERTH_I32, ELEMENTS, me, 0);
	FINE(r, sum(x, ELEMENTS));
	for (unsigned k = 0; k < n; k++) {
		ranks_fill(part, BERTH_I32, ELEMENTS, k, 0);
		for (size_t i = 0; i < ELEMENTS; i++)
			want[i] += (uint32_t)part[i];
	}
	RANKS_ASSERT(r, !memcmp(x, want, bytes), "a wrong sum");
	ranks_free(r, x);
	ranks_free(r, part);
	free(want);
}

static size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A whole init round of L's ranks, LOCALS of which are on each host. */
static void use(struct ranks *r, struct line *l, const struct berth_bootstrap *b,
		int locals)
{
	const size_t before = count_descriptors();

	FINE(r, begin(b));
	RANKS_ASSERT(r, l->asked == CALLS, "%u calls of allgather", l->asked);
	RANKS_ASSERT(r, berth_rank() == b->rank && berth_size() == b->ranks, "%d of %d",
		     berth_rank(), berth_size());
	RANKS_ASSERT(r, call_world().local_size == locals, "%d here",
		     call_world().local_size);
	memset((void *)(uintptr_t)b, 0, sizeof *b); /* it is not needed any more */
	l->hub = NULL;
	check_sum(r, l->me, l->n);
	FINE(r, call_barrier(NULL));
	FINE(r, berth_shutdown());
	RANKS_ASSERT(r, count_descriptors() == before, "a descriptor is left");
}

/* ---- it works ---- */

static void one_host(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);

	use(r, &l, &b, (int)r->n);
}

START_TEST(ranks_of_one_host)
{
	static const unsigned sizes[] = { 1, 2, 5 };

	ranks_run(sizes[_i], sizeof(struct shared), 0, one_host, LIMIT_S);
}
END_TEST

/* Ranks 0, 2 and 4 on "a", 1 and 3 on "b"; with a key, and without. */
static void two_hosts(struct ranks *r)
{
	static const unsigned char key[BOOT_KEY_BYTES] =
		"a key of 32 bytes, or of so many";
	char host[2] = { (char)('a' + r->me % 2) };

	for (unsigned i = 0; i < 2; i++) {
		struct line l = line_of(r, i);
		struct berth_bootstrap b = bootstrap_of(&l);

		b.host = host;
		b.key = i ? key : NULL;
		use(r, &l, &b, r->me % 2 ? 2 : 3);
	}
}

START_TEST(ranks_of_two_hosts)
{
	ranks_run(5, sizeof(struct shared), 0, two_hosts, LIMIT_S);
}
END_TEST

static void places(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);

	b.host = r->me % 2 ? "b" : "a";
	FINE(r, begin(&b));
	RANKS_ASSERT(r, call_world().local_rank == (int)r->me / 2, "local rank");
	RANKS_ASSERT(r, call_world().cross_rank == (int)r->me % 2, "cross rank");
	RANKS_ASSERT(r, call_world().cross_size == (r->me < 4 ? 2 : 1), "cross size");
	FINE(r, call_barrier(NULL));
	FINE(r, berth_shutdown());
}

START_TEST(places_on_two_hosts)
{
	ranks_run(5, sizeof(struct shared), 0, places, LIMIT_S);
}
END_TEST

/* Three init rounds: all 5 ranks; alone, and ranks 1 to 3 in the reverse order; 4. */
static void rounds(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);

	use(r, &l, &b, 5);
	l = line_of(r, 1);
	if (r->me >= 1 && r->me <= 3) {
		l.me = 3 - r->me;
		l.n = 3;
	} else {
		l.hub = calloc(1, sizeof *l.hub);
		l.me = 0;
		l.n = 1;
	}
	b = bootstrap_of(&l);
	use(r, &l, &b, (int)l.n);
	if (r->me == 4)
		return;
	l = line_of(r, 2);
	l.n = 4;
	b = bootstrap_of(&l);
	b.host = r->me < 2 ? "left" : "right";
	use(r, &l, &b, 2);
}

START_TEST(three_rounds)
{
	ranks_run(5, sizeof(struct shared), 0, rounds, LIMIT_S);
}
END_TEST

/* ---- allgather fails ---- */

static struct {
	unsigned rank, call;
	enum fault fault;
	bool two_hosts;
} failing;

static void expect(struct ranks *r, berth_result rc, berth_result want,
		   const char *text)
{
	RANKS_ASSERT(r, rc == want && strstr(berth_last_error()->text, text),
		     "%d, not %d: %s", (int)rc, (int)want, berth_last_error()->text);
}

/* A failure of the last call is known to its own rank alone. */
static void lose_it(struct ranks *r, berth_result rc)
{
	int32_t x[1] = { 1 };

	FINE(r, rc);
	rc = sum(x, 1);
	RANKS_ASSERT(r, rc == BERTH_PEER_LOST, "%d: %s", (int)rc,
		     berth_last_error()->text);
	FINE(r, berth_shutdown());
}

static void call_fails(struct ranks *r)
{
	const size_t before = count_descriptors();
	const bool last = failing.call == CALLS, mine = r->me == failing.rank;
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);
	berth_result rc;

	if (failing.two_hosts)
		b.host = r->me == 2 ? "b" : "a";
	if (mine) {
		l.fault = failing.fault;
		l.fault_at = failing.call;
	}
	if (failing.fault == ABSENT && last) /* no call follows that could tell */
		l.patience_ms = 2000;
	rc = begin(&b);
	if (mine)
		expect(r, rc, BERTH_SYSTEM,
		       failing.rank
			       ? "the bootstrap's allgather failed on rank 1 with 7"
			       : "the bootstrap's allgather failed on rank 0 with 7");
	else if (failing.fault == BROKEN || (failing.fault == ABSENT && last))
		expect(r, rc, BERTH_SYSTEM, "the bootstrap's allgather failed on rank");
	else if (last)
		lose_it(r, rc);
	else
		expect(r, rc, BERTH_SYSTEM,
		       failing.rank
			       ? "rank 1 could not join: the bootstrap's allgather"
			       : "rank 0 could not join: the bootstrap's allgather");
	RANKS_ASSERT(r, l.asked <= CALLS, "%u calls", l.asked);
	RANKS_ASSERT(r, count_descriptors() == before, "a descriptor is left");
	l = line_of(r, 1);
	b = bootstrap_of(&l);
	use(r, &l, &b, 3);
}

START_TEST(allgather_fails)
{
	failing.call = 1 + (unsigned)_i % CALLS;
	failing.fault = (enum fault)(AFTER + _i / CALLS % 3);
	failing.two_hosts = _i / (CALLS * 3) % 2;
	failing.rank = (unsigned)_i / (CALLS * 6);
	ranks_run(3, sizeof(struct shared), 0, call_fails, LIMIT_S);
}
END_TEST

/* ---- a rank fails ---- */

/* In the environment of rank 1, and what all ranks say then. */
static const struct {
	const char *name, *value, *says;
	berth_result rc;
} odd[] = {
	{ "BERTH_OP_TIMEOUT", "soon", "BERTH_OP_TIMEOUT", BERTH_INVALID },
	{ "BERTH_NET", "203.0.113.0/32", "203.0.113.0/32", BERTH_SYSTEM },
	{ "HOROVOD_TIMELINE", "/no/such/folder/t", "/no/such/folder/t", BERTH_SYSTEM },
};
static int which;

static void rank_fails(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);

	b.host = r->me ? "b" : "a";
	if (r->me == 1)
		setenv(odd[which].name, odd[which].value, 1);
	expect(r, begin(&b), odd[which].rc, odd[which].says);
	if (r->me != 1)
		expect(r, odd[which].rc, odd[which].rc, "rank 1 could not join: ");
	unsetenv(odd[which].name);
	l = line_of(r, 1);
	b = bootstrap_of(&l);
	use(r, &l, &b, 3);
}

START_TEST(a_rank_fails)
{
	which = _i;
	ranks_run(3, sizeof(struct shared), 0, rank_fails, LIMIT_S);
}
END_TEST

/* Rank 0 cannot make the memory; rank 1 has no descriptor for the way to it. */
static void no_memory(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);
	struct rlimit limit;

	if (!r->me) {
		limit = (struct rlimit){ 4096, RLIM_INFINITY };
		setrlimit(RLIMIT_FSIZE, &limit);
	}
	expect(r, begin(&b), BERTH_SYSTEM, "cannot make shared memory of");
}

static void no_descriptor(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);
	struct rlimit limit = { 0, 0 };

	if (r->me == 1) {
		const int next = dup(0); /* one more: the socket that others come to */

		close(next);
		limit.rlim_cur = limit.rlim_max = (rlim_t)next + 1;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	expect(r, begin(&b), BERTH_SYSTEM, "cannot reach the first rank of host");
}

START_TEST(memory_fails)
{
	ranks_run(3, sizeof(struct shared), 0, _i ? no_descriptor : no_memory, LIMIT_S);
}
END_TEST

enum {
	AT_MAGIC = 0,
	AT_VERSION = 4,
	AT_CALL = 8,
	AT_RANK = 12,
	AT_RANKS = 16,
	AT_RESULT = 20,
	AT_WHO = 24,
	AT_CARD = AT_WHO + 4 + BOOT_KEY_BYTES,
	AT_CARD_MACHINE = AT_CARD + 256,
	AT_SOCKET = AT_CARD_MACHINE + 64,
	AT_MACHINE = AT_SOCKET + 33,
	AT_EPOCH = (AT_MACHINE + 64 + 3) / 4 * 4,
	MESSAGE_BYTES = 2072
};

/* ---- another user ---- */

enum { NOBODY = 65534 };
static pid_t stranger;

/* Connections of another user's to the socket NAME, until its queue is full.  They
 * stay until that process is ended. */
static void fill_way(struct shared *s, const char *name)
{
	const struct rlimit descriptors = { 16384, 16384 };
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const socklen_t bytes =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			    (size_t)snprintf(to.sun_path + 1, sizeof to.sun_path - 1,
					     "berth-%s", name));
	int fd;

	stranger = fork();
	if (stranger)
		return;
	closefrom(3);
	if (setrlimit(RLIMIT_NOFILE, &descriptors) ||
	    setresuid(NOBODY, NOBODY, NOBODY) || prctl(PR_SET_PDEATHSIG, SIGKILL))
		_exit(9);
	do
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	while (fd >= 0 && !connect(fd, (struct sockaddr *)&to, bytes));
	post(&s->full, fd >= 0 && errno == EAGAIN);
	pause();
	_exit(0);
}

/* When all know where rank 0's memory is to be had, and before one of them comes. */
static int allgather_then_strangers(void *ctx, const void *in, void *out, size_t bytes)
{
	struct line *l = ctx;
	struct shared *s = (struct shared *)l->hub;
	struct wait w = { .yields = 20, .deadline_ns = clock_until(l->patience_ms) };
	int rc = allgather(ctx, in, out, bytes);

	if (rc || l->asked != 1)
		return rc;
	if (!l->me)
		fill_way(s, (char *)out + AT_SOCKET);
	return wait_for(&w, &s->full, 1) ? 8 : 0;
}

static void strangers(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);

	b.allgather = allgather_then_strangers;
	use(r, &l, &b, (int)r->n);
	if (!r->me)
		kill(stranger, SIGKILL);
}

START_TEST(strangers_come_first)
{
	if (!geteuid())
		ranks_run(3, sizeof(struct shared), 0, strangers, LIMIT_S);
}
END_TEST

/* ---- what no rank says ---- */

static const struct {
	unsigned call;
	size_t at, n;
	unsigned char value;
	const char *says; /* rank 0 */
} lies[] = {
	{ 1, 0, MESSAGE_BYTES, 0, "rank 1 has another version" },
	{ 1, 0, MESSAGE_BYTES, 0xff, "rank 1 has another version" },
	{ 1, AT_VERSION, 1, 2, "rank 1 has another version" },
	{ 2, AT_MAGIC, 1, 0, "rank 1 has another version" },
	{ 1, AT_CALL, 1, 2, "rank 1 makes call 2 of the bootstrap's allgather" },
	{ 3, AT_CALL, 1, 1, "rank 1 makes call 1 of the bootstrap's allgather" },
	{ 1, AT_RANK, 1, 2, "two processes are rank 2" },
	{ 1, AT_RANK, 4, 0xff, "two processes are rank 4294967295" },
	{ 1, AT_RANKS, 1, 9, "is 9 on rank 1 and 3 on rank 0" },
	{ 1, AT_RESULT, 4, 0xff, "rank 1 could not join: " },
	{ 1, AT_RESULT, MESSAGE_BYTES - AT_RESULT, 'x', "it does not say why" },
	{ 4, AT_RESULT, 1, 99, "rank 1 could not join: it does not say why" },
	{ 1, AT_WHO, 1, 3, "differ in which members" },
	{ 1, AT_WHO, 4, 0xff, "differ in which members" },
	{ 1, AT_CARD, 256, 'x', "what rank 1 told of itself is no card" },
	{ 1, AT_CARD, 1, 0, "what rank 1 told of itself is no card" },
	{ 1, AT_CARD, 1, '\n', "what rank 1 told of itself is no card" },
	{ 1, AT_CARD_MACHINE, 64, 'x', "what rank 1 told of itself is no card" },
	{ 1, AT_SOCKET, 33, 'x', "what rank 1 told of itself is no card" },
	{ 1, AT_MACHINE, 64, 'x', "what rank 1 told of itself is no card" },
	{ 1, AT_MACHINE, 1, 'x', "ranks 0 and 1 give the same host, 'a'" },
	{ 1, AT_EPOCH, 8, 0xff, "rank 1 says what cannot be of its last world" },
	{ 1, AT_EPOCH + 4, 1, 1, "rank 1 says what cannot be of its last world" },
	{ 3, AT_WHO, BOOT_TEXT_BYTES, 'x', "the text of rank 1 has no end" },
};

static void hear_lie(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);
	berth_result rc;

	b.host = "a";
	if (r->me == 1) {
		l.changed_at = lies[which].call;
		l.at = lies[which].at;
		l.n_changed = lies[which].n;
		l.value = lies[which].value;
	}
	rc = begin(&b);
	RANKS_ASSERT(r, rc, "it believes everything");
	if (!r->me)
		expect(r, rc, rc, lies[which].says);
	RANKS_ASSERT(r, l.asked == lies[which].call || l.asked == lies[which].call + 1,
		     "%u calls", l.asked);
	l = line_of(r, 1);
	b = bootstrap_of(&l);
	use(r, &l, &b, 3);
}

START_TEST(a_rank_lies)
{
	which = _i;
	ranks_run(3, sizeof(struct shared), 0, hear_lie, LIMIT_S);
}
END_TEST

/* ---- the argument ---- */

START_TEST(arguments)
{
	struct line l = { .me = 0, .n = 1 };
	struct berth_bootstrap b = bootstrap_of(&l);
	const struct berth_bootstrap good = b;
	char host[300] = "";
	struct berth_config old = { .size = offsetof(struct berth_config, bootstrap),
				    .bootstrap = &b };

#define WRONG(member, with, text)                                                      \
	do {                                                                           \
		b = good;                                                              \
		b.member = with;                                                       \
		ck_assert_ptr_ne(boot_caller_check(&b), NULL);                         \
		ck_assert_ptr_ne(strstr(boot_caller_check(&b), text), NULL);           \
	} while (0)
	ck_assert_ptr_eq(boot_caller_check(&b), NULL);
	WRONG(size, sizeof b - 1, "size ");
	WRONG(size, 0, "size ");
	WRONG(allgather, NULL, "allgather ");
	WRONG(ranks, 0, "ranks ");
	WRONG(ranks, -1, "ranks ");
	WRONG(ranks, INT32_MAX, "ranks ");
	WRONG(rank, -1, "rank ");
	WRONG(rank, 1, "rank ");
	ck_assert_int_eq(begin(&b), BERTH_INVALID);
	ck_assert_ptr_ne(strstr(berth_last_error()->text, "rank "), NULL);
	ck_assert_uint_eq(l.asked, 0);
	WRONG(host, "", "host ");
	WRONG(host, "a\nb", "control");
	memset(host, 'h', 256);
	WRONG(host, host, "host ");
	host[255] = '\0';
	b.host = host;
	ck_assert_ptr_eq(boot_caller_check(&b), NULL);
	b.size = 0; /* a config without this member */
	ck_assert_int_eq(berth_init(&old), BERTH_OK);
	ck_assert_int_eq(berth_size(), 1);
	ck_assert_int_eq(berth_shutdown(), BERTH_OK);
}
END_TEST

static void bad_host(struct ranks *r)
{
	struct line l = line_of(r, 0);
	struct berth_bootstrap b = bootstrap_of(&l);

	b.host = r->me ? "a" : "";
	expect(r, begin(&b), BERTH_INVALID, "host of struct berth_bootstrap is empty");
}

START_TEST(all_hear_of_a_bad_host)
{
	ranks_run(3, sizeof(struct shared), 0, bad_host, LIMIT_S);
}
END_TEST

int main(void)
{
	static const char *const launchers[] = { "BERTH_AGENT", "BERTH_RANK",
						 "BERTH_SIZE", "PMIX_NAMESPACE",
						 "PMIX_RANK" };
	Suite *s = suite_create("lib_boot_caller");
	TCase *t = tcase_create("boot_caller");
	SRunner *r = srunner_create(s);
	int failed;

	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
		unsetenv(launchers[i]);
	tcase_add_loop_test(t, ranks_of_one_host, 0, 3);
	tcase_add_test(t, ranks_of_two_hosts);
	tcase_add_test(t, places_on_two_hosts);
	tcase_add_test(t, three_rounds);
	tcase_add_loop_test(t, allgather_fails, 0, CALLS * 3 * 2 * 2);
	tcase_add_loop_test(t, a_rank_fails, 0, sizeof odd / sizeof *odd);
	tcase_add_loop_test(t, memory_fails, 0, 2);
	tcase_add_loop_test(t, a_rank_lies, 0, sizeof lies / sizeof *lies);
	tcase_add_test(t, arguments);
	tcase_add_test(t, strangers_come_first);
	tcase_add_test(t, all_hear_of_a_bad_host);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
