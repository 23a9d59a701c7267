#include "launcher/transport/dial.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <search.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/transport/lookup.h"

enum { NEXT_ADDRESS_MS = 250, TRIES_MAX = 8 };

struct dial {
	struct event_base *base;
	struct sockaddr_storage addr[TRIES_MAX];
	int fd[TRIES_MAX];
	struct event *tried[TRIES_MAX], *timer, *found;
	size_t n, next; /* addresses; the first one not tried yet */
	size_t open;    /* tries under way */
	int port, family, error;
	struct lookup *lookup;
	void (*ended)(void *ctx, const struct dial_end *end);
	void *ctx;
};

static void end_dial(struct dial *d, const struct dial_end *end)
{
	void (*ended)(void *ctx, const struct dial_end *e) = d->ended;
	void *ctx = d->ctx;

	dial_cancel(d);
	ended(ctx, end);
}

static void dial_add_address(struct dial *d, const struct sockaddr_storage *a)
{
	struct sockaddr_storage *to = &d->addr[d->n];

	if (d->n == TRIES_MAX || (d->family != AF_UNSPEC && a->ss_family != d->family))
		return;
	*to = *a;
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *)to)->sin_port = htons((uint16_t)d->port);
	else
		((struct sockaddr_in6 *)to)->sin6_port = htons((uint16_t)d->port);
	d->n++;
}

void dial_tune(int fd)
{
	const int on = 1, idle_s = 30;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	/* only for firewalls and NAT: heartbeats decide when a host is lost */
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

static void try_next(evutil_socket_t unused, short what, void *ctx);

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

/* Try one more address.  If none is left and none is under way, the dial has failed. */
static void try_next(evutil_socket_t unused, short what, void *ctx)
{
	struct dial_end end = { .fd = -1 };
	struct dial *d = ctx;
	size_t open = d->open;

	(void)unused;
	(void)what;
	while (d->next < d->n && d->open == open) {
		const size_t i = d->next++;
		const struct sockaddr *sa = (const struct sockaddr *)&d->addr[i];
		const socklen_t len = sa->sa_family == AF_INET
					      ? sizeof(struct sockaddr_in)
					      : sizeof(struct sockaddr_in6);
		const int fd = socket(sa->sa_family,
				      SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		d->fd[i] = fd;
		if (fd < 0 || (connect(fd, sa, len) && errno != EINPROGRESS)) {
			d->error = errno;
			close_try(d, i);
			continue;
		}
		d->open++;
		d->tried[i] = event_new(d->base, fd, EV_WRITE, on_tried, d);
		loop_watch(d->tried[i]);
	}
	if (d->open && d->next < d->n)
		loop_after_ms(d->timer, NEXT_ADDRESS_MS);
	if (d->open)
		return;
	end.error = d->error;
	end.text = d->n ? strerror(d->error) : "no address of that family";
	end.no_address = !d->n;
	end.again = d->error == ECONNREFUSED || d->error == ECONNRESET ||
		    d->error == EHOSTUNREACH || d->error == ENETUNREACH ||
		    d->error == ETIMEDOUT || d->error == EAGAIN;
	end_dial(d, &end);
}

static void on_found(evutil_socket_t fd, short what, void *ctx)
{
	struct dial *d = ctx;
	const struct lookup_answer *a = lookup_answers(d->lookup);
	struct dial_end end = { .fd = -1, .no_address = true };

	(void)fd;
	(void)what;
	if (a->why) {
		end.again = lookup_may_come(a->why);
		end.text = a->why;
		end_dial(d, &end);
		return;
	}
	for (size_t i = 0; i < a->naddr; i++)
		dial_add_address(d, &a->addr[i]);
	try_next(-1, 0, d);
}

struct dial *dial_start(struct event_base *base, const char *name,
			const struct sockaddr_storage *addr, size_t n, int port,
			int family,
			void (*ended)(void *ctx, const struct dial_end *end), void *ctx)
{
	struct dial *d = xcalloc(1, sizeof *d);

	*d = (struct dial){
		.base = base, .port = port, .family = family, .ended = ended, .ctx = ctx
	};
	memset(d->fd, 0xff, sizeof d->fd);
	d->timer = event_new(base, -1, 0, try_next, d);
	for (size_t i = 0; i < n; i++)
		dial_add_address(d, &addr[i]);
	if (n) {
		event_active(d->timer, EV_TIMEOUT, 0);
		return d;
	}
	d->lookup = lookup_start(&name, 1, family);
	d->found = event_new(base, lookup_fd(d->lookup), EV_READ, on_found, d);
	loop_watch(d->found);
	return d;
}

void dial_cancel(struct dial *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++)
		close_try(d, i);
	if (d->found)
		event_free(d->found);
	lookup_end(d->lookup);
	event_free(d->timer);
	free(d);
}

bool dial_looks_up(const struct dial *d)
{
	return d->lookup && !d->n;
}

/* ---- the login limit ---- */

struct login_limit {
	char *key;
	int granted;
	struct login_permit *first, **last;
};

static int compare_limits(const void *a, const void *b)
{
	return strcmp(((const struct login_limit *)a)->key,
		      ((const struct login_limit *)b)->key);
}

char *login_limit_key(const char *name, const struct sockaddr_storage *addr, size_t n,
		      int port)
{
	char text[LOOKUP_TEXT_BYTES];

	if (n && !lookup_text(addr, text, sizeof text))
		name = text;
	return xasprintf("%s %d", name, port);
}

bool login_limit_enter(struct login_permit *p, const char *key, struct event *wake)
{
	/* One per address, a few bytes: kept.  A tree, as each host has its own (10000
	 * hosts: 16 ms, with a list 170 ms). */
	static void *limits;
	struct login_limit wanted = { .key = (char *)key }, *l, **found;

	found = tsearch(&wanted, &limits, compare_limits);
	if (!found)
		die("no memory", ENOMEM);
	if (*found == &wanted) {
		*found = xcalloc(1, sizeof **found);
		(*found)->key = xstrdup(key);
		(*found)->last = &(*found)->first;
	}
	l = *found;
	*p = (struct login_permit){ .limit = l, .wake = wake };
	if (l->granted < LOGIN_LIMIT) {
		l->granted++;
		p->granted = true;
		return true;
	}
	*l->last = p;
	l->last = &p->next;
	return false;
}

static void dial_unqueue(struct login_limit *l, struct login_permit *p)
{
	struct login_permit **at = &l->first;

	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	if (l->last == &p->next)
		l->last = at;
}

void login_limit_leave(struct login_permit *p)
{
	struct login_limit *l = p->limit;
	struct login_permit *next;

	p->limit = NULL;
	if (!l)
		return;
	if (!p->granted) {
		dial_unqueue(l, p);
		return;
	}
	p->granted = false;
	next = l->first;
	if (!next) {
		l->granted--;
		return;
	}
	dial_unqueue(l, next);
	next->granted = true;
	loop_after_ms(next->wake, 0);
}

unsigned dial_backoff_ms(unsigned tries)
{
	unsigned ms = tries < 5 ? 100u << tries : 2000, r = 0;

	if (getrandom(&r, sizeof r, GRND_NONBLOCK) < 0)
		r = (unsigned)clock_ns();
	return ms + r % (ms / 2);
}
