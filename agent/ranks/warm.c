#include "agent/ranks/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/ranks/procs.h"
#include "common/loop.h"

enum warm_state {
	WARM_IMPORTS, /* until it says what it has imported */
	WARM_READY,
	WARM_COLD /* it has ended, or is to end */
};

enum {
	ANSWER_BYTES = 4096, /* more without an end is no answer */
	RANK_FDS = 7         /* the text, 0, 1, 2, liveness, cgroup, PMI-1 */
};

/* A local rank that has no answer yet. */
struct warm_asked {
	size_t local;
	pid_t pid; /* of the process that has taken the request; 0: none yet */
};

struct warm_one {
	struct warm *w;
	struct str key; /* all that its ranks have in common */
	enum warm_state state;
	pid_t group;
	int fd;  /* its socket */
	int out; /* what it prints before it is warm, which it counts; or -1 */
	struct event *readable;
	struct str in;
	struct warm_asked *asked;
	size_t nasked;
	bool failed; /* to become a rank, which was said */
};

struct warm {
	struct event_base *base;
	warm_rank_done *done;
	warm_told *told;
	void *ctx;
	struct warm_one **v;
	size_t n;
};

struct warm *warm_open(struct event_base *base, warm_rank_done *done, warm_told *told,
		       void *ctx)
{
	struct warm *w = xcalloc(1, sizeof *w);

	*w = (struct warm){ .base = base, .done = done, .told = told, .ctx = ctx };
	return w;
}

/* ---- its end ---- */

static void one_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* All its processes are of one group.  Ranks have left it. */
static void one_end(struct warm_one *one)
{
	one->state = WARM_COLD;
	if (one->readable)
		event_free(one->readable);
	one->readable = NULL;
	one_close(&one->fd);
	one_close(&one->out);
	if (one->group > 0) {
		kill(-one->group, SIGKILL);
		procs_spare(one->group, false);
	}
	one->group = 0;
}

static void one_is_cold(struct warm_one *one, const char *why)
{
	struct warm_asked *asked = one->asked;
	const size_t n = one->nasked;

	one->asked = NULL;
	one->nasked = 0;
	one_end(one);
	one->w->told(one->w->ctx, false, why);
	for (size_t i = 0; i < n; i++)
		one->w->done(one->w->ctx, asked[i].local, -1, 0);
	free(asked);
}

/* ---- answers ---- */

/* "taken LOCAL PID": that process is to become the rank.  Then "LOCAL PID ERRNO", and
 * behind PID -1: " WHY". */
static void one_rank(struct warm_one *one, const char *text)
{
	unsigned long local;
	int pid, bind_errno, why = 0;

	if (sscanf(text, "taken %lu %d", &local, &pid) == 2) {
		for (size_t i = 0; i < one->nasked; i++)
			if (one->asked[i].local == local)
				one->asked[i].pid = pid;
		return;
	}
	if (sscanf(text, "%lu %d %d %n", &local, &pid, &bind_errno, &why) != 3)
		return;
	if (pid <= 0 && !one->failed) /* once: others may fail alike */
		one->w->told(one->w->ctx, false, text + why);
	one->failed |= pid <= 0;
	for (size_t i = 0; i < one->nasked; i++) {
		if (one->asked[i].local != local)
			continue;
		one->asked[i] = one->asked[--one->nasked];
		one->w->done(one->w->ctx, local, pid, bind_errno);
		return;
	}
}

/* The answers that have come whole.  The process may turn cold meanwhile. */
static void one_answers(struct warm_one *one)
{
	char bytes[1024], *end;
	ssize_t n = 0;

	while (one->fd >= 0 && (n = read(one->fd, bytes, sizeof bytes)) > 0)
		str_addn(&one->in, bytes, (size_t)n);
	n = one->fd < 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? 1 : 0;
	while (one->in.len && (end = memchr(one->in.s, '\0', one->in.len))) {
		struct str text = one->in;
		const size_t len = (size_t)(end - one->in.s) + 1;

		one->in = (struct str){ 0 };
		str_addn(&one->in, text.s + len, text.len - len);
		if (*text.s == '-') {
			one_is_cold(one, text.s + 1);
		} else if (*text.s == '+' && one->state == WARM_IMPORTS) {
			one->state = WARM_READY;
			one_close(&one->out);
			one->w->told(one->w->ctx, true, text.s + 1);
		} else {
			one_rank(one, text.s);
		}
		str_free(&text);
	}
	if (one->state != WARM_COLD && (!n || one->in.len > ANSWER_BYTES))
		one_is_cold(one, "the process that had imported its modules has ended");
}

static void one_on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	one_answers(arg);
}

void warm_answers(struct warm *w)
{
	for (size_t i = 0; w && i < w->n; i++)
		if (w->v[i]->nasked)
			one_answers(w->v[i]);
}

void warm_reaped(struct warm *w, pid_t pid)
{
	for (size_t i = 0; w && i < w->n; i++)
		for (size_t k = 0; k < w->v[i]->nasked; k++) {
			struct warm_one *one = w->v[i];
			const size_t local = one->asked[k].local;

			if (one->asked[k].pid != pid)
				continue;
			one->asked[k] = one->asked[--one->nasked];
			w->told(w->ctx, false,
				"a process ended that was to become a rank");
			w->done(w->ctx, local, -1, 0);
			return;
		}
}

/* ---- its start ---- */

static void add_entry(struct str *s, const char *text)
{
	str_addn(s, text, strlen(text) + 1);
}

void warm_add_head(struct str *s, const struct warm_head *h, int socket)
{
	str_addf(s, "HEAD = '''%d", socket);
	for (size_t i = 0; i < sizeof h->folders / sizeof *h->folders; i++)
		if (h->folders[i] && !strpbrk(h->folders[i], " \t\n\\'"))
			str_addf(s, " %s", h->folders[i]);
	for (const char *const *own = h->own; *own; own++)
		str_addf(s, " %s", *own);
	str_add(s, "'''\n");
}

/* A descriptor at the begin of TEXT, or -1. */
static int text_fd(const struct str *text)
{
	int fd = memfd_create("berth", MFD_CLOEXEC);

	if (fd >= 0 && (write(fd, text->s, text->len) != (ssize_t)text->len ||
			lseek(fd, 0, SEEK_SET)))
		one_close(&fd);
	return fd;
}

/* The pid, or -1 with E. */
static pid_t one_spawn(const struct warm_way *way, const int fd[IO_CHILD_FDS],
		       struct err *e)
{
	struct spawn s = way->s;
	struct program program = { 0 };
	struct spawn_batch *batch;
	int bind_errno;
	pid_t pid = -1;

	if (!program_find(&program, way->words, way->search, s.wdir, e) &&
	    (batch = spawn_batch_open(1, (struct cgroup_entry){ .fd = -1 }, e))) {
		s.program = &program;
		s.pmi = -1;
		memcpy(s.fd, fd, sizeof s.fd);
		spawn_batch_add(batch, &s);
		spawn_batch_wait(batch);
		pid = spawn_batch_result(batch, 0, &bind_errno, e);
		spawn_batch_free(batch);
	}
	program_free(&program);
	return pid;
}

/* 0, or -1: there is no such process. */
static int one_start(struct warm_one *one, const struct warm_way *way)
{
	int pair[2] = { -1, -1 }, out[2] = { -1, -1 }, in;
	struct str text = { 0 };
	struct err e = { 0 };

	warm_add_head(&text, &way->head, spawn_liveness_fd(way->s.limits));
	str_add(&text, way->text);
	in = text_fd(&text);
	str_free(&text);
	if (in >= 0 && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) &&
	    !pipe2(out, O_CLOEXEC))
		one->group = one_spawn(way, (int[]){ in, out[1], out[1], pair[1] }, &e);
	one_close(&in);
	one_close(&out[1]);
	one_close(&pair[1]);
	one->fd = pair[0];
	one->out = out[0];
	if (one->group <= 0) {
		one_end(one);
		return -1;
	}
	procs_spare(one->group, true);
	fcntl(one->fd, F_SETFL, O_NONBLOCK);
	one->readable = event_new(one->w->base, one->fd, EV_READ | EV_PERSIST,
				  one_on_readable, one);
	loop_watch(one->readable);
	return 0;
}

int warm_process(struct warm *w, const struct warm_way *way)
{
	struct str key = { 0 };
	struct warm_one *one;
	size_t i;

	for (i = 0; i < way->words.n; i++)
		add_entry(&key, way->words.v[i]);
	add_entry(&key, way->s.wdir);
	for (char *const *e = way->s.env; *e; e++)
		add_entry(&key, *e);
	for (i = 0; i < w->n; i++)
		if (w->v[i]->key.len == key.len &&
		    !memcmp(w->v[i]->key.s, key.s, key.len))
			break;
	if (i < w->n) {
		str_free(&key);
		return w->v[i]->state == WARM_COLD ? -1 : (int)i;
	}
	one = xcalloc(1, sizeof *one);
	*one = (struct warm_one){ .w = w, .key = key, .fd = -1, .out = -1 };
	w->v = xreallocarray(w->v, w->n + 1, sizeof *w->v);
	w->v[w->n++] = one;
	return one_start(one, way) ? -1 : (int)i;
}

/* ---- requests ---- */

static void request_text(struct str *s, size_t local, const struct spawn *spawn,
			 bool has_cgroup)
{
	const struct cpuset *cpus = spawn->cpus;
	uint64_t soft[SPAWN_LIMITS];
	const char *comma = "";

	spawn_soft_limits(spawn->limits, soft);
	str_addf(s, "%zu", local);
	str_addn(s, "", 1);
	str_addf(s, "%d", (int)getpid());
	str_addn(s, "", 1);
	str_addf(s, "%u", spawn->limits->umask);
	str_addn(s, "", 1);
	str_addf(s, "%d", spawn_liveness_fd(spawn->limits));
	str_addn(s, "", 1);
	str_addf(s, "%d", spawn->pmi < 0 ? -1 : spawn_pmi_fd(spawn->limits));
	str_addn(s, "", 1);
	str_addf(s, "%d", has_cgroup);
	str_addn(s, "", 1);
	for (int i = 0; i < SPAWN_LIMITS; i++) {
		str_addf(s, "%lld", (long long)soft[i]);
		str_addn(s, "", 1);
	}
	for (size_t i = 0; cpus && i < cpus->nwords * 64; i++)
		if (cpus->w[i / 64] >> i % 64 & 1) {
			str_addf(s, "%s%zu", comma, i);
			comma = ",";
		}
	str_addn(s, "", 1);
	add_entry(s, spawn->wdir);
	for (char *const *e = spawn->env; *e; e++)
		add_entry(s, *e);
}

/* A byte with N descriptors. */
static bool request_send(int to, const int *fd, size_t n)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(RANK_FDS * sizeof(int))];
	} control = { .head = { CMSG_LEN(n * sizeof *fd), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec part = { "r", 1 };
	struct msghdr m = { .msg_iov = &part,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = CMSG_SPACE(n * sizeof *fd) };

	memcpy(CMSG_DATA(&control.head), fd, n * sizeof *fd);
	return sendmsg(to, &m, MSG_NOSIGNAL) == 1;
}

bool warm_ask(struct warm *w, int p, size_t local, const struct spawn *s,
	      struct cgroup_entry entry)
{
	struct warm_one *one = w->v[p];
	int fd[RANK_FDS], tasks = -1;
	struct str text = { 0 };
	size_t n = 1;
	bool sent;

	if (entry.fd >= 0) /* a clone would lead into it; this process writes there */
		tasks = entry.by_clone
				? openat(entry.fd, "cgroup.procs", O_WRONLY | O_CLOEXEC)
				: dup(entry.fd);
	request_text(&text, local, s, tasks >= 0);
	fd[0] = text_fd(&text);
	str_free(&text);
	for (size_t i = 0; i < IO_CHILD_FDS; i++)
		fd[n++] = s->fd[i];
	if (tasks >= 0)
		fd[n++] = tasks;
	if (s->pmi >= 0)
		fd[n++] = s->pmi;
	sent = fd[0] >= 0 && one->state != WARM_COLD && request_send(one->fd, fd, n);
	one_close(&fd[0]);
	one_close(&tasks);
	if (sent) {
		one->asked =
			xreallocarray(one->asked, one->nasked + 1, sizeof *one->asked);
		one->asked[one->nasked++] = (struct warm_asked){ local, 0 };
	}
	return sent;
}

void warm_cancel(struct warm *w)
{
	for (size_t i = 0; w && i < w->n; i++)
		if (w->v[i]->nasked) {
			one_end(w->v[i]);
			w->v[i]->nasked = 0;
			w->v[i]->key.len = 0; /* the next epoch starts another */
		}
}

void warm_drop(struct warm *w, int p, const char *why)
{
	if (w->v[p]->state != WARM_COLD)
		one_is_cold(w->v[p], why);
}

void warm_free(struct warm *w)
{
	for (size_t i = 0; w && i < w->n; i++) {
		one_end(w->v[i]);
		str_free(&w->v[i]->key);
		str_free(&w->v[i]->in);
		free(w->v[i]->asked);
		free(w->v[i]);
	}
	if (w)
		free(w->v);
	free(w);
}
