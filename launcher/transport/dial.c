#include "launcher/transport/dial.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/transport/lookup.h"

enum { NEXT_ADDRESS_MS = 250, TRIES_MAX = 8 };

/* A look-up is owned by its thread and its dial; the second to let go frees it. */
struct lookup {
	atomic_int owners;
	char *name;
	char port[8];
	int family, error; /* of getaddrinfo */
	struct addrinfo *found;
	int done; /* pipe end: closed when the answer is there */
};

struct dial {
	struct event_base *base;
	struct sockaddr_storage addr[TRIES_MAX];
	int fd[TRIES_MAX];
	struct event *tried[TRIES_MAX], *timer, *looked;
	size_t n, next; /* addresses; the first one not tried yet */
	size_t open;    /* tries under way */
	int port, family, error;
	int answer; /* pipe end of the look-up, or -1 */
	struct lookup *lookup;
	void (*ended)(void *ctx, const struct dial_end *end);
	void *ctx;
};

/* ---- names ---- */

static void lookup_drop(struct lookup *l)
{
	if (atomic_fetch_sub(&l->owners, 1) > 1)
		return;
	if (l->found)
		freeaddrinfo(l->found);
	free(l->name);
	free(l);
}

static void *lookup_run(void *arg)
{
	struct lookup *l = arg;
	struct addrinfo want = { .ai_family = l->family, .ai_socktype = SOCK_STREAM };

	l->error = getaddrinfo(l->name, l->port, &want, &l->found);
	close(l->done);
	lookup_drop(l);
	return NULL;
}

static void end_dial(struct dial *d, const struct dial_end *end)
{
	void (*ended)(void *ctx, const struct dial_end *e) = d->ended;
	void *ctx = d->ctx;

	dial_cancel(d);
	ended(ctx, end);
}

static void add_address(struct dial *d, const struct sockaddr *sa, socklen_t len)
{
	struct sockaddr_storage *to = &d->addr[d->n];

	if (d->n == TRIES_MAX ||
	    (sa->sa_family != AF_INET && sa->sa_family != AF_INET6) ||
	    (d->family != AF_UNSPEC && sa->sa_family != d->family))
		return;
	memcpy(to, sa, len);
	if (sa->sa_family == AF_INET)
		((struct sockaddr_in *)to)->sin_port = htons((uint16_t)d->port);
	else
		((struct sockaddr_in6 *)to)->sin6_port = htons((uint16_t)d->port);
	d->n++;
}

static void try_next(evutil_socket_t fd, short what, void *ctx);

static void on_looked(evutil_socket_t fd, short what, void *ctx)
{
	struct dial *d = ctx;
	const int error = d->lookup->error;

	(void)fd;
	(void)what;
	if (error) {
		/* a pod's name appears when the pod does: in Kubernetes "not found" is
		 * "not yet" */
		bool soon = error == EAI_AGAIN || getenv("KUBERNETES_SERVICE_HOST");

		end_dial(d, &(struct dial_end){ .fd = -1,
						.text = gai_strerror(error),
						.no_address = true,
						.again = soon });
		return;
	}
	for (struct addrinfo *a = d->lookup->found; a; a = a->ai_next)
		add_address(d, a->ai_addr, a->ai_addrlen);
	try_next(-1, 0, d);
}

static void start_lookup(struct dial *d, const char *name)
{
	struct lookup *l = xcalloc(1, sizeof *l);
	pthread_attr_t attr;
	pthread_t thread;
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		fd[0] = fd[1] = -1;
	atomic_init(&l->owners, 2);
	l->name = xstrdup(name);
	l->family = d->family;
	l->done = fd[1];
	snprintf(l->port, sizeof l->port, "%d", d->port);
	d->lookup = l;
	d->answer = fd[0];
	d->looked = event_new(d->base, fd[0], EV_READ, on_looked, d);
	loop_watch(d->looked);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (fd[0] < 0 || pthread_create(&thread, &attr, lookup_run, l)) {
		lookup_run(l); /* no thread to be had: better late than not at all */
		event_active(d->looked, EV_READ, 0);
	}
	pthread_attr_destroy(&attr);
}

/* ---- connecting ---- */

void dial_tune(int fd)
{
	const int on = 1, idle_s = 30;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	/* only to keep middle boxes awake: heartbeats decide when a host is lost */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
}

static void close_try(struct dial *d, size_t i)
{
	if (d->tried[i])
		event_free(d->tried[i]);
	if (d->fd[i] >= 0)
		close(d->fd[i]);
	d->tried[i] = NULL;
	d->fd[i] = -1;
}

static bool passes(int error)
{
	return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH ||
	       error == ENETUNREACH || error == ETIMEDOUT || error == EAGAIN;
}

static void on_tried(evutil_socket_t fd, short what, void *ctx)
{
	struct dial *d = ctx;
	socklen_t len = sizeof d->error;
	int error = EIO;
	size_t i = 0;

	(void)what;
	while (d->fd[i] != fd)
		i++;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	if (!error) {
		d->fd[i] = -1; /* now the caller's */
		dial_tune(fd);
		end_dial(d, &(struct dial_end){ .fd = fd });
		return;
	}
	d->error = error;
	d->open--;
	close_try(d, i);
	if (!d->open)
		try_next(-1, 0, d);
}

static void try_one(struct dial *d, size_t i)
{
	const struct sockaddr *sa = (const struct sockaddr *)&d->addr[i];
	const socklen_t len = sa->sa_family == AF_INET ? sizeof(struct sockaddr_in)
						       : sizeof(struct sockaddr_in6);

	d->fd[i] = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (d->fd[i] < 0 || (connect(d->fd[i], sa, len) && errno != EINPROGRESS)) {
		d->error = errno;
		close_try(d, i);
		return;
	}
	d->open++;
	d->tried[i] = event_new(d->base, d->fd[i], EV_WRITE, on_tried, d);
	loop_watch(d->tried[i]);
}

/* One more address; the end when there is none left and none under way. */
static void try_next(evutil_socket_t fd, short what, void *ctx)
{
	const struct timeval pause = { .tv_usec = NEXT_ADDRESS_MS * 1000 };
	struct dial *d = ctx;
	size_t open = d->open;

	(void)fd;
	(void)what;
	while (d->next < d->n && d->open == open)
		try_one(d, d->next++);
	if (d->open && d->next < d->n)
		event_add(d->timer, &pause);
	if (d->open)
		return;
	if (!d->n)
		end_dial(d, &(struct dial_end){ .fd = -1,
						.text = "no address of that family",
						.no_address = true });
	else
		end_dial(d, &(struct dial_end){ .fd = -1,
						.error = d->error,
						.text = strerror(d->error),
						.again = passes(d->error) });
}

struct dial *dial_start(struct event_base *base, const char *name,
			const struct sockaddr_storage *addr, size_t n, int port,
			int family,
			void (*ended)(void *ctx, const struct dial_end *end), void *ctx)
{
	struct dial *d = xcalloc(1, sizeof *d);

	*d = (struct dial){ .base = base,
			    .port = port,
			    .family = family,
			    .answer = -1,
			    .ended = ended,
			    .ctx = ctx };
	memset(d->fd, 0xff, sizeof d->fd);
	d->timer = event_new(base, -1, 0, try_next, d);
	for (size_t i = 0; i < n; i++)
		add_address(d, (const struct sockaddr *)&addr[i], sizeof addr[i]);
	if (n)
		event_active(d->timer, EV_TIMEOUT, 0);
	else
		start_lookup(d, name);
	return d;
}

void dial_cancel(struct dial *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++)
		close_try(d, i);
	if (d->looked)
		event_free(d->looked);
	if (d->answer >= 0)
		close(d->answer);
	if (d->lookup)
		lookup_drop(d->lookup);
	event_free(d->timer);
	free(d);
}

/* ---- the gate ---- */

struct gate {
	char *key;
	int inside;
	struct gate_pass *first, **last;
	struct gate *next;
};

/* One per address for as long as the program runs: a few bytes each. */
static struct gate *find_gate(const char *key)
{
	static struct gate *gates;
	struct gate *g;

	for (g = gates; g; g = g->next)
		if (!strcmp(g->key, key))
			return g;
	g = xcalloc(1, sizeof *g);
	g->key = xstrdup(key);
	g->last = &g->first;
	g->next = gates;
	gates = g;
	return g;
}

char *gate_key(const char *name, const struct sockaddr_storage *addr, size_t n,
	       int port)
{
	char text[RESOLVE_TEXT_BYTES];

	if (n && !lookup_text(addr, text, sizeof text))
		name = text;
	return xasprintf("%s %d", name, port);
}

bool gate_enter(struct gate_pass *p, const char *key, void (*open)(void *ctx),
		void *ctx)
{
	struct gate *g = find_gate(key);

	*p = (struct gate_pass){ .gate = g, .open = open, .ctx = ctx };
	if (g->inside < GATE_WIDTH) {
		g->inside++;
		p->inside = true;
		return true;
	}
	*g->last = p;
	g->last = &p->next;
	return false;
}

static void unqueue(struct gate *g, struct gate_pass *p)
{
	struct gate_pass **at = &g->first;

	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	if (g->last == &p->next)
		g->last = at;
}

void gate_leave(struct gate_pass *p)
{
	struct gate *g = p->gate;
	struct gate_pass *next;

	p->gate = NULL;
	if (!g)
		return;
	if (!p->inside) {
		unqueue(g, p);
		return;
	}
	p->inside = false;
	next = g->first;
	if (!next) {
		g->inside--;
		return;
	}
	unqueue(g, next);
	next->inside = true;
	next->open(next->ctx);
}

unsigned dial_backoff_ms(unsigned tries)
{
	unsigned ms = tries < 5 ? 100u << tries : 2000, r = 0;

	if (getrandom(&r, sizeof r, GRND_NONBLOCK) < 0)
		r = (unsigned)clock_ns();
	return ms + r % (ms / 2);
}
