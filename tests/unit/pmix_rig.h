/* pmix_rig.h - for tests of agent/pmi/pmix.c: a server without an agent and without the
 * process of a PMIx server.  The test says what that process and the launcher say, and
 * hears what they are told as wire_print() writes it.
 *
 * Time stands still but where a test lets it pass (pmix_process_start,
 * pmix_process_end and loop_after_ms are wrapped). */
#ifndef BERTH_TESTS_PMIX_RIG_H
#define BERTH_TESTS_PMIX_RIG_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/pmi/pmix_process.h"
#include "agent/pmi/server_internal.h"
#include "common/job.h"

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

/* Each host has two ranks; this is host 1, if there are several. */
enum { HOSTS_MOST = 4, EACH = 2, TIMERS_MOST = 8 };

static struct event_base *base;
static struct server *server;
static struct wire_job job;
static uint32_t epoch = 3; /* of what the launcher says */
static struct pmix_folders folders;
static struct buf out;          /* to the launcher */
static int child_fd;            /* of the PMIx server; -1: it has none */
static struct buf child_in;     /* what it was told */
static struct buf last;         /* payload of the frame that was heard last */
static bool no_process;         /* it cannot be started */
static size_t starts, living;   /* of processes */
static size_t descriptors_then; /* before the server */

/* ---- time ---- */

static uint64_t now_ms;
static struct timer {
	struct event *event;
	uint64_t at_ms;
} timer[TIMERS_MOST];

void __wrap_loop_after_ms(struct event *e, uint64_t ms);

void __wrap_loop_after_ms(struct event *e, uint64_t ms)
{
	struct timer *one = timer;

	while (one->event && one->event != e)
		one++;
	ck_assert(one < timer + TIMERS_MOST - 1);
	*one = (struct timer){ e, now_ms + ms };
	event_add(e, &(struct timeval){ .tv_sec = 86400 });
}

/* All that can happen now does. */
static inline void settle_all(void)
{
	for (int i = 0; i < 4; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
}

static inline void pass(uint64_t ms)
{
	now_ms += ms;
	for (struct timer *one = timer; one->event; one++) {
		if (one->at_ms > now_ms || !event_pending(one->event, EV_TIMEOUT, NULL))
			continue;
		event_del(one->event);
		event_active(one->event, EV_TIMEOUT, 1);
	}
	settle_all();
}

/* ---- the process ---- */

int __wrap_pmix_process_start(struct pmix_process *p, struct err *e);
void __wrap_pmix_process_end(struct pmix_process *p);

int __wrap_pmix_process_start(struct pmix_process *p, struct err *e)
{
	int pair[2];

	starts++;
	if (no_process)
		return err_set(e, E_SYSTEM, "the PMIx server", "it is a test");
	ck_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	*p = (struct pmix_process){ .pidfd = -1, .fd = pair[0] };
	child_fd = pair[1];
	living++;
	return 0;
}

void __wrap_pmix_process_end(struct pmix_process *p)
{
	if (p->fd < 0)
		return;
	close(p->fd);
	living--;
	*p = (struct pmix_process){ .pidfd = -1, .fd = -1 };
}

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

static inline void open_server(uint32_t nodes, uint32_t flags)
{
	static uint32_t ranks[EACH], apps[EACH];

	base = event_base_new();
	child_fd = -1;
	job = (struct wire_job){ .epoch = 3,
				 .job_id = "ab12",
				 .nspace = "space",
				 .flags = flags,
				 .np = EACH * nodes,
				 .node = nodes > 1,
				 .nodes = nodes,
				 .host = "typed",
				 .own = "own",
				 .ranks = { ranks, EACH },
				 .apps = { apps, EACH } };
	for (uint32_t i = 0; i < EACH; i++)
		ranks[i] = job.node * EACH + i;
	descriptors_then = count_descriptors();
	server = server_open(base, &out, &job);
	ck_assert_ptr_nonnull(server);
}

static inline bool is_folder(const char *path)
{
	struct stat st;

	return *path && !lstat(path, &st) && S_ISDIR(st.st_mode);
}

static inline void hang_up_child(void)
{
	if (child_fd >= 0)
		close(child_fd);
	child_fd = -1;
	buf_free(&child_in);
	settle_all();
}

/* It leaves nothing, and has said nothing that the test does not know of. */
static inline void close_server(void)
{
	const struct pmix_folders made = folders;
	uint8_t more;

	ck_assert_uint_eq(out.len, 0);
	ck_assert_uint_eq(child_in.len, 0);
	if (child_fd >= 0)
		ck_assert_int_le(recv(child_fd, &more, 1, MSG_DONTWAIT), 0);
	server_free(server);
	hang_up_child();
	ck_assert_uint_eq(living, 0);
	ck_assert_str_eq(folders.files, "");
	ck_assert_str_eq(folders.memory, "");
	ck_assert(!is_folder(made.files) && !is_folder(made.memory));
	ck_assert_uint_eq(count_descriptors(), descriptors_then);
	memset(timer, 0, sizeof timer);
	event_base_free(base);
	buf_free(&out);
	buf_free(&last);
}

static inline void state_is(enum server_pmix_state state, const char *why)
{
	const char *said;

	ck_assert_int_eq(server_pmix(server, &said), state);
	ck_assert_str_eq(said, why);
	if (state == SERVER_PMIX_FAILED || state == SERVER_PMIX_LOST)
		ck_assert_uint_eq(living, 0);
}

/* ---- what is said ---- */

static inline void child_sends(struct buf *frame)
{
	while (frame->len) {
		ssize_t n = send(child_fd, buf_head(frame), frame->len,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		ck_assert(n > 0 || errno == EAGAIN);
		buf_drop(frame, n > 0 ? (size_t)n : 0);
		settle_all();
	}
	buf_free(frame);
}

#define CHILD(name, ...)                                                               \
	do {                                                                           \
		struct buf frame_ = { 0 };                                             \
                                                                                       \
		wire_pack_##name(&frame_, &(struct wire_##name){ __VA_ARGS__ });       \
		child_sends(&frame_);                                                  \
	} while (0)

static inline int launcher_sends(struct buf *frame)
{
	struct wire_frame f;
	struct err e = { 0 };
	int rc;

	ck_assert_int_gt(
		wire_next_from(WIRE_LAUNCHER, &f, buf_head(frame), frame->len, &e), 0);
	rc = server_frame(server, &f, &e);
	ck_assert_int_eq(e.id, rc ? E_WIRE : ERR_NONE);
	buf_free(frame);
	settle_all();
	return rc;
}

/* 0, or -1 if the server does not take it. */
#define LAUNCHER(name, ...)                                                            \
	({                                                                             \
		struct buf frame_ = { 0 };                                             \
                                                                                       \
		wire_pack_##name(&frame_, &(struct wire_##name){ .epoch = epoch,       \
								 __VA_ARGS__ });       \
		launcher_sends(&frame_);                                               \
	})

/* ---- what is heard ---- */

/* The first frame in IN, or NULL; to be freed. */
static inline char *first_frame(struct buf *in, enum wire_side from)
{
	struct str text = { 0 };
	struct wire_frame f;
	struct err e;
	long n = wire_next_from(from, &f, buf_head(in), in->len, &e);

	ck_assert_int_ge(n, 0);
	if (!n)
		return NULL;
	buf_free(&last);
	buf_add(&last, f.payload, f.n);
	wire_print(&text, &f);
	buf_drop(in, (size_t)n);
	return str_take(&text);
}

static inline void launcher_hears(const char *text)
{
	char *got = first_frame(&out, WIRE_AGENT);

	ck_assert_pstr_eq(got, text);
	free(got);
}

static inline void launcher_hears_nothing(void)
{
	settle_all();
	ck_assert_uint_eq(out.len, 0);
}

/* False: nothing more has come. */
static inline bool read_child(void)
{
	ssize_t n;

	settle_all();
	n = recv(child_fd, buf_reserve(&child_in, 65536), 65536, MSG_DONTWAIT);
	child_in.len += n > 0 ? (size_t)n : 0;
	return n > 0;
}

/* The next frame to the child, or NULL; to be freed. */
static inline char *next_of_child(void)
{
	char *got;

	while (!(got = first_frame(&child_in, WIRE_PMIX_HOST)) && read_child())
		;
	return got;
}

static inline void child_hears(const char *text)
{
	char *got = next_of_child();

	ck_assert_pstr_eq(got, text);
	free(got);
}

static inline void child_hears_nothing(void)
{
	ck_assert(!read_child());
	ck_assert_uint_eq(child_in.len, 0);
}

/* The frame that was heard last ends with these. */
static inline void with(const void *bytes, size_t n)
{
	ck_assert_uint_ge(last.len, n);
	ck_assert_mem_eq(buf_head(&last) + last.len - n, bytes, n);
}

/* ---- on the way to SERVER_PMIX_READY ---- */

static inline int send_host_map(void)
{
	static const char *const typed[] = { "a", "b", "c", "d" }, *const own[] = {
		"A", "B", "C", "D"
	};
	static const uint32_t apps[] = { 0, 1 };
	uint32_t hosts[EACH * HOSTS_MOST];

	for (uint32_t i = 0; i < job.np; i++)
		hosts[i] = i / EACH;
	return LAUNCHER(host_map, .hosts = { hosts, job.np },
			.names = { typed, job.nodes }, .own = { own, job.nodes },
			.apps = { apps, 2 });
}

static inline void begin_open(uint32_t nodes)
{
	static const char *const libraries[] = { "/one", "/two" };

	open_server(nodes, JOB_PMIX);
	state_is(SERVER_PMIX_NONE, "");
	server_pmix_open(server, &(struct server_pmix){ .libraries = { libraries, 2 },
							.topology = "<xml>",
							.folders = &folders });
}

static inline void open_child(uint32_t nodes)
{
	char *want;

	begin_open(nodes);
	want = xasprintf("pmix_open libraries=(2 strings) folder='%s' memory='%s' "
			 "nspace='space' host='own' node=%u topology='<xml>' np=%u",
			 folders.files, folders.memory, nodes > 1, EACH * nodes);
	child_hears(want);
	free(want);
}

static inline void begin_start(void)
{
	static const char *const cpus[] = { "0-3", "" },
				 *const commands[] = { "a b", "c" },
				 *const wdirs[] = { "/", "/tmp" };

	server_pmix_start(server, &(struct server_pmix){ .cpus = { cpus, 2 },
							 .commands = { commands, 2 },
							 .wdirs = { wdirs, 2 },
							 .oversubscribed = true });
	state_is(SERVER_PMIX_STARTING, "");
}

static inline void start_child(void)
{
	CHILD(pmix_opened, .library = "/two", .version = "5", .error = "");
	state_is(SERVER_PMIX_OPEN, "");
	if (job.nodes > 1)
		ck_assert_int_eq(send_host_map(), 0);
	begin_start();
}

static inline void ready_server(uint32_t nodes)
{
	static const char *const environment[] = { "A=1", "B=2", "C=3" };
	static const uint32_t counts[] = { 2, 1 };

	open_child(nodes);
	start_child();
	free(next_of_child());
	CHILD(pmix_ready, .environment = { environment, 3 }, .counts = { counts, 2 },
	      .error = "");
	state_is(SERVER_PMIX_READY, "");
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
