#include "agent/pmi/server_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/loop.h"

_Static_assert((int)BOOT_KEY_BYTES == (int)WIRE_KEY_BYTES &&
		       (int)BOOT_TEXT_BYTES == (int)WIRE_TEXT_MAX,
	       "boot.def and wire.h differ");

enum {
	CLIENTS_EACH = 4,
	CLIENTS_MORE = 16,
	ACCEPT_MOST = 64, /* in one turn */
	READS_MOST = 16,  /* of one connection in one turn */
	AGAIN_MS = 20,
	READ_BYTES = 8192,
	/* `stall` of wire.def has 16 bytes more, and 8192 at most */
	STALL_MOST = 8192 - 16
};

/* ---- one connection ---- */

/* Its memory goes in settle(): whoever called may still hold it. */
void client_close(struct client *c)
{
	if (c->fd < 0)
		return;
	event_free(c->readable);
	event_free(c->writable);
	close(c->fd);
	c->fd = -1;
	buf_free(&c->in);
	buf_free(&c->out);
	c->s->nclients--;
}

/* Of N bytes at P; how many went out. */
static size_t send_some(struct client *c, const void *p, size_t n)
{
	ssize_t sent;

	do
		sent = send(c->fd, p, n, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? 0 : (size_t)sent;
}

/* Where it can't take more, the rest follows; where it is broken, reading says so. */
void client_flush(struct client *c)
{
	while (c->fd >= 0 && c->out.len) {
		size_t n = send_some(c, buf_head(&c->out), c->out.len);

		if (!n) {
			loop_watch(c->writable);
			return;
		}
		buf_drop(&c->out, n);
	}
	while (c->fd >= 0 && c->gets_all) {
		const struct buf *all = &c->joining->all;
		size_t n =
			send_some(c, buf_head(all) + c->all_at, all->len - c->all_at);

		if (!n) {
			loop_watch(c->writable);
			return;
		}
		c->all_at += n;
		c->gets_all = c->all_at < all->len;
	}
}

static void queue(struct client *c, uint32_t number, const void *payload, size_t n)
{
	const struct boot_head head = { (uint32_t)n, number };

	buf_add(&c->out, &head, sizeof head);
	buf_add(&c->out, payload, n);
}

void client_say(struct client *c, uint32_t number, const void *payload, size_t n)
{
	if (c->fd < 0)
		return;
	queue(c, number, payload, n);
	client_flush(c);
}

void client_say_with(struct client *c, uint32_t number, const void *payload, size_t n,
		     int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof fd)];
	} control = { .head = { CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec part;
	struct msghdr m = { .msg_iov = &part,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof control };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	queue(c, number, payload, n);
	part = (struct iovec){ buf_head(&c->out), c->out.len };
	if (sendmsg(c->fd, &m, MSG_NOSIGNAL) != (ssize_t)c->out.len)
		client_refuse(c, "%s", "asks without reading the answers");
	else
		buf_drop(&c->out, c->out.len);
}

void client_refuse(struct client *c, const char *format, ...)
{
	va_list ap;
	char *text;

	if (c->fd < 0)
		return;
	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	client_say(c, BOOT_REFUSED, text, strlen(text) + 1);
	free(text);
	client_close(c);
}

/* How long the payload of a frame of this number may be. */
static bool length_is_sound(const struct boot_head *h)
{
	switch (h->number) {
	case BOOT_JOIN:
		return h->bytes == sizeof(struct boot_join);
	case BOOT_MEMORY:
		return h->bytes == sizeof(uint64_t);
	case BOOT_FENCE:
		return h->bytes && h->bytes <= BOOT_TEXT_BYTES;
	case BOOT_STALL:
		return h->bytes > sizeof(uint32_t) && h->bytes <= STALL_MOST;
	case BOOT_ASK:
	case BOOT_LEAVE:
		return !h->bytes;
	default:
		return false;
	}
}

static void take_frames(struct client *c)
{
	struct boot_head h;

	while (c->fd >= 0 && c->in.len >= sizeof h) {
		memcpy(&h, buf_head(&c->in), sizeof h);
		if (!length_is_sound(&h)) {
			init_round_closed(c);
			client_refuse(c, "%s", "that is no frame of libberth's");
			return;
		}
		if (c->in.len < sizeof h + h.bytes)
			return;
		init_round_frame(c, h.number, buf_head(&c->in) + sizeof h, h.bytes);
		if (c->fd >= 0)
			buf_drop(&c->in, sizeof h + h.bytes);
	}
	if (c->fd >= 0 && !c->in.len)
		buf_free(&c->in);
}

void client_read(struct client *c)
{
	for (int i = 0; i < READS_MOST && c->fd >= 0; i++) {
		ssize_t n = read(c->fd, buf_reserve(&c->in, READ_BYTES), READ_BYTES);

		if (n > 0) {
			c->in.len += (size_t)n;
			take_frames(c);
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			init_round_closed(c);
			client_close(c);
		} else if (errno == EAGAIN) {
			if (!c->in.len)
				buf_free(&c->in);
			return;
		}
	}
}

/* ---- all of them ---- */

/* What is over goes, at the end of a turn. */
static void settle(struct server *s)
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
	joinings_settle(s);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct client *c = arg;
	struct server *s = c->s;

	(void)fd;
	(void)what;
	client_read(c);
	settle(s);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct client *c = arg;

	(void)fd;
	(void)what;
	client_flush(c);
}

static bool is_ours(int fd)
{
	struct ucred who;
	socklen_t n = sizeof who;

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) &&
	       who.uid == geteuid();
}

/* Room for another: who has not said yet which rank it is has to go, the oldest first.
 */
static bool make_room(struct server *s)
{
	struct client *oldest = NULL;

	if (s->nclients < CLIENTS_EACH * s->job->ranks.n + CLIENTS_MORE)
		return true;
	for (struct client *c = s->client; c; c = c->next)
		if (c->fd >= 0 && !c->joining)
			oldest = c; /* the newest come first */
	if (oldest)
		client_close(oldest);
	return oldest;
}

static void add_client(struct server *s, int fd)
{
	struct client *c;

	if (!is_ours(fd) || !make_room(s)) {
		close(fd);
		return;
	}
	c = xcalloc(1, sizeof *c);
	*c = (struct client){ .s = s, .fd = fd, .next = s->client };
	c->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, on_readable, c);
	c->writable = event_new(s->base, fd, EV_WRITE, on_writable, c);
	loop_watch(c->readable);
	s->client = c;
	s->nclients++;
	client_read(c); /* it has spoken already, more often than not */
}

static void on_acceptable(evutil_socket_t listener, short what, void *arg)
{
	struct server *s = arg;

	(void)what;
	for (int i = 0; i < ACCEPT_MOST; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			add_client(s, fd);
			settle(s);
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
	joinings_again(s);
}

void server_again(struct server *s)
{
	event_add(s->again, &(struct timeval){ .tv_usec = AGAIN_MS * 1000 });
}

/* ---- from outside ---- */

/* An abstract socket with a name that nobody guesses. */
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
	s->acceptable =
		event_new(base, s->listener, EV_READ | EV_PERSIST, on_acceptable, s);
	s->again = event_new(base, -1, 0, on_again, s);
	loop_watch(s->acceptable);
	return s;
}

void server_free(struct server *s)
{
	if (!s)
		return;
	for (struct client *c = s->client; c; c = c->next)
		client_close(c);
	settle(s);
	joinings_free(s);
	event_free(s->acceptable);
	event_free(s->again);
	close(s->listener);
	free(s);
}

const char *server_name(const struct server *s)
{
	return s ? s->name : NULL;
}

void server_ended(struct server *s, size_t local, bool failed)
{
	if (!s)
		return;
	init_round_ended(s, (uint32_t)local, failed);
	settle(s);
}

#define TAKE(name, call)                                                               \
	case WIRE_##name: {                                                            \
		struct wire_##name m;                                                  \
                                                                                       \
		if (wire_unpack_##name(&m, f->payload, f->n, e))                       \
			return -1;                                                     \
		if (s && m.epoch == s->job->epoch)                                     \
			rc = call;                                                     \
		wire_free_##name(&m);                                                  \
		break;                                                                 \
	}

int server_frame(struct server *s, const struct wire_frame *f, struct err *e)
{
	int rc = 0;

	switch (f->type) {
		TAKE(host_map, init_round_world(s, &m, e))
		TAKE(fence_data, init_round_all(s, &m, e))
		TAKE(lost, (init_round_lost(s, &m), 0))
		TAKE(query, (op_records_look(s), 0))
		TAKE(missing, (op_records_behind(s, &m), 0))
	default:
		break;
	}
	if (s)
		settle(s);
	return rc;
}
