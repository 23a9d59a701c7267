/* far.h - for tests: the launcher's end of the stream of one berth-agent.
 *
 * Starts build/bin/berth-agent (next to the test's own folder) on a socketpair, packs
 * messages by hand and keeps what comes back.  Nothing here sleeps: far_until() reads
 * until the message that is waited for has come, and fails after 40 s. */
#ifndef BERTH_TESTS_FAR_H
#define BERTH_TESTS_FAR_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/job.h"
#include "common/wire.h"
#include "tests/helpers/slow.h"

enum { FAR_RANKS = 80, FAR_WAIT_MS = 40000 };

struct far_rank {
	uint32_t pid, status, ended_pid, oom;
	uint64_t began_ns, error_printed_ns, cpu_us, peak_bytes;
	bool started, ended;
	struct str out[4];        /* [1], [2], [3] */
	size_t out_at_end;        /* bytes of stdout that came before `ended` */
	char *cpus, *text, *hint; /* read back; why it never ran */
	char *berth_cpus, *visible, *gpu;
	size_t shared;
};

struct far {
	pid_t guardian;
	int fd;
	struct buf in;
	struct far_rank rank[FAR_RANKS];
	char *address;
	uint32_t cpus, cores, gpus, port, epoch;
	uint64_t start_ns, input_credit, output_bytes, echo_ns, beats;
	size_t nended;
	bool hello, placed, ending, gone, eof;
	uint32_t unkillable;
	char *cannot_id, *cannot_text; /* of `placed` */
	uint32_t cannot_rank;
	uint64_t cpu_us, peak_bytes; /* of `cleared` */
	struct str log;              /* "ERROR|WARNING id text\nhint" lines */
	uint64_t credit_left;        /* refill automatically when set */
	bool refill;
	void (*prepare)(void); /* in the agent's process, before it is one */
};

/* What a job asks for.  {0} plus programs is a plain one. */
struct far_job {
	const char *const *argv[4]; /* one app each */
	const char *const *app_env, *const *env;
	const char *wdir, *job_id;
	size_t n; /* ranks; apps in turn */
	uint32_t flags, bind_to, visible, host_timeout, stdin_rank_plus_1, credit,
		nofile, umask, port;
	bool stdin_all;
};

static const char *const far_env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", NULL };

static void far_agent_path(char *out, size_t size)
{
	char self[PATH_MAX] = "";
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	ck_assert_int_gt(n, 0);
	snprintf(out, size, "%s/../bin/berth-agent", dirname(self));
}

/* One berth-agent with two more arguments or NULL. */
static void far_exec(struct far *f, const char *option, const char *value)
{
	char path[PATH_MAX];
	int pair[2];

	/* What guardian and agent leave behind comes to the test, which can wait for
	 * it. */
	prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
	far_agent_path(path, sizeof path);
	*f = (struct far){ .fd = -1, .prepare = f->prepare };
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	f->guardian = fork();
	if (!f->guardian) {
		dup2(pair[1], 0);
		dup2(pair[1], 1);
		if (f->prepare)
			f->prepare();
		execl(path, "berth-agent", option, value, (char *)NULL);
		_exit(99);
	}
	close(pair[1]);
	f->fd = pair[0];
}

static void far_send(struct far *f, struct buf *b)
{
	while (b->len) {
		ssize_t n = send(f->fd, buf_head(b), b->len, MSG_NOSIGNAL);

		if (n < 0)
			break; /* it is gone: the test sees the end of the stream */
		buf_drop(b, (size_t)n);
	}
	buf_free(b);
}

#define FAR_SEND(f, name, ...)                                                         \
	do {                                                                           \
		struct buf far_b = { 0 };                                              \
		struct wire_##name far_m = { __VA_ARGS__ };                            \
		wire_pack_##name(&far_b, &far_m);                                      \
		far_send((f), &far_b);                                                 \
	} while (0)

static struct far_rank *far_rank_of(struct far *f, uint32_t epoch, uint32_t rank)
{
	ck_assert_uint_eq(epoch, f->epoch);
	ck_assert_uint_lt(rank, FAR_RANKS);
	return &f->rank[rank];
}

static void far_output(struct far *f, const struct wire_output *m)
{
	struct far_rank *r = far_rank_of(f, m->epoch, m->rank);
	uint32_t cost = (uint32_t)m->data.n + WIRE_OUTPUT_HEAD_BYTES;

	ck_assert(m->stream >= 1 && m->stream <= 3);
	str_addn(&r->out[m->stream], m->data.p, m->data.n);
	f->output_bytes += m->data.n;
	ck_assert_uint_ge(f->credit_left, cost);
	f->credit_left -= cost;
	if (f->refill) {
		FAR_SEND(f, credit, f->epoch, cost);
		f->credit_left += cost;
	}
}

static void far_ended(struct far *f, const struct wire_exited *m)
{
	struct far_rank *r = far_rank_of(f, m->epoch, m->rank);

	ck_assert(!r->ended);
	r->ended = true;
	r->status = m->status;
	r->ended_pid = m->pid;
	r->began_ns = m->began_ns;
	r->error_printed_ns = m->error_printed_ns;
	r->oom = m->oom;
	r->cpu_us = m->cpu_us;
	r->peak_bytes = m->peak_bytes;
	r->text = xstrdup(m->text);
	r->hint = xstrdup(m->hint);
	r->out_at_end = r->out[1].len;
	f->nended++;
}

#define FAR_TAKE(name)                                                                 \
	struct wire_##name m;                                                          \
	struct err e = { 0 };                                                          \
	ck_assert_msg(!wire_unpack_##name(&m, w->payload, w->n, &e), "%s", e.text)

static void far_hello(struct far *f, const struct wire_frame *w)
{
	FAR_TAKE(hello);
	ck_assert_str_eq(m.version, BERTH_VERSION);
	ck_assert_uint_eq(m.wire, WIRE_VERSION);
	f->hello = true;
	f->address = xstrdup(m.address);
	f->cpus = m.cpus;
	f->cores = m.cores;
	f->gpus = m.gpus;
	f->port = m.port;
}

static void far_berth(struct far *f, const struct wire_frame *w)
{
	struct far_rank *r;

	FAR_TAKE(berth);
	r = far_rank_of(f, m.epoch, m.rank);
	r->berth_cpus = xstrdup(m.cpus);
	r->visible = xstrdup(m.visible);
	r->gpu = xstrdup(m.gpu);
	r->shared = m.shared_with.n;
	wire_free_berth(&m);
}

static void far_placed(struct far *f, const struct wire_frame *w)
{
	struct wire_placed m;

	ck_assert(!wire_unpack_placed(&m, w->payload, w->n, NULL));
	f->placed = true;
	f->cannot_id = xstrdup(m.id);
	f->cannot_text = xstrdup(m.text);
	f->cannot_rank = m.rank;
}

static void far_started(struct far *f, const struct wire_frame *w)
{
	struct far_rank *r;

	FAR_TAKE(started);
	r = far_rank_of(f, m.epoch, m.rank);
	r->started = true;
	r->pid = m.pid;
	r->cpus = xstrdup(m.cpus);
}

static void far_log(struct far *f, const struct wire_frame *w)
{
	FAR_TAKE(log);
	str_addf(&f->log, "%s %s %s\n", m.level == LOG_ERROR ? "ERROR" : "WARNING",
		 m.id, m.text);
}

static void far_gone(struct far *f, const struct wire_frame *w)
{
	FAR_TAKE(cleared);
	f->gone = true;
	f->unkillable = m.unkillable;
	f->cpu_us = m.cpu_us;
	f->peak_bytes = m.peak_bytes;
}

static void far_frame(struct far *f, const struct wire_frame *w)
{
	switch (w->type) {
	case WIRE_hello:
		far_hello(f, w);
		break;
	case WIRE_berth:
		far_berth(f, w);
		break;
	case WIRE_placed:
		far_placed(f, w);
		break;
	case WIRE_started:
		far_started(f, w);
		break;
	case WIRE_output: {
		FAR_TAKE(output);
		far_output(f, &m);
		break;
	}
	case WIRE_credit: {
		FAR_TAKE(credit);
		f->input_credit += m.bytes;
		break;
	}
	case WIRE_exited: {
		FAR_TAKE(exited);
		far_ended(f, &m);
		break;
	}
	case WIRE_stop_ack:
		f->ending = true;
		break;
	case WIRE_cleared:
		far_gone(f, w);
		break;
	case WIRE_log:
		far_log(f, w);
		break;
	case WIRE_heartbeat: {
		FAR_TAKE(heartbeat);
		f->echo_ns = m.echo_ns;
		f->beats++;
		break;
	}
	default:
		ck_abort_msg("agent sent '%s'", wire_name(w->type));
	}
}

/* Bytes from the agent: one read, waiting for it. */
static void far_read(struct far *f)
{
	struct pollfd p = { .fd = f->fd, .events = POLLIN };
	ssize_t n;

	ck_assert_msg(poll(&p, 1, (int)slow_s(FAR_WAIT_MS)) == 1,
		      "the agent says nothing; log: %s", str_text(&f->log));
	n = recv(f->fd, buf_reserve(&f->in, 65536), 65536, 0);
	if (n > 0)
		f->in.len += (size_t)n;
	else
		f->eof = true;
}

/* One frame, or the end of the stream. */
static void far_next(struct far *f)
{
	struct wire_frame w;
	struct err e = { 0 };
	long n;

	while (!(n = wire_next_from(WIRE_AGENT, &w, buf_head(&f->in), f->in.len, &e)) &&
	       !f->eof)
		far_read(f);
	ck_assert_msg(n >= 0, "%s", e.text);
	if (!n)
		return;
	far_frame(f, &w);
	buf_drop(&f->in, (size_t)n);
}

/* Read until CONDITION holds. */
#define far_until(f, condition)                                                        \
	do {                                                                           \
		while (!(condition)) {                                                 \
			ck_assert_msg(!(f)->eof, "stream ended; log: %s",              \
				      str_text(&(f)->log));                            \
			far_next(f);                                                   \
		}                                                                      \
	} while (0)

/* Everything that was sent before the answer to this has arrived. */
static void far_sync(struct far *f)
{
	uint64_t beats = f->beats;

	FAR_SEND(f, heartbeat, 7, 0);
	far_until(f, f->beats > beats);
}

static void far_open(struct far *f, const char *option, const char *value)
{
	far_exec(f, option, value);
	while (f->in.len < WIRE_MAGIC_BYTES && !f->eof)
		far_read(f);
	ck_assert(!f->eof && !memcmp(buf_head(&f->in), WIRE_MAGIC, WIRE_MAGIC_BYTES));
	buf_drop(&f->in, WIRE_MAGIC_BYTES);
	far_until(f, f->hello || f->log.len);
}

static wire_strv far_list(const char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return (wire_strv){ v, n };
}

static void far_forget_ranks(struct far *f)
{
	for (size_t i = 0; i < FAR_RANKS; i++) {
		struct far_rank *r = &f->rank[i];

		str_free(&r->out[1]);
		str_free(&r->out[2]);
		str_free(&r->out[3]);
		free(r->cpus);
		free(r->text);
		free(r->hint);
		free(r->berth_cpus);
		free(r->visible);
		free(r->gpu);
		*r = (struct far_rank){ 0 };
	}
	free(f->cannot_id);
	free(f->cannot_text);
	f->cannot_id = f->cannot_text = NULL;
	f->nended = 0;
	f->output_bytes = f->input_credit = 0;
	f->placed = f->ending = f->gone = false;
}

/* Of this process alone: somebody else may run the same test. */
static const char *far_job_id(const char *name)
{
	static char text[64];

	snprintf(text, sizeof text, "%s.%d", name, (int)getpid());
	return text;
}

/* Send a job of the next epoch; its answer is the caller's to wait for. */
static void far_job(struct far *f, const struct far_job *j)
{
	uint32_t ranks[FAR_RANKS], apps[FAR_RANKS], zero[FAR_RANKS] = { 0 },
						    one[FAR_RANKS];
	uint32_t napp = 0;
	size_t n = j->n;

	far_forget_ranks(f);
	for (; napp < 4 && j->argv[napp]; napp++)
		FAR_SEND(f, app, napp, far_list(j->argv[napp]), far_list(j->app_env),
			 j->wdir ? j->wdir : "/", { NULL, 0 }, "");
	n = n ? n : napp;
	for (uint32_t i = 0; i < n; i++) {
		ranks[i] = i;
		apps[i] = i % napp;
		one[i] = 1;
	}
	f->epoch++;
	f->credit_left = j->credit ? j->credit : 1 << 20;
	f->refill = !j->credit;
	FAR_SEND(f, job, .epoch = f->epoch,
		 .job_id = j->job_id ? far_job_id(j->job_id) : "job_id",
		 .key = { "a key of thirty-two bytes, or so", WIRE_KEY_BYTES },
		 .flags = j->flags, .np = (uint32_t)n, .nodes = 1, .host = "here",
		 .ranks = { ranks, n }, .apps = { apps, n }, .cross_ranks = { zero, n },
		 .cross_sizes = { one, n }, .master_addr = "127.0.0.1", .host_list = "",
		 .master_port = j->port ? j->port : f->port, .bind_to = j->bind_to,
		 .bind_count = 1, .gpu_visible = j->visible ? j->visible : VISIBLE_ONE,
		 .stdin_rank = j->stdin_all ? STDIN_ALL : j->stdin_rank_plus_1 - 1,
		 .umask = j->umask ? j->umask : 022,
		 .nofile = j->nofile ? j->nofile : 1024, .core = 0, .stack = ~0ull,
		 .memlock = ~0ull, .credit_bytes = (uint32_t)f->credit_left,
		 .host_timeout_ms = j->host_timeout ? j->host_timeout : 60000,
		 .env = far_list(j->env ? j->env : far_env));
}

/* The same, and start it. */
static void far_start(struct far *f, const struct far_job *j)
{
	far_job(f, j);
	far_until(f, f->placed || strstr(str_text(&f->log), "ERROR"));
	ck_assert_msg(f->placed, "%s", str_text(&f->log));
	f->start_ns = clock_ns();
	FAR_SEND(f, start, .epoch = f->epoch);
}

static inline void far_end(struct far *f, uint32_t grace_ms)
{
	FAR_SEND(f, stop, f->epoch, grace_ms);
	far_until(f, f->gone);
	ck_assert(f->ending);
}

/* Wait for the guardian; its exit status. */
static int far_reap(struct far *f)
{
	int status;

	ck_assert_int_eq(waitpid(f->guardian, &status, 0), f->guardian);
	f->guardian = 0;
	return status;
}

static void far_free(struct far *f)
{
	far_forget_ranks(f);
	if (f->fd >= 0)
		close(f->fd);
	buf_free(&f->in);
	str_free(&f->log);
	free(f->address);
	*f = (struct far){ .fd = -1 };
}

/* Say bye and see it leave with status 0. */
static void far_close(struct far *f)
{
	FAR_SEND(f, shutdown);
	while (!f->eof)
		far_next(f);
	ck_assert_int_eq(far_reap(f), 0);
	far_free(f);
}

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SH(script) ARGV("bash", "-c", script)

#endif
