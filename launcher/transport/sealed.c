#include "launcher/transport/sealed.h"

#include <errno.h>
#include <event2/event.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/key.h"
#include "common/loop.h"

enum {
	READ_BYTES = 262144,
	WAIT_BYTES = 1 << 20 /* that the other side has not read */
};

/* The table has the first 8 bytes of each call's MAC, which are as random as can be, at
 * their own place or behind it; 0: free. */
struct sealed_key {
	unsigned char key[KEY_BYTES];
	uint64_t *seen;
	size_t n, room;
};

struct sealed {
	const struct transport_events *events;
	void *ctx;
	int refs; /* the owner's, and one while a handler runs */
	bool open, closed, ended;
	int fd;
	struct sealed_key *key; /* until it has called */
	struct key_side side;
	struct event *readable, *writable;
	struct buf in, plain, out;
};

/* ---- calls that were answered ---- */

enum { SEEN_LEAST = 1024 };

struct sealed_key *sealed_key_make(const unsigned char *key)
{
	struct sealed_key *k = xcalloc(1, sizeof *k);

	memcpy(k->key, key, sizeof k->key);
	k->room = SEEN_LEAST;
	k->seen = xcalloc(k->room, sizeof *k->seen);
	return k;
}

void sealed_key_free(struct sealed_key *k)
{
	explicit_bzero(k->key, sizeof k->key);
	free(k->seen);
	free(k);
}

/* Where NAME is, or would be. */
static uint64_t *place_of(struct sealed_key *k, uint64_t name)
{
	size_t i = name % k->room;

	while (k->seen[i] && k->seen[i] != name)
		i = (i + 1) % k->room;
	return &k->seen[i];
}

static void sealed_remember(struct sealed_key *k, uint64_t name)
{
	const struct sealed_key old = *k;

	if (k->n == SEALED_CALLS_MOST) {
		memset(k->seen, 0, k->room * sizeof *k->seen);
		k->n = 0;
	} else if (2 * k->n == k->room) {
		k->room *= 2;
		k->seen = xcalloc(k->room, sizeof *k->seen);
		for (size_t i = 0; i < old.room; i++)
			if (old.seen[i])
				*place_of(k, old.seen[i]) = old.seen[i];
		free(old.seen);
	}
	*place_of(k, name) = name;
	k->n++;
}

/* ---- the stream ---- */

static void sealed_unref(struct sealed *s)
{
	if (--s->refs)
		return;
	event_free(s->readable);
	event_free(s->writable);
	close(s->fd);
	buf_free(&s->in);
	buf_free(&s->plain);
	buf_free(&s->out);
	key_forget(&s->side);
	free(s);
}

/* The first bytes of the other side.  False: it has not the key, or has said this. */
static bool take_call(struct sealed *s)
{
	unsigned char answer[KEY_ANSWER_BYTES];
	uint64_t name; /* the last bytes of its call; 0 is none */

	memcpy(&name,
	       (const char *)buf_head(&s->in) + KEY_CALL_BYTES - KEY_CALL_MAC_BYTES,
	       sizeof name);
	name = name ? name : 1;
	if (*place_of(s->key, name) ||
	    !key_answer(&s->side, s->key->key, buf_head(&s->in), answer))
		return false;
	sealed_remember(s->key, name);
	s->key = NULL;
	buf_drop(&s->in, KEY_CALL_BYTES);
	buf_add(&s->out, answer, sizeof answer);
	s->open = true;
	loop_send(&s->out, s->fd, s->writable);
	return true;
}

/* False: what came is not of one who has the key. */
static bool sealed_take(struct sealed *s)
{
	size_t n;

	if (!s->open && s->in.len < KEY_CALL_BYTES)
		return true;
	if (!s->open && !take_call(s))
		return false;
	if (key_open(&s->side, &s->in, &s->plain))
		return false;
	n = s->plain.len;
	if (n && !s->closed)
		s->events->bytes(s->ctx, buf_head(&s->plain), n);
	buf_drop(&s->plain, n);
	return true;
}

static void sealed_on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct sealed *s = ctx;
	const size_t most = s->open ? READ_BYTES : KEY_CALL_BYTES - s->in.len;
	const struct transport_end how = { .status = -1, .said = "" };
	ssize_t n = recv(fd, buf_reserve(&s->in, most), most, MSG_DONTWAIT);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s->refs++;
	if (n > 0)
		s->in.len += (size_t)n;
	if (n <= 0 || !sealed_take(s)) {
		event_del(s->readable);
		event_del(s->writable);
		if (!s->ended && !s->closed) {
			s->ended = true;
			s->events->ended(s->ctx, &how);
		}
	}
	sealed_unref(s);
}

static void sealed_on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct sealed *s = ctx;

	(void)fd;
	(void)what;
	s->refs++;
	loop_send(&s->out, s->fd, s->writable);
	if (s->open && s->out.len < WAIT_BYTES && !s->closed)
		s->events->writable(s->ctx);
	sealed_unref(s);
}

struct sealed *sealed_accept(struct event_base *base, int fd, struct sealed_key *k,
			     const struct transport_events *events, void *ctx)
{
	struct sealed *s = xcalloc(1, sizeof *s);

	*s = (struct sealed){
		.events = events, .ctx = ctx, .refs = 1, .fd = fd, .key = k
	};
	s->readable = event_new(base, fd, EV_READ | EV_PERSIST, sealed_on_readable, s);
	s->writable = event_new(base, fd, EV_WRITE, sealed_on_writable, s);
	loop_watch(s->readable);
	return s;
}

void sealed_hand(struct sealed *s, const struct transport_events *events, void *ctx)
{
	s->events = events;
	s->ctx = ctx;
}

size_t sealed_send(struct sealed *s, const void *data, size_t n)
{
	const size_t most =
		WAIT_BYTES - (s->out.len < WAIT_BYTES ? s->out.len : WAIT_BYTES);

	if (s->ended) /* writable() comes no more */
		return n;
	if (n > most) {
		n = most;
		loop_watch(s->writable);
	}
	if (n)
		key_seal(&s->side, &s->out, data, n);
	loop_send(&s->out, s->fd, s->writable);
	return n;
}

void sealed_close(struct sealed *s)
{
	s->closed = true;
	event_del(s->readable);
	event_del(s->writable);
	sealed_unref(s);
}
