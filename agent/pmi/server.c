#include "agent/pmi/server_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/job.h"
#include "common/loop.h"

_Static_assert((int)BOOT_KEY_BYTES == (int)WIRE_KEY_BYTES &&
		       (int)BOOT_TEXT_BYTES == (int)WIRE_TEXT_MAX,
	       "boot.def and wire.h differ");

enum {
	CLIENTS_EACH = 4,
	CLIENTS_MORE = 16,
	ACCEPT_MOST = 64, /* in one turn of the loop */
	AGAIN_MS = 20
};

static void server_again(struct server *s)
{
	if (!event_pending(s->again, EV_TIMEOUT, NULL))
		loop_after_ms(s->again, AGAIN_MS);
}

/* At the end of a turn of the loop: free what is over. */
static void server_settle(struct server *s)
{
	struct client **at = &s->client;

	while (*at) {
		struct client *c = *at;

		if (c->fd >= 0) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
	if (init_rounds_settle(s))
		server_again(s);
}

static void server_on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct client *c = arg;
	struct server *s = c->s;

	(void)fd;
	(void)what;
	init_round_read(c);
	server_settle(s);
}

static void server_on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	client_flush(arg);
}

/* Takes over FD.  If there are too many connections, the oldest one whose rank is not
 * known yet is closed. */
static void add_client(struct server *s, int fd)
{
	const size_t most = CLIENTS_EACH * s->job->ranks.n + CLIENTS_MORE;
	struct client *c, *oldest = NULL;
	struct ucred who;
	socklen_t n = sizeof who;
	bool ours = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) &&
		    who.uid == geteuid();

	for (c = s->client; c && ours && s->nclients >= most; c = c->next)
		if (c->fd >= 0 && !c->is_known)
			oldest = c; /* the newest come first */
	if (oldest)
		client_close(oldest);
	if (!ours || s->nclients >= most) {
		close(fd);
		return;
	}
	c = xcalloc(1, sizeof *c);
	*c = (struct client){ .s = s, .fd = fd, .pid = who.pid, .next = s->client };
	c->readable =
		event_new(s->base, fd, EV_READ | EV_PERSIST, server_on_readable, c);
	c->writable = event_new(s->base, fd, EV_WRITE, server_on_writable, c);
	loop_watch(c->readable);
	s->client = c;
	s->nclients++;
	init_round_read(c); /* its first frame has often come already */
}

static void server_on_acceptable(evutil_socket_t listener, short what, void *arg)
{
	struct server *s = arg;

	(void)what;
	for (int i = 0; i < ACCEPT_MOST; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			add_client(s, fd);
			server_settle(s);
		} else if (errno == EAGAIN) {
			break;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			event_del(s->acceptable); /* no descriptor, no memory */
			server_again(s);
			break;
		}
	}
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;

	(void)fd;
	(void)what;
	loop_watch(s->acceptable);
	server_settle(s);
}

/* A look at the mutexes of ranks. */
static void server_on_dying(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;
	bool watched = false, may_die = false;

	(void)fd;
	(void)what;
	for (uint32_t i = 0; i < s->job->ranks.n; i++) {
		struct member *m = &s->member[i];

		if (dying_look(m)) {
			dying_forget(m);
			init_round_dies(s, i);
		}
		watched |= m->alive != NULL;
		may_die |= m->may_die;
	}
	if (watched)
		loop_after_ms(s->dying, may_die ? DYING_AGAIN_MS : DYING_LOOK_MS);
	server_settle(s);
}

/* ---- from outside ---- */

/* An abstract socket with a random name. */
static int listen_on(char *name, size_t size)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	unsigned char random[16];
	char hex[2 * sizeof random + 1];
	int fd, n;

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -1;
	str_hex(hex, random, sizeof random);
	n = snprintf(name, size, "@berth-%s", hex);
	memcpy(a.sun_path + 1, name + 1, (size_t)n - 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 &&
	    !bind(fd, (const struct sockaddr *)&a,
		  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)) &&
	    !listen(fd, SOMAXCONN))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

struct server *server_open(struct event_base *base, struct buf *out,
			   const struct wire_job *job)
{
	struct server *s = xcalloc(1, sizeof *s);

	*s = (struct server){ .base = base, .out = out, .job = job, .listener = -1 };
	if (job->nodes > 1 || job->ranks.n == job->np)
		s->listener = listen_on(s->name, sizeof s->name);
	if (s->listener < 0) {
		free(s);
		return NULL;
	}
	s->member = xcalloc(job->ranks.n, sizeof *s->member);
	if (job->nodes == 1)
		host_map_alone(s);
	if (job->flags & JOB_PMI1)
		s->pmi1 = pmi1_open(s);
	if (job->flags & JOB_PMIX)
		s->pmix = pmix_new(s);
	s->acceptable = event_new(base, s->listener, EV_READ | EV_PERSIST,
				  server_on_acceptable, s);
	s->again = event_new(base, -1, 0, on_again, s);
	s->dying = event_new(base, -1, 0, server_on_dying, s);
	loop_watch(s->acceptable);
	return s;
}

void server_free(struct server *s)
{
	if (!s)
		return;
	for (struct client *c = s->client; c; c = c->next)
		client_close(c);
	server_settle(s);
	init_rounds_free(s);
	pmi1_free(s->pmi1);
	pmix_free(s->pmix);
	mpi_ends_free(s);
	host_map_free(s);
	event_free(s->acceptable);
	event_free(s->again);
	event_free(s->dying);
	close(s->listener);
	free(s);
}

const char *server_name(const struct server *s)
{
	return s ? s->name : NULL;
}

int server_pmi1(struct server *s, size_t local, int *fd, struct err *e)
{
	*fd = -1;
	if (!s || !s->pmi1 || !pmi1_connect(s->pmi1, (uint32_t)local, fd))
		return 0;
	return err_set(e, E_SYSTEM, "socketpair", strerror(errno));
}

const char *server_ended(struct server *s, size_t local, bool failed)
{
	const char *why, *why_pmix;

	if (!s)
		return NULL;
	init_round_ended(s, (uint32_t)local, failed);
	why = pmi1_ended(s->pmi1, (uint32_t)local);
	why_pmix = pmix_ended(s->pmix, local);
	server_settle(s);
	return why ? why : why_pmix;
}

bool server_idle(const struct server *s, size_t local)
{
	return s && s->member[local].init_round && !s->member[local].has_worked;
}

pid_t server_tell_ops(struct server *s, size_t local)
{
	if (!s)
		return 0;
	op_records_tell(s, (uint32_t)local);
	return op_records_pid(s, (uint32_t)local);
}

void server_another_life(struct server *s, size_t local, bool joins)
{
	struct member *m = s ? &s->member[local] : NULL;

	if (!m)
		return;
	m->ended = false;
	m->joins = joins;
	m->dies = m->has_worked = false;
	m->round = NULL;
}

void server_give(struct server *s, uint32_t given)
{
	if (!s || given & MPI_GIVE_PMI1)
		return;
	pmi1_free(s->pmi1);
	s->pmi1 = NULL;
}

static int take_host_map(struct server *s, const struct wire_host_map *m, struct err *e)
{
	const bool again = s->app; /* ranks have come, on other hosts */

	if (host_map_take(s, m, e))
		return -1;
	init_round_host_map(s);
	if (!again)
		pmi1_host_map(s->pmi1);
	return 0;
}

static int take_data(struct server *s, const struct wire_exchange_data *m,
		     struct err *e)
{
	if (m->use == EXCHANGE_PMI1)
		return pmi1_data(s->pmi1, m, e);
	return m->use < EXCHANGE_PMIX_FENCE ? init_round_fence_data(s, m, e)
	       : s->pmix                    ? pmix_data(s->pmix, m, e)
					    : 0;
}

#define TAKE(name, call) WIRE_TAKE(name, if (s && m.epoch == s->job->epoch) call)

int server_frame(struct server *s, const struct wire_frame *f, struct err *e)
{
	int rc = 0;

	switch (f->type) {
		TAKE(host_map, rc = take_host_map(s, &m, e))
		TAKE(exchange_data, rc = take_data(s, &m, e))
		TAKE(exchange_failed,
		     (pmi1_failed(s->pmi1, &m), pmix_exchange_failed(s->pmix, &m)))
		TAKE(modex_request, pmix_modex_request(s->pmix, &m))
		TAKE(modex_data, pmix_pass_down(s->pmix, f))
		TAKE(found, if (!pmi1_found(s->pmi1, &m)) pmix_pass_down(s->pmix, f))
		TAKE(event, pmix_pass_down(s->pmix, f))
		TAKE(world, next_world_begin(s, &m))
		TAKE(wanted, next_world_wanted(s))
		TAKE(lost, init_round_lost(s, &m))
		TAKE(query, op_records_query(s))
		TAKE(missing, op_records_missing(s, &m))
	default:
		break;
	}
	if (s)
		server_settle(s);
	return rc;
}
