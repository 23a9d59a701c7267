#include "launcher/output/input.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/loop.h"

enum {
	/* Input on its way to all hosts together: it waits here while a network is
	   slow.  All to 256 hosts: 32 KiB each. */
	FLYING_BYTES = 8 << 20,
	LOOK_AGAIN_MS = 300
};

struct reader {
	struct host *host;
	size_t credit;
	bool ended;   /* it was told that there is no more */
	bool granted; /* its window, of which we may use a part */
};

struct input {
	struct reader *to;
	size_t n;
	uint32_t epoch;
	bool done, always_ready;
	struct event *readable;
	struct event *again; /* are we in the foreground? */
	unsigned char room[WIRE_DATA_MAX];
};

static bool in_background(void)
{
	return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) != getpgrp();
}

/* What every reader takes now. */
static size_t least_credit(const struct input *in)
{
	size_t least = SIZE_MAX;

	for (size_t i = 0; i < in->n; i++)
		if (in->to[i].host->state == HOST_UP && in->to[i].credit < least)
			least = in->to[i].credit;
	return least == SIZE_MAX ? 0 : least;
}

static void send_input(struct input *in, size_t n)
{
	struct wire_input m = { in->epoch, { in->room, n } };

	in->done |= !n;
	for (size_t i = 0; i < in->n; i++) {
		if (in->to[i].host->state != HOST_UP)
			continue;
		in->to[i].credit -= n;
		in->to[i].ended = !n;
		wire_pack_input(&in->to[i].host->out, &m);
		agents_flush(in->to[i].host);
	}
}

/* A shell's "fg" tells a job that runs nothing: look from time to time. */
static void wait_more(struct input *in)
{
	if (in->done || !least_credit(in))
		return;
	if (in_background())
		event_add(in->again,
			  &(struct timeval){ .tv_usec = LOOK_AGAIN_MS * 1000 });
	else if (in->always_ready)
		event_active(in->readable, EV_READ, 0);
	else
		loop_watch(in->readable);
}

/* poll(2) before read(2): the description may be shared, so it stays a blocking one. */
static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct input *in = ctx;
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	size_t most = least_credit(in);
	ssize_t n;

	(void)fd;
	(void)what;
	if (in->done || !most)
		return;
	if (!in_background() && poll(&p, 1, 0) > 0) {
		n = read(STDIN_FILENO, in->room,
			 most < sizeof in->room ? most : sizeof in->room);
		if (n >= 0 || (errno != EINTR && errno != EAGAIN))
			send_input(in, n > 0 ? (size_t)n : 0);
	}
	wait_more(in);
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	wait_more(ctx);
}

struct input *input_open(struct event_base *base)
{
	struct input *in = xcalloc(1, sizeof *in);

	in->again = event_new(base, -1, 0, on_again, in);
	in->readable = event_new(base, STDIN_FILENO, EV_READ, on_readable, in);
	if (event_add(in->readable,
		      NULL)) { /* a file: epoll refuses it, and it is always ready */
		event_free(in->readable);
		in->readable = event_new(base, -1, 0, on_readable, in);
		in->always_ready = true;
	} else {
		event_del(in->readable);
	}
	return in;
}

void input_aim(struct input *in, struct host *const *targets, size_t n, uint32_t epoch)
{
	free(in->to);
	in->to = xcalloc(n, sizeof *in->to);
	in->n = n;
	in->epoch = epoch;
	for (size_t i = 0; i < n; i++)
		in->to[i].host = targets[i];
}

/* The next epoch's ranks learn at their first credit that there is no more. */
static void say_end(struct input *in, struct reader *r)
{
	const struct wire_input m = { in->epoch, { NULL, 0 } };

	r->ended = true;
	wire_pack_input(&r->host->out, &m);
	agents_flush(r->host);
}

static struct reader *find_reader(const struct input *in, const struct host *h)
{
	for (size_t i = 0; in && i < in->n; i++)
		if (in->to[i].host == h)
			return &in->to[i];
	return NULL;
}

bool input_credit(struct input *in, struct host *h, uint32_t bytes)
{
	struct reader *to = find_reader(in, h);

	if (!to || bytes > WIRE_INPUT_MAX || to->credit + bytes > WIRE_INPUT_MAX ||
	    to->credit + bytes + h->out.len > 2 * (size_t)WIRE_INPUT_MAX)
		return false; /* the last: it grants, and reads nothing */
	if (!to->granted && bytes > FLYING_BYTES / in->n)
		bytes = (uint32_t)(FLYING_BYTES / in->n);
	to->granted = true;
	to->credit += bytes;
	if (in->done && !to->ended)
		say_end(in, to);
	wait_more(in);
	return true;
}

void input_wake(struct input *in)
{
	if (in)
		wait_more(in);
}

void input_free(struct input *in)
{
	if (!in)
		return;
	event_free(in->readable);
	event_free(in->again);
	free(in->to);
	free(in);
}
