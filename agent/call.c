#include "agent/call.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/munge.h"

enum {
	CALL_WITHIN_MS = 60000, /* of the start: for `call` */
	CALL_BYTES = 16384 + WIRE_HEAD_BYTES,
	SHOWN_MOST = 6 /* addresses in a message */
};

static const char no_call[] = "stdin has no message of runner's";

bool call_how_read(struct call_how *how, const char *text)
{
	static const char munge[] = "munge";
	const size_t n = sizeof munge - 1;

	*how = (struct call_how){ .munge = true };
	if (!strcmp(text, "clear"))
		how->munge = false;
	else if (!strncmp(text, munge, n) && text[n] == ':' && text[n + 1])
		how->socket = text + n + 1;
	else if (strcmp(text, munge) != 0)
		return false;
	return true;
}

const char *call_own_host(void)
{
	static struct utsname u;
	const char *name = getenv("SLURMD_NODENAME");

	if (name && *name)
		return name;
	return uname(&u) ? "" : u.nodename;
}

/* ---- what is in a call ---- */

static int take_addresses(struct call *c, const struct wire_door *m, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	char port[16];

	snprintf(port, sizeof port, "%u", m->port);
	for (size_t i = 0; i < m->addresses.n && c->n < CALL_ADDRESSES_MOST; i++) {
		struct addrinfo *found;

		if (getaddrinfo(m->addresses.v[i], port, &hints, &found))
			continue;
		memcpy(&c->addr[c->n++], found->ai_addr, found->ai_addrlen);
		freeaddrinfo(found);
	}
	return c->n && m->port && m->port < 65536 ? 0
						  : err_set(e, E_CALL, "no address");
}

static int take_door(struct call *c, const void *p, size_t n, struct err *e)
{
	struct wire_frame f;
	struct wire_door m;
	long size;
	int rc;

	size = wire_next_from(WIRE_LAUNCHER, &f, p, n, e);
	if (size <= 0 || (size_t)size != n || f.type != WIRE_door ||
	    wire_unpack_door(&m, f.payload, f.n, e))
		return err_set(e, E_CALL, no_call);
	c->within_ms = m.within_ms;
	c->copy = m.copy;
	if (m.key.n == KEY_BYTES) {
		memcpy(c->key, m.key.p, KEY_BYTES);
		rc = take_addresses(c, &m, e);
	} else {
		rc = err_set(e, E_CALL, "no key");
	}
	wire_free_door(&m);
	return rc;
}

/* A door that stands there in clear is none of our launcher's: it has MUNGE. */
static int open_door(struct call *c, const struct call_how *how,
		     const struct wire_call *m, struct err *e)
{
	static const char begin[] = "MUNGE:";
	const char *text = m->door.p;
	const size_t n = m->door.n;
	struct str why = { 0 };
	struct buf door = { 0 };
	char *credential;
	int rc = -1;

	if (n < sizeof begin - 1 || memcmp(text, begin, sizeof begin - 1) != 0 ||
	    memchr(text, '\0', n))
		return err_set(e, E_CALL,
			       "runner uses MUNGE, and the message on stdin is not a "
			       "credential");
	credential = xstrndup(text, n);
	if (munge_unwrap(how->socket, credential, &door, &why))
		err_set(e, E_CALL, str_text(&why));
	else
		rc = take_door(c, buf_head(&door), door.len, e);
	if (door.data)
		explicit_bzero(door.data, door.cap);
	buf_free(&door);
	str_free(&why);
	free(credential);
	return rc;
}

int call_take(struct call *c, const struct call_how *how, const struct wire_frame *f,
	      struct err *e)
{
	struct wire_call m;
	int rc;

	*c = (struct call){ 0 };
	if (wire_unpack_call(&m, f->payload, f->n, e))
		return err_set(e, E_CALL, no_call);
	if (strcmp(m.version, BERTH_VERSION) || m.wire != WIRE_VERSION)
		rc = err_set(e, E_AGENT_OTHER, call_own_host(), BERTH_VERSION,
			     (unsigned)WIRE_VERSION, m.version, m.wire);
	else if (how->munge)
		rc = open_door(c, how, &m, e);
	else
		rc = take_door(c, m.door.p, m.door.n, e);
	wire_free_call(&m);
	return rc;
}

void call_where(struct str *out, const struct call *c)
{
	char text[64], port[16] = "?";

	for (size_t i = 0; i < c->n && i < SHOWN_MOST; i++)
		if (!getnameinfo((const void *)&c->addr[i], sizeof c->addr[i], text,
				 sizeof text, port, sizeof port,
				 NI_NUMERICHOST | NI_NUMERICSERV))
			str_addf(out, "%s%s", i ? ", " : "", text);
	if (c->n > SHOWN_MOST)
		str_addf(out, " and %zu more", c->n - SHOWN_MOST);
	str_addf(out, " (port %s)", port);
}

/* ---- stdin ---- */

/* Reads from stdin what is needed, and no more than CALL_BYTES. */
static int read_frame(struct buf *in, struct wire_frame *f, struct err *e)
{
	const uint64_t until = clock_ms() + CALL_WITHIN_MS;
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t now;
	long size;

	while (!(size = wire_next_from(WIRE_LAUNCHER, f, buf_head(in), in->len, e))) {
		ssize_t n;

		now = clock_ms();
		if (now >= until || in->len >= CALL_BYTES)
			return err_set(e, E_CALL, "no message on stdin");
		if (poll(&p, 1, (int)(until - now)) <= 0)
			continue;
		n = read(STDIN_FILENO, buf_reserve(in, CALL_BYTES),
			 CALL_BYTES - in->len);
		if (n > 0)
			in->len += (size_t)n;
		else if (!n || (errno != EINTR && errno != EAGAIN))
			return err_set(e, E_CALL, "stdin has ended");
	}
	if (size > 0 && f->type != WIRE_call)
		return err_set(e, E_CALL, "another message on stdin");
	return size < 0 ? err_set(e, E_CALL, no_call) : 0;
}

int call_read(struct call *c, const struct call_how *how, struct err *e)
{
	struct buf in = { 0 };
	struct wire_frame f;
	int rc = read_frame(&in, &f, e);

	if (!rc)
		rc = call_take(c, how, &f, e);
	if (in.data)
		explicit_bzero(in.data, in.cap);
	buf_free(&in);
	return rc;
}
