#include "launcher/job/dump_socket.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/loop.h"
#include "launcher/job/dump.h"
#include "launcher/job/dump_name.h"

enum { CALLERS_MOST = 8, CALLER_MS = 10000 };

struct caller {
	struct dump_socket *s; /* NULL: none */
	int fd;
	struct event *readable, *writable, *late;
	struct buf out;
	bool asked, told;
};

struct dump_socket {
	struct dump *d;
	int fd;
	struct event *event;
	struct caller caller[CALLERS_MOST];
};

static void caller_close(struct caller *c)
{
	dump_forget(c->s->d, c);
	event_free(c->readable);
	event_free(c->writable);
	event_free(c->late);
	close(c->fd);
	buf_free(&c->out);
	*c = (struct caller){ 0 };
}

static void caller_on_late(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	caller_close(ctx);
}

static void caller_send(struct caller *c)
{
	loop_send(&c->out, c->fd, c->writable);
	if (c->told && !c->out.len)
		loop_after_ms(c->late, 0); /* all is sent: not while others use C */
}

static void caller_on_writable(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	caller_send(ctx);
}

static void caller_take(void *ctx, const char *text)
{
	struct caller *c = ctx;

	buf_add(&c->out, text, strlen(text));
	c->told = true;
	loop_after_ms(c->late, CALLER_MS);
	caller_send(c);
}

static void caller_on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct caller *c = ctx;
	char word[sizeof DUMP_WORD] = "";
	const ssize_t n = recv(fd, word, sizeof word - 1, 0);

	(void)what;
	if (n <= 0 || c->asked || strcmp(word, DUMP_WORD) != 0) {
		caller_close(c); /* it only looked, or has gone */
		return;
	}
	c->asked = true;
	dump_ask(c->s->d, caller_take, c);
}

static void socket_on_caller(evutil_socket_t listener, short what, void *ctx)
{
	struct dump_socket *s = ctx;
	const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct event_base *base = event_get_base(s->event);
	struct ucred peer;
	socklen_t n = sizeof peer;
	size_t k = 0;

	(void)what;
	while (k < CALLERS_MOST && s->caller[k].s)
		k++;
	if (fd >= 0 && k < CALLERS_MOST &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) &&
	    (peer.uid == geteuid() || !peer.uid)) {
		struct caller *c = &s->caller[k];

		*c = (struct caller){ .s = s, .fd = fd };
		c->readable = event_new(base, fd, EV_READ | EV_PERSIST,
					caller_on_readable, c);
		c->writable = event_new(base, fd, EV_WRITE, caller_on_writable, c);
		c->late = event_new(base, -1, 0, caller_on_late, c);
		loop_watch(c->readable);
		loop_after_ms(c->late, CALLER_MS);
	} else if (fd >= 0) {
		close(fd);
	}
}

struct dump_socket *dump_socket_open(struct dump *d, struct event_base *base,
				     const char *job_id)
{
	struct dump_socket *s;
	const int fd = dump_name_listen(job_id);

	if (fd < 0)
		return NULL;
	s = xcalloc(1, sizeof *s);
	s->d = d;
	s->fd = fd;
	s->event = event_new(base, fd, EV_READ | EV_PERSIST, socket_on_caller, s);
	loop_watch(s->event);
	return s;
}

void dump_socket_free(struct dump_socket *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < CALLERS_MOST; i++)
		if (s->caller[i].s)
			caller_close(&s->caller[i]);
	event_free(s->event);
	close(s->fd);
	free(s);
}
