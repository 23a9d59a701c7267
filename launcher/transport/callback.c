#include "launcher/transport/callback.h"

#include <errno.h>
#include <event2/event.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "common/loop.h"
#include "common/wire.h"
#include "launcher/transport/lookup.h"

enum {
	ADDRESSES_MOST = 64, /* that one agent tries */
	BACKLOG = 1024,
	ACCEPTS_AT_ONCE = 64,
	PROOF_MS = 5000, /* from the connection to `called` */
	PAUSE_MS = 100,  /* until a descriptor may be free again */
	CALLED_MOST = 2048
};

/* A caller that is connected and has not said whose agent it is. */
struct caller {
	struct callback *of;
	struct sealed *stream;
	struct event *late;
	struct buf in;
	struct caller *prev, *next; /* the older one, the newer one */
};

struct callback {
	struct event_base *base;
	struct sealed_key *key;
	callback_called *called;
	void *ctx;
	int fd;
	unsigned port;
	struct event *readable, *pause;
	struct caller *oldest, *newest;
	size_t ncallers, expected;
};

/* ---- callers ---- */

/* Its stream stays. */
static void caller_free(struct caller *r)
{
	struct callback *c = r->of;

	*(r->prev ? &r->prev->next : &c->oldest) = r->next;
	*(r->next ? &r->next->prev : &c->newest) = r->prev;
	c->ncallers--;
	event_free(r->late);
	buf_free(&r->in);
	free(r);
}

static void callback_drop(struct caller *r)
{
	struct sealed *s = r->stream;

	caller_free(r);
	sealed_close(s);
}

static void callback_on_bytes(void *ctx, const void *data, size_t n)
{
	struct caller *r = ctx;
	struct callback *c = r->of;
	struct sealed *s = r->stream;
	struct wire_frame f;
	struct wire_called m;
	struct buf in;
	struct err e;
	long size;

	buf_add(&r->in, data, n);
	size = wire_next_from(WIRE_AGENT, &f, buf_head(&r->in), r->in.len, &e);
	if (!size && r->in.len < CALLED_MOST)
		return;
	if (size <= 0 || f.type != WIRE_called ||
	    wire_unpack_called(&m, f.payload, f.n, &e)) {
		callback_drop(r);
		return;
	}
	in = r->in;
	r->in = (struct buf){ 0 };
	caller_free(r);
	c->called(c->ctx, m.host, s, buf_head(&in) + size, in.len - (size_t)size);
	wire_free_called(&m);
	buf_free(&in);
}

static void callback_on_writable(void *ctx)
{
	(void)ctx;
}

static void callback_on_ended(void *ctx, const struct transport_end *end)
{
	(void)end;
	callback_drop(ctx);
}

static void callback_on_late(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	callback_drop(ctx);
}

static void add_caller(struct callback *c, int fd)
{
	static const struct transport_events events = { callback_on_bytes,
							callback_on_writable,
							callback_on_ended };
	struct caller *r = xcalloc(1, sizeof *r);
	const int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	if (c->ncallers >= CALLBACK_CALLERS_MOST + c->expected)
		callback_drop(c->oldest);
	*r = (struct caller){ .of = c, .prev = c->newest };
	*(c->newest ? &c->newest->next : &c->oldest) = r;
	c->newest = r;
	c->ncallers++;
	r->late = event_new(c->base, -1, 0, callback_on_late, r);
	loop_after_ms(r->late, PROOF_MS);
	r->stream = sealed_accept(c->base, fd, c->key, &events, r);
}

static void callback_on_pause(evutil_socket_t fd, short what, void *ctx)
{
	struct callback *c = ctx;

	(void)fd;
	(void)what;
	loop_watch(c->readable);
}

/* An error after the first says nothing: the kernel asks for a descriptor before it
 * looks whether anybody waits. */
static void on_connection(evutil_socket_t fd, short what, void *ctx)
{
	struct callback *c = ctx;

	(void)what;
	for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
		int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (one >= 0) {
			add_caller(c, one);
			continue;
		}
		if (i || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS &&
			  errno != ENOMEM))
			return;
		/* The oldest caller gives up its descriptor for the next turn.
		 * Without callers the connection waits, or its event would come in
		 * each turn. */
		if (c->oldest) {
			callback_drop(c->oldest);
			return;
		}
		event_del(c->readable);
		loop_after_ms(c->pause, PAUSE_MS);
		return;
	}
}

/* ---- the door ---- */

/* IPv6 and IPv4 at once, where this machine has both.  A port of a given range may
 * still be that of connections that have ended. */
static int bind_port(int family, unsigned port)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in a4 = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port) };
	const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int off = 0, on = 1;
	int error;

	if (fd < 0)
		return -1;
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (port)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (!bind(fd, family == AF_INET6 ? (void *)&a6 : (void *)&a4,
		  family == AF_INET6 ? sizeof a6 : sizeof a4) &&
	    !listen(fd, BACKLOG))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

static int bind_first(unsigned first, unsigned last)
{
	int fd = -1;

	for (unsigned port = first; fd < 0 && port <= last; port++) {
		fd = bind_port(AF_INET6, port);
		if (fd < 0)
			fd = bind_port(AF_INET, port);
		if (fd < 0 && errno != EADDRINUSE)
			break;
	}
	return fd;
}

struct callback *callback_open(struct event_base *base, const unsigned char *key,
			       unsigned first, unsigned last, callback_called *called,
			       void *ctx, struct err *e)
{
	struct sockaddr_in6 own;
	socklen_t n = sizeof own;
	struct callback *c;
	const int fd = bind_first(first, last);

	if (fd < 0) {
		err_set(e, E_SYSTEM, "a port for agents to call", strerror(errno));
		return NULL;
	}
	c = xcalloc(1, sizeof *c);
	*c = (struct callback){ .base = base, .called = called, .ctx = ctx, .fd = fd };
	c->key = sealed_key_make(key);
	if (!getsockname(fd, (void *)&own, &n)) /* the port is where IPv4 has it, too */
		c->port = ntohs(own.sin6_port);
	c->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_connection, c);
	c->pause = event_new(base, -1, 0, callback_on_pause, c);
	loop_watch(c->readable);
	return c;
}

void callback_expect(struct callback *c, size_t agents)
{
	c->expected = agents;
}

unsigned callback_port(const struct callback *c)
{
	return c->port;
}

static bool in_ranges(const struct sockaddr_storage *a, const struct net_range *range,
		      size_t n)
{
	const struct sockaddr_in *a4 = (const void *)a;
	const struct sockaddr_in6 *a6 = (const void *)a;
	const bool v4 = a->ss_family == AF_INET;
	const unsigned char *own =
		v4 ? (const void *)&a4->sin_addr : (const void *)&a6->sin6_addr;

	for (size_t i = 0; i < n; i++) {
		const unsigned char *want = range[i].address;
		const unsigned whole = range[i].bits / 8, bits = range[i].bits % 8;

		if (range[i].v4 == v4 && !memcmp(own, want, whole) &&
		    !(bits && (own[whole] ^ want[whole]) >> (8 - bits)))
			return true;
	}
	return false;
}

static bool is_of_use(const struct ifaddrs *a, bool loopback)
{
	const struct sockaddr_in6 *a6 = (const void *)a->ifa_addr;

	if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) ||
	    !(a->ifa_flags & IFF_LOOPBACK) == loopback)
		return false;
	return a->ifa_addr->sa_family == AF_INET ||
	       (a->ifa_addr->sa_family == AF_INET6 &&
		!IN6_IS_ADDR_LINKLOCAL(&a6->sin6_addr));
}

void callback_addresses(struct strv *out, const struct net_range *net, size_t n)
{
	struct ifaddrs *all, *a;
	char text[LOOKUP_TEXT_BYTES];

	if (getifaddrs(&all))
		return;
	for (int loopback = 0; !out->n && loopback < 2; loopback++)
		for (a = all; a && out->n < ADDRESSES_MOST; a = a->ifa_next)
			if (is_of_use(a, loopback) &&
			    (!n || in_ranges((const void *)a->ifa_addr, net, n)) &&
			    !lookup_text((const void *)a->ifa_addr, text, sizeof text))
				strv_add(out, text);
	freeifaddrs(all);
}

void callback_close(struct callback *c)
{
	while (c->oldest)
		callback_drop(c->oldest);
	event_free(c->readable);
	event_free(c->pause);
	close(c->fd);
	sealed_key_free(c->key);
	free(c);
}
