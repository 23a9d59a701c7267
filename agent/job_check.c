/* `check`: what a start would meet on this host, found without one.
 *
 * Most rows are known at once.  The names of other hosts are looked up by a child, the
 * imports are tried by a process like a rank, another one asks NCCL, and the connection
 * to rank 0's host takes its time: these are awaited in the loop. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/name_check.h"
#include "agent/nccl_check.h"
#include "agent/placement/env.h"
#include "common/loop.h"

enum {
	GREETING = 8,      /* bytes of the job id that the listener says */
	CONNECT_MS = 5000, /* a firewall answers nothing */
	NAMES_MS = 10000,  /* nor does a name server that is gone */
	NOFILE_ENOUGH = 65536,
	SHM_MIB_ENOUGH = 128, /* more than a container's 64 MiB */
	NCCL_MS = 100,        /* the least that it gets */
};

struct job_check {
	struct agent *a;
	uint32_t timeout_ms;
	uint64_t until_ms;
	size_t waits; /* rows that are not known yet */

	int listener;
	bool own_listener;
	int listen_errno;
	struct event *acceptable;

	/* the connection to MASTER_ADDR:MASTER_PORT */
	char *master;
	struct addrinfo *all, *next;
	int fd;
	int error; /* of the last address */
	struct event *connected, *connect_late;
	char greeting[GREETING];
	size_t greeted;

	struct name_check *names;

	struct strv command; /* of the imports, until the names are known; or empty */
	bool has_nccl;       /* ranks here get GPUs of NVIDIA */
	bool has_warm;       /* --warm, and a Python program */
	char *nccl_file;     /* that the program loads, or NULL */
	struct trial *imports, *warm, *nccl;
};

static void check_say(struct job_check *c, enum check_row row,
		      enum check_verdict verdict, const char *hint, const char *format,
		      ...) __attribute__((format(printf, 5, 6)));

static void check_say(struct job_check *c, enum check_row row,
		      enum check_verdict verdict, const char *hint, const char *format,
		      ...)
{
	struct wire_check_result m = { c->a->job->epoch, row, verdict, NULL, hint };
	va_list ap;
	char *text;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	m.text = text;
	wire_pack_check_result(&c->a->stream.out, &m);
	free(text);
}

static void said_one(struct job_check *c)
{
	struct wire_check_done m = { .epoch = c->a->job->epoch };
	struct timespec real;

	if (--c->waits)
		return;
	clock_gettime(CLOCK_REALTIME, &real);
	m.realtime_ns = (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec -
			clock_ns();
	wire_pack_check_done(&c->a->stream.out, &m);
}

static void check_forget(struct event **e)
{
	if (*e)
		event_free(*e);
	*e = NULL;
}

/* ---- MASTER_ADDR and MASTER_PORT ---- */

/* The value of NAME that local rank 0 gets. */
static char *rank_value(struct agent *a, const char *name)
{
	const struct env_rank r = agent_env_rank(a, 0);
	char **env = env_build(&agent_app_start(a, 0)->env, &r), *value = NULL;
	const size_t n = strlen(name);

	for (char **e = env; *e; e++)
		if (!strncmp(*e, name, n) && (*e)[n] == '=')
			value = xstrdup(*e + n + 1);
	free(env);
	return value ? value : xstrdup("");
}

static struct job_check *check_of(struct agent *a)
{
	if (!a->job_check) {
		a->job_check = xcalloc(1, sizeof *a->job_check);
		a->job_check->a = a;
		a->job_check->listener = a->job_check->fd = -1;
	}
	return a->job_check;
}

static void check_on_acceptable(evutil_socket_t listener, short what, void *arg)
{
	struct job_check *c = arg;
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)what;
	if (fd < 0)
		return;
	if (send(fd, c->a->job->job_id, strnlen(c->a->job->job_id, GREETING),
		 MSG_NOSIGNAL) < 0)
		c->listen_errno = errno;
	close(fd);
}

/* A socket of our own at PORT, which the user chose with -x. */
static int bind_port(const char *port)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM,
					.ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	struct addrinfo *all = NULL;
	int fd = -1, on = 1, off = 0;

	errno = EINVAL;
	if (getaddrinfo(NULL, port, &hints, &all))
		return -1;
	for (struct addrinfo *i = all; i && fd < 0; i = i->ai_next) {
		fd = socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		if (i->ai_family == AF_INET6)
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
		if (bind(fd, i->ai_addr, i->ai_addrlen)) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(all);
	return fd;
}

void agent_listen(struct agent *a)
{
	struct job_check *c = check_of(a);
	char *port = rank_value(a, "MASTER_PORT"), own[16];

	snprintf(own, sizeof own, "%u", a->port.number);
	c->own_listener = strcmp(port, own) != 0;
	c->listener = c->own_listener ? bind_port(port) : a->port.fd;
	free(port);
	if (c->listener < 0 || listen(c->listener, SOMAXCONN)) {
		c->listen_errno = errno;
		return;
	}
	fcntl(c->listener, F_SETFL, O_NONBLOCK);
	c->acceptable = event_new(a->base, c->listener, EV_READ | EV_PERSIST,
				  check_on_acceptable, c);
	loop_watch(c->acceptable);
}

static void connect_next(struct job_check *c);

static void close_connection(struct job_check *c)
{
	check_forget(&c->connected);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static void end_connection(struct job_check *c, enum check_verdict verdict,
			   const char *why)
{
	static const char hint[] = "open this port in the firewalls between the hosts, "
				   "or name another address with -x MASTER_ADDR";

	close_connection(c);
	check_forget(&c->connect_late);
	check_say(c, CHECK_MASTER, verdict, verdict == CHECK_OK ? "" : hint, "%s%s%s",
		  c->master, *why ? ": " : "", why);
	said_one(c);
}

static void on_connect_late(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	end_connection(arg, CHECK_FAILED, "no answer");
}

/* Connected, or not; then the greeting of rank 0's agent. */
static void on_connection(evutil_socket_t fd, short what, void *arg)
{
	struct job_check *c = arg;
	ssize_t n = recv(fd, c->greeting + c->greeted, GREETING - c->greeted, 0);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		c->greeted += (size_t)n;
		if (c->greeted == GREETING)
			end_connection(c,
				       memcmp(c->greeting, c->a->job->job_id, GREETING)
					       ? CHECK_FAILED
					       : CHECK_OK,
				       memcmp(c->greeting, c->a->job->job_id, GREETING)
					       ? "another program answers"
					       : "");
		return;
	}
	if (n < 0) {
		c->error = errno;
		close_connection(c);
		connect_next(c);
		return;
	}
	end_connection(c, CHECK_FAILED, "another program answers");
}

static void connect_next(struct job_check *c)
{
	for (; c->next; c->next = c->next->ai_next) {
		const struct addrinfo *i = c->next;

		c->fd = socket(i->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			       0);
		if (c->fd < 0)
			continue;
		if (!connect(c->fd, i->ai_addr, i->ai_addrlen) ||
		    errno == EINPROGRESS) {
			c->connected =
				event_new(c->a->base, c->fd, EV_READ | EV_PERSIST,
					  on_connection, c);
			loop_watch(c->connected);
			c->next = c->next->ai_next;
			return;
		}
		c->error = errno;
		close(c->fd);
		c->fd = -1;
	}
	end_connection(c, CHECK_FAILED, strerror(c->error));
}

static void check_master(struct job_check *c)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM };
	char *host = rank_value(c->a, "MASTER_ADDR");
	char *port = rank_value(c->a, "MASTER_PORT");
	int error;

	c->master = xasprintf(strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	c->connect_late = event_new(c->a->base, -1, 0, on_connect_late, c);
	error = getaddrinfo(host, port, &hints, &c->all);
	free(host);
	free(port);
	if (c->listen_errno) {
		end_connection(c, CHECK_FAILED, strerror(c->listen_errno));
	} else if (error) {
		end_connection(c, CHECK_FAILED, gai_strerror(error));
	} else {
		loop_after_ms(c->connect_late,
			      c->timeout_ms < CONNECT_MS ? c->timeout_ms : CONNECT_MS);
		c->next = c->all;
		connect_next(c);
	}
}

/* ---- imports and NCCL ---- */

static uint32_t time_left_ms(const struct job_check *c)
{
	const uint64_t now_ms = clock_ms();

	return c->until_ms > now_ms ? (uint32_t)(c->until_ms - now_ms) : 0;
}

static void end_nccl(void *ctx, enum trial_end end, const char *text)
{
	struct job_check *c = ctx;
	struct str s = { 0 };
	const char *hint;
	const enum check_verdict verdict = nccl_check_read(&s, &hint, end, text);

	check_say(c, CHECK_NCCL, verdict, hint, "%.1000s", str_text(&s));
	str_free(&s);
	said_one(c);
}

static void begin_nccl(struct job_check *c)
{
	const char *file = c->nccl_file ? c->nccl_file : "";
	const char *const words[] = { "/proc/self/exe", "--nccl", file };
	const uint32_t left_ms = time_left_ms(c);
	struct err e = { 0 };

	if (!c->has_nccl)
		return;
	if (*file && access(file, R_OK))
		snprintf(e.text, sizeof e.text,
			 "the program loads '%.500s', which only its container has",
			 file);
	else if (left_ms < NCCL_MS)
		snprintf(e.text, sizeof e.text, "no time is left (--start-timeout)");
	else
		c->nccl = trial_start(c->a, (wire_strv){ words, 3 }, left_ms, end_nccl,
				      c, &e);
	if (c->nccl)
		return;
	check_say(c, CHECK_NCCL, CHECK_SKIPPED, "", "%s", e.text);
	said_one(c);
}

static void end_warm(void *ctx, enum trial_end end, const char *text)
{
	struct job_check *c = ctx;
	const bool answered = end == TRIAL_ANSWERED && *text;

	if (answered)
		check_say(c, CHECK_WARM, *text == '+' ? CHECK_OK : CHECK_WARNED,
			  *text == '+' ? "" : "--warm has no effect there", "%.1000s",
			  text + 1);
	else
		check_say(c, CHECK_WARM, CHECK_WARNED, "--warm has no effect there",
			  "the interpreter ended without an answer");
	said_one(c);
	begin_nccl(c);
}

/* Ask what --warm would import for the first app here. */
static void begin_warm(struct job_check *c)
{
	const struct wire_app *app = &c->a->app[c->a->job->apps.v[0]];
	const struct env_rank r = agent_env_rank(c->a, 0);
	const struct warm_head head = { env_own_names(), { r.horovod, r.python } };
	struct str text = { 0 };
	struct strv words = { 0 };
	struct err e = { 0 };

	warm_add_head(&text, &head, -1);
	str_add(&text, app->warm_text);
	for (size_t i = 0; i < app->warm.n; i++)
		strv_add(&words, i && !strcmp(app->warm.v[i - 1], "-c")
					 ? str_text(&text)
					 : app->warm.v[i]);
	c->warm =
		trial_start(c->a, (wire_strv){ (const char *const *)words.v, words.n },
			    time_left_ms(c), end_warm, c, &e);
	if (!c->warm) {
		check_say(c, CHECK_WARM, CHECK_SKIPPED, "", "%s", e.text);
		said_one(c);
		begin_nccl(c);
	}
	strv_free(&words);
	str_free(&text);
}

static void after_imports(struct job_check *c)
{
	if (c->has_warm)
		begin_warm(c);
	else
		begin_nccl(c);
}

static void say_imports(struct job_check *c, enum check_verdict verdict,
			const char *text)
{
	check_say(c, CHECK_IMPORTS, verdict,
		  verdict == CHECK_FAILED ? "install what is missing there, or use an "
					    "environment that all hosts have"
					  : "",
		  "%.1000s", text);
	said_one(c);
}

/* The answer is the file of an NCCL that the program loads, a line, "+" or "-", and the
 * text. */
static void end_imports(void *ctx, enum trial_end end, const char *text)
{
	struct job_check *c = ctx;
	const char *answer = end == TRIAL_ANSWERED ? strchr(text, '\n') : NULL;
	struct str s = { 0 };

	if (answer && answer[1])
		str_add(&s, answer + 2);
	else if (end == TRIAL_LATE)
		str_addf(&s, "not done after %u s (--start-timeout)",
			 c->timeout_ms / 1000);
	else
		str_addf(&s, "the interpreter ended without an answer%s%s",
			 *text ? ": " : "", text);
	say_imports(c, answer && answer[1] == '+' ? CHECK_OK : CHECK_FAILED,
		    str_text(&s));
	c->nccl_file = xstrndup(text, answer ? (size_t)(answer - text) : 0);
	str_free(&s);
	after_imports(c);
}

/* One after the other: the end of a trial ends all children. */
static void begin_trials(struct job_check *c)
{
	const wire_strv words = { (const char *const *)c->command.v, c->command.n };
	struct err e = { 0 };

	if (words.n)
		c->imports =
			trial_start(c->a, words, time_left_ms(c), end_imports, c, &e);
	if (words.n && !c->imports)
		say_imports(c, CHECK_FAILED, e.text);
	if (!c->imports)
		after_imports(c);
}

/* ---- names of other hosts ---- */

static void end_names(void *arg, bool good, const char *text)
{
	static const char hint[] =
		"Berth gives ranks addresses; if the program uses names between hosts, "
		"as with Open MPI or a name in MASTER_ADDR, add them to DNS or to "
		"/etc/hosts there";
	struct job_check *c = arg;

	check_say(c, CHECK_NAMES, good ? CHECK_OK : CHECK_WARNED, good ? "" : hint,
		  "%s", text);
	said_one(c);
	begin_trials(c);
}

/* ---- what is known at once ---- */

/* wdir and program of each app here.  Returns whether local rank 0 could start. */
static bool check_programs(struct job_check *c)
{
	struct agent *a = c->a;
	bool *said = xcalloc(a->napp, sizeof *said);

	for (uint32_t i = 0; i < a->placement.n; i++) {
		const uint32_t index = a->job->apps.v[i];
		const struct app_start *app = agent_app_start(a, i);
		const enum err_id id = app->err.id;

		if (said[index])
			continue;
		said[index] = true;
		check_say(c, CHECK_WDIR, id == E_WDIR ? CHECK_FAILED : CHECK_OK,
			  id == E_WDIR ? app->err.hint : "", "%s",
			  id == E_WDIR ? app->err.text : a->app[index].wdir);
		if (id == E_WDIR)
			continue;
		check_say(c, CHECK_PROGRAM, id ? CHECK_FAILED : CHECK_OK,
			  id ? app->err.hint : "", "%s",
			  id ? app->err.text : app->program.path);
	}
	free(said);
	return agent_app_start(a, 0)->err.id == ERR_NONE;
}

/* The MPI of the first rank's program, and the libpmix of its host's server. */
static void check_mpi(struct job_check *c)
{
	struct agent *a = c->a;
	char *program = agent_program_path(a, a->job->apps.v[0]);
	struct str path = { 0 }, s = { 0 };
	const char *name = mpi_name(program, &path), *library, *why, *version;

	if (name)
		str_addf(&s, "%s%s%s%s", name, path.len ? " (" : "", str_text(&path),
			 path.len ? ")" : "");
	version = server_pmix_version(a->ranks.server, &library);
	server_pmix(a->ranks.server, &why);
	if (*version)
		str_addf(&s, "%s%.*s (%s)", s.len ? ", " : "",
			 (int)(strstr(version, " (") ? strcspn(version, "(") - 1
						     : strlen(version)),
			 version, library);
	else if (*why)
		str_addf(&s, "%sPMI-1 alone: %s", s.len ? ", " : "", why);
	if (a->mpi_need == MPI_NEED_NONE || !s.len)
		check_say(c, CHECK_MPI, CHECK_SKIPPED, "", "%s",
			  a->mpi ? "the program uses none" : "--mpi=none");
	else
		check_say(c, CHECK_MPI, CHECK_OK, "", "%s", str_text(&s));
	str_free(&path);
	str_free(&s);
	free(program);
}

static void check_gpus(struct job_check *c)
{
	const struct gpus *g = &c->a->gpus;
	char driver[64] = "";
	struct str s = { 0 };

	if (!g->n)
		str_add(&s, "none");
	for (size_t i = 0, same; i < g->n; i += same) {
		for (same = 1;
		     i + same < g->n && !strcmp(g->v[i].model, g->v[i + same].model);)
			same++;
		str_addf(&s, "%s%zu %s", i ? ", " : "", same,
			 *g->v[i].model ? g->v[i].model : "GPUs");
	}
	if (gpu_driver(driver, sizeof driver, ""))
		str_addf(&s, ", driver %s", driver);
	check_say(c, CHECK_GPUS, CHECK_OK, "", "%s", str_text(&s));
	str_free(&s);
}

/* The soft limit that ranks get, of which the user has HERE; ENOUGH is not too low. */
static void check_limit(struct job_check *c, enum check_row row, int what,
			uint64_t here, uint64_t enough)
{
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };
	char text[2][32];
	uint64_t v[2];
	bool low;

	getrlimit((__rlimit_resource_t)what, &l);
	v[0] = l.rlim_max < here ? l.rlim_max : here;
	v[1] = here;
	low = v[0] < here && v[0] < enough;
	for (int i = 0; i < 2; i++)
		if (v[i] == RLIM_INFINITY)
			snprintf(text[i], sizeof text[i], "unlimited");
		else if (row == CHECK_MEMLOCK)
			snprintf(text[i], sizeof text[i], "%ju KiB",
				 (uintmax_t)v[i] / 1024);
		else
			snprintf(text[i], sizeof text[i], "%ju", (uintmax_t)v[i]);
	check_say(c, row, low ? CHECK_FAILED : CHECK_OK,
		  low ? "raise it in /etc/security/limits.conf there" : "", "%s%s%s",
		  text[0], low ? ", but at runner " : "", low ? text[1] : "");
}

/* /dev/shm, in which NCCL and PyTorch's DataLoader share memory: a container has 64 MiB
 * there unless it is told otherwise. */
static void check_shm(struct job_check *c)
{
	struct statvfs v;
	uint64_t mib;

	if (statvfs("/dev/shm", &v)) {
		check_say(c, CHECK_SHM, CHECK_FAILED, "mount a tmpfs at /dev/shm there",
			  "no /dev/shm: %s", strerror(errno));
		return;
	}
	mib = (uint64_t)v.f_blocks * v.f_frsize >> 20;
	if (mib < SHM_MIB_ENOUGH)
		check_say(c, CHECK_SHM, CHECK_FAILED,
			  "make /dev/shm larger there; of a container: --shm-size",
			  "/dev/shm has %ju MiB", (uintmax_t)mib);
	else
		check_say(c, CHECK_SHM, CHECK_OK, "", "%ju MiB", (uintmax_t)mib);
}

void agent_check(struct agent *a, const struct wire_check *m)
{
	struct job_check *c;
	bool startable;

	if (a->state != START_PLACED || a->ranks.phase != RANKS_RUN || a->xml)
		return;
	agent_event(a, START_EV_CHECK);
	c = check_of(a);
	c->timeout_ms = m->timeout_ms;
	c->until_ms = clock_ms() + m->timeout_ms;
	c->waits = 1;
	startable = check_programs(c);
	if (startable)
		check_mpi(c);
	check_gpus(c);
	check_limit(c, CHECK_NOFILE, RLIMIT_NOFILE, a->job->nofile, NOFILE_ENOUGH);
	check_limit(c, CHECK_MEMLOCK, RLIMIT_MEMLOCK, a->job->memlock, UINT64_MAX);
	check_shm(c);
	if (m->connect) {
		c->waits++;
		check_master(c);
	}
	for (size_t i = 0; i < a->placement.n && startable; i++) {
		const int gpu = a->placement.v[i].gpu;

		c->has_nccl |= gpu >= 0 && a->chosen.v[gpu].vendor == GPU_NVIDIA;
	}
	c->has_warm = startable && a->app[a->job->apps.v[0]].warm.n > 0;
	c->waits += c->has_nccl + c->has_warm;
	if (m->imports.n) {
		c->waits++;
		for (size_t i = 0; i < m->imports.n && startable; i++)
			strv_add(&c->command, m->imports.v[i]);
		if (!startable)
			say_imports(c, CHECK_SKIPPED, "the program cannot run");
	}
	if (m->names.n) {
		c->waits++;
		/* the end of a trial ends all children, so they begin later */
		c->names = name_check_start(a->base, m->names.v, m->names.n,
					    c->timeout_ms < NAMES_MS ? c->timeout_ms
								     : NAMES_MS,
					    end_names, c);
		if (!c->names) {
			check_say(c, CHECK_NAMES, CHECK_SKIPPED, "", "%s",
				  strerror(errno));
			said_one(c);
		}
	}
	if (!c->names)
		begin_trials(c);
	said_one(c);
}

void agent_check_free(struct agent *a)
{
	struct job_check *c = a->job_check;

	if (!c)
		return;
	close_connection(c);
	check_forget(&c->acceptable);
	check_forget(&c->connect_late);
	if (c->own_listener && c->listener >= 0)
		close(c->listener);
	if (c->all)
		freeaddrinfo(c->all);
	name_check_free(c->names);
	trial_free(c->imports);
	trial_free(c->warm);
	trial_free(c->nccl);
	free(c->nccl_file);
	strv_free(&c->command);
	free(c->master);
	free(c);
	a->job_check = NULL;
}
