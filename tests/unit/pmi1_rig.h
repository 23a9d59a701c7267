/* pmi1_rig.h - for tests of PMI-1: a server without an agent.  The test writes what
 * ranks write to PMI_FD, and what the launcher answers. */
#ifndef BERTH_TESTS_PMI1_RIG_H
#define BERTH_TESTS_PMI1_RIG_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/server_internal.h"
#include "common/job.h"

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

enum {
	RANKS_MOST = 20, /* on this host */
	LIMIT_S = 30     /* of one wait */
};

static struct event_base *base;
static struct event *limit;
static struct buf out;
static struct server *server;
static struct wire_job job;
static int rank_fd[RANKS_MOST];
static struct buf heard[RANKS_MOST];
static size_t descriptors; /* before the server */

/* ---- a server ---- */

static inline size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline void on_limit(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	ck_abort_msg("nothing more came");
}

/* One step of the loop, which waits for something to happen. */
static inline void turn(void)
{
	event_add(limit, &(struct timeval){ .tv_sec = LIMIT_S });
	event_base_loop(base, EVLOOP_ONCE);
	event_del(limit);
}

/* All that can happen now does. */
static inline void settle_all(void)
{
	for (int i = 0; i < 4; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
}

/* Ranks 0 to N-1 of NP are here, on host 0 of NODES. */
static inline void open_server(uint32_t n, uint32_t np, uint32_t nodes, uint32_t flags)
{
	static uint32_t ranks[RANKS_MOST], apps[RANKS_MOST];
	struct err e;

	base = event_base_new();
	limit = event_new(base, -1, 0, on_limit, NULL);
	for (uint32_t i = 0; i < RANKS_MOST; i++) {
		ranks[i] = i;
		apps[i] = i + 5;
		rank_fd[i] = -1;
	}
	job = (struct wire_job){ .epoch = 3,
				 .job_id = "ab12",
				 .flags = flags,
				 .np = np,
				 .nodes = nodes,
				 .host = "here",
				 .ranks = { ranks, n },
				 .apps = { apps, n } };
	descriptors = count_descriptors();
	server = server_open(base, &out, &job);
	ck_assert_ptr_nonnull(server);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(server_pmi1(server, i, &rank_fd[i], &e), 0);
}

/* It leaves no descriptor, and has sent nothing that the test does not know of. */
static inline void close_server(void)
{
	ck_assert_uint_eq(out.len, 0);
	server_free(server);
	for (size_t i = 0; i < RANKS_MOST; i++) {
		if (rank_fd[i] >= 0)
			close(rank_fd[i]);
		buf_free(&heard[i]);
	}
	ck_assert_uint_eq(count_descriptors(), descriptors);
	event_free(limit);
	event_base_free(base);
	buf_free(&out);
}

/* ---- what ranks say and hear ---- */

static inline void say_bytes(int r, const char *bytes, size_t n)
{
	ck_assert_int_eq(send(rank_fd[r], bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

static inline void say(int r, const char *lines)
{
	say_bytes(r, lines, strlen(lines));
}

/* What has come to rank R; false at the end of its connection. */
static inline bool read_answers(int r)
{
	ssize_t n;

	while ((n = recv(rank_fd[r], buf_reserve(&heard[r], 4096), 4096,
			 MSG_DONTWAIT)) > 0)
		heard[r].len += (size_t)n;
	return n < 0 && errno == EAGAIN;
}

/* The next line that rank R gets, without its end; NULL: it was hung up. */
static inline const char *hear(int r)
{
	static char line[2048];
	const unsigned char *end;
	size_t n;

	for (;;) {
		const bool more = read_answers(r);

		end = heard[r].len ? memchr(buf_head(&heard[r]), '\n', heard[r].len)
				   : NULL;
		if (end || !more)
			break;
		turn();
	}
	if (!end)
		return NULL;
	n = (size_t)(end - buf_head(&heard[r]));
	ck_assert_uint_lt(n, sizeof line);
	memcpy(line, buf_head(&heard[r]), n);
	line[n] = '\0';
	buf_drop(&heard[r], n + 1);
	return line;
}

static inline void hears(int r, const char *line)
{
	ck_assert_pstr_eq(hear(r), line);
}

/* Rank R gets nothing now, and is still connected. */
static inline void hears_nothing(int r)
{
	settle_all();
	ck_assert(read_answers(r));
	ck_assert_uint_eq(heard[r].len, 0);
}

static inline void ask(int r, const char *line, const char *answer)
{
	say(r, line);
	hears(r, answer);
}

static inline void put_ok(int r, const char *line)
{
	ask(r, line, "cmd=put_result rc=0 msg=success");
}

/* A put of KEY, and of N bytes as its value: the answer. */
static inline const char *put_long(int r, const char *key, size_t n)
{
	char *value = xmalloc(n + 1), *line;

	memset(value, 'v', n);
	value[n] = '\0';
	line = xasprintf("cmd=put kvsname=k key=%s value=%s\n", key, value);
	say(r, line);
	free(line);
	free(value);
	return hear(r);
}

/* ---- what the launcher hears and says ---- */

/* The next frame to the launcher, which is an exchange of PMI-1: its data, to be freed
 * with buf_free(). */
static inline struct buf exchange(uint64_t number, bool last)
{
	struct buf data = { 0 };
	struct wire_frame f;
	struct wire_exchange m;
	struct err e;
	long n = wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, &e);

	ck_assert_int_gt(n, 0);
	ck_assert_uint_eq(f.type, WIRE_exchange);
	ck_assert(!wire_unpack_exchange(&m, f.payload, f.n, &e));
	ck_assert_uint_eq(m.epoch, 3);
	ck_assert_uint_eq(m.use, EXCHANGE_PMI1);
	ck_assert_uint_eq(m.ranks.n, 0);
	ck_assert_uint_eq(m.number, number);
	ck_assert_uint_eq(m.last, last);
	buf_add(&data, m.data.p, m.data.n);
	wire_free_exchange(&m);
	buf_drop(&out, (size_t)n);
	return data;
}

/* The same, all of it in one part. */
static inline void expect_exchange(uint64_t number, const char *data, size_t n)
{
	struct buf b = exchange(number, true);

	ck_assert_uint_eq(b.len, n);
	if (n)
		ck_assert_mem_eq(buf_head(&b), data, n);
	buf_free(&b);
}

/* The next frame to the launcher says that rank RANK never came, and how many are in
 * MPI_Init. */
static inline void expect_absent(uint32_t rank, uint32_t waiting)
{
	struct wire_frame f;
	struct wire_absent m;
	struct err e;
	long n;

	settle_all();
	n = wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, &e);
	ck_assert_int_gt(n, 0);
	ck_assert_uint_eq(f.type, WIRE_absent);
	ck_assert(!wire_unpack_absent(&m, f.payload, f.n, &e));
	ck_assert_uint_eq(m.epoch, 3);
	ck_assert_uint_eq(m.use, EXCHANGE_PMI1);
	ck_assert_uint_eq(m.rank, rank);
	ck_assert_uint_eq(m.waiting, waiting);
	buf_drop(&out, (size_t)n);
}

/* Give the frame in B to the server. */
static inline int give(struct buf *b)
{
	struct wire_frame f;
	struct err e = { 0 };
	int rc;

	ck_assert_int_gt(wire_next_from(WIRE_LAUNCHER, &f, buf_head(b), b->len, &e), 0);
	rc = server_frame(server, &f, &e);
	ck_assert_int_eq(e.id, rc ? E_WIRE : ERR_NONE);
	buf_free(b);
	return rc;
}

static inline int exchange_data(uint64_t number, const void *data, size_t n, bool last)
{
	struct buf b = { 0 };

	wire_pack_exchange_data(&b,
				&(struct wire_exchange_data){ .epoch = 3,
							      .use = EXCHANGE_PMI1,
							      .number = number,
							      .last = last,
							      .data = { data, n } });
	return give(&b);
}

static inline void exchange_failed(uint64_t number)
{
	struct buf b = { 0 };

	wire_pack_exchange_failed(
		&b, &(struct wire_exchange_failed){
			    .epoch = 3, .use = EXCHANGE_PMI1, .number = number });
	ck_assert_int_eq(give(&b), 0);
}

static inline int host_map(const uint32_t *hosts, size_t np, size_t nodes)
{
	static const char *const names[] = { "a", "b", "c", "d" };
	const uint32_t app = 0;
	struct buf b = { 0 };

	wire_pack_host_map(&b, &(struct wire_host_map){ 3,
							{ hosts, np },
							{ names, nodes },
							{ names, nodes },
							{ &app, 1 } });
	return give(&b);
}

static inline void host_map_requested(void)
{
	struct wire_frame f;
	struct err e;
	long n = wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, &e);

	ck_assert_int_gt(n, 0);
	ck_assert_uint_eq(f.type, WIRE_host_map_request);
	buf_drop(&out, (size_t)n);
}

static inline void both_in(void)
{
	say(0, "cmd=barrier_in\n");
	settle_all();
	ck_assert_uint_eq(out.len, 0);
	say(1, "cmd=barrier_in\n");
	settle_all();
	ck_assert_uint_gt(out.len, 0);
}

static inline void both_out(void)
{
	hears(0, "cmd=barrier_out");
	hears(1, "cmd=barrier_out");
}

/* ---- tests ---- */

static inline int run_all(Suite *s)
{
	SRunner *r = srunner_create(s);
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}

#endif
