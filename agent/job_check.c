/* `check`: what a start would meet on this host, found without one.
 *
 * Most rows are known at once.  The names of other hosts are looked up by a child, the
 * imports are tried by a process like a rank, and the connection to rank 0's host takes
 * its time: these are awaited in the loop. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/name_check.h"
#include "agent/placement/env.h"
#include "common/loop.h"

enum {
	GREETING = 8,      /* bytes of the job id that the listener says */
	CONNECT_MS = 5000, /* a firewall answers nothing */
	NAMES_MS = 10000,  /* nor does a name server that is gone */
	NOFILE_ENOUGH = 65536,
	SHM_MIB_ENOUGH = 128, /* more than a container's 64 MiB */
	SAID_MAX = 65536,     /* of what the imports print, the last bytes */
};

struct job_check {
	struct agent *a;
	uint32_t timeout_ms;
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

	/* the imports */
	struct strv imports; /* the command, until the names are known */
	int out;
	struct event *readable, *imports_late;
	struct str said;
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
		a->job_check->listener = a->job_check->fd = a->job_check->out = -1;
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

/* ---- imports ---- */

static void end_imports(struct job_check *c, enum check_verdict verdict,
			const char *text)
{
	check_forget(&c->readable);
	check_forget(&c->imports_late);
	if (c->out >= 0)
		close(c->out);
	c->out = -1;
	if (verdict != CHECK_SKIPPED) /* nothing of it is left */
		ranks_signal(&c->a->ranks, SIGKILL, true);
	check_say(c, CHECK_IMPORTS, verdict,
		  verdict == CHECK_FAILED ? "install what is missing there, or use an "
					    "environment that all hosts have"
					  : "",
		  "%.1000s", text);
	said_one(c);
}

static void on_imports_late(evutil_socket_t fd, short what, void *arg)
{
	struct job_check *c = arg;
	char text[64];

	(void)fd;
	(void)what;
	snprintf(text, sizeof text, "not done after %u s (--start-timeout)",
		 c->timeout_ms / 1000);
	end_imports(c, CHECK_FAILED, text);
}

/* The last line of what the process printed, which ended without an answer. */
static void end_without_answer(struct job_check *c)
{
	char *text = c->said.len ? c->said.s : "", *line;
	size_t n = strlen(text);

	while (n && text[n - 1] == '\n')
		text[--n] = '\0';
	line = strrchr(text, '\n');
	line = xasprintf("the interpreter ended without an answer%s%s", n ? ": " : "",
			 line ? line + 1 : text);
	end_imports(c, CHECK_FAILED, line);
	free(line);
}

/* The answer is between two NULs: "+" or "-", and the text.  The rest was printed by
 * modules. */
static void on_imports(evutil_socket_t fd, short what, void *arg)
{
	struct job_check *c = arg;
	char bytes[4096], *from, *to;
	ssize_t n = read(fd, bytes, sizeof bytes);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		end_without_answer(c);
		return;
	}
	if (c->said.len > SAID_MAX)
		c->said.len = 0;
	str_addn(&c->said, bytes, (size_t)n);
	from = memchr(c->said.s, '\0', c->said.len);
	to = from ? memchr(from + 1, '\0', c->said.len - (size_t)(from + 1 - c->said.s))
		  : NULL;
	if (to)
		end_imports(c, from[1] == '+' ? CHECK_OK : CHECK_FAILED,
			    from + 1 + (to > from + 1));
}

/* Run WORDS as local rank 0 would run.  0, or -1 with E. */
static int spawn_imports(struct job_check *c, wire_strv words, int out, struct err *e)
{
	struct agent *a = c->a;
	const struct app_start *app = agent_app_start(a, 0);
	const struct env_rank r = agent_env_rank(a, 0);
	const struct berth *b = &a->placement.v[0];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), bind_errno;
	char **env = env_build(&app->env, &r);
	struct spawn_batch *batch = NULL;
	struct program program = { 0 };
	int rc = program_find(&program, words, env_get(&app->env, "PATH"), r.wdir, e);

	if (!rc)
		batch = spawn_batch_open(1, a->ranks.entry, e);
	if (batch) {
		spawn_batch_add(batch,
				&(struct spawn){ .program = &program,
						 .env = env,
						 .wdir = r.wdir,
						 .cpus = b->bound ? &b->cpus : NULL,
						 .limits = &app->limits,
						 .fd = { null, out, out, null } });
		spawn_batch_wait(batch);
		rc = spawn_batch_result(batch, 0, &bind_errno, e) < 0 ? -1 : 0;
		spawn_batch_free(batch);
	}
	program_free(&program);
	free(env);
	if (null >= 0)
		close(null);
	return batch ? rc : -1;
}

static void check_imports(struct job_check *c, wire_strv words)
{
	struct err e = { 0 };
	int p[2];

	if (pipe2(p, O_CLOEXEC)) {
		end_imports(c, CHECK_FAILED, strerror(errno));
		return;
	}
	if (spawn_imports(c, words, p[1], &e)) {
		close(p[1]);
		close(p[0]);
		end_imports(c, CHECK_FAILED, e.text);
		return;
	}
	close(p[1]);
	c->out = p[0];
	fcntl(c->out, F_SETFL, O_NONBLOCK);
	c->readable =
		event_new(c->a->base, c->out, EV_READ | EV_PERSIST, on_imports, c);
	c->imports_late = event_new(c->a->base, -1, 0, on_imports_late, c);
	loop_watch(c->readable);
	loop_after_ms(c->imports_late, c->timeout_ms);
}

/* ---- names of other hosts ---- */

static void begin_imports(struct job_check *c)
{
	const struct strv words = c->imports;

	if (words.n)
		check_imports(c, (wire_strv){ (const char *const *)words.v, words.n });
}

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
	begin_imports(c);
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
	if (m->imports.n) {
		c->waits++;
		for (size_t i = 0; i < m->imports.n && startable; i++)
			strv_add(&c->imports, m->imports.v[i]);
		if (!startable)
			end_imports(c, CHECK_SKIPPED, "the program cannot run");
	}
	if (m->names.n) {
		c->waits++;
		/* the end of the imports ends all children, so they begin later */
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
	if (!c->names) {
		begin_imports(c);
	}
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
	check_forget(&c->readable);
	check_forget(&c->imports_late);
	if (c->own_listener && c->listener >= 0)
		close(c->listener);
	if (c->out >= 0)
		close(c->out);
	if (c->all)
		freeaddrinfo(c->all);
	name_check_free(c->names);
	strv_free(&c->imports);
	free(c->master);
	str_free(&c->said);
	free(c);
	a->job_check = NULL;
}
