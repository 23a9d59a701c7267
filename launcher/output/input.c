#include "launcher/output/input.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/loop.h"

enum {
	/* Input on its way to all hosts together.  It waits in runner's memory while a
	   network is slow.  For 256 hosts: 32 KiB each. */
	IN_FLIGHT_BYTES = 8 << 20,
	FOREGROUND_MS = 300 /* between two checks */
};

struct reader {
	struct host *host;
	size_t credit;
	bool ended;   /* it got the end of the input */
	bool granted; /* it sent its first credit, of which we may use a part only */
};

struct input {
	struct reader *to;
	size_t n;
	uint32_t epoch;
	bool done, always_ready, terminal;
	void (*typed)(void *ctx);
	void *ctx;
	struct event *readable;
	struct event *again; /* checks whether runner is in the foreground */
	unsigned char room[WIRE_DATA_MAX];
};

static bool in_background(void)
{
	return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) != getpgrp();
}

/* The bytes that every reader accepts now. */
static size_t least_credit(const struct input *in)
{
	size_t least = SIZE_MAX;

	for (size_t i = 0; i < in->n; i++)
		if (in->to[i].host->state == HOST_UP && in->to[i].credit < least)
			least = in->to[i].credit;
	return least == SIZE_MAX ? 0 : least;
}

/* The N bytes in ROOM for one reader; 0 bytes: the end. */
static void send_input(const struct input *in, struct reader *r, size_t n)
{
	const struct wire_input m = { in->epoch, { in->room, n } };

	r->credit -= n;
	r->ended = !n;
	AGENTS_SEND(r->host, input, &m);
}

/* A shell's "fg" sends no signal to a job that is not stopped, hence the timer. */
static void wait_more(struct input *in)
{
	if (in->done || !least_credit(in))
		return;
	if (in_background())
		loop_after_ms(in->again, FOREGROUND_MS);
	else if (in->always_ready)
		event_active(in->readable, EV_READ, 0);
	else
		loop_watch(in->readable);
}

/* poll(2) comes before read(2): other programs may share the description, so it stays a
 * blocking one. */
static void input_on_readable(evutil_socket_t fd, short what, void *ctx)
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
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			n = 0;
		in->done |= n == 0;
		if (n > 0 && in->terminal && memchr(in->room, '\n', (size_t)n))
			in->typed(in->ctx);
		for (size_t i = 0; i < in->n && n >= 0; i++)
			if (in->to[i].host->state == HOST_UP)
				send_input(in, &in->to[i], (size_t)n);
	}
	wait_more(in);
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	wait_more(ctx);
}

struct input *input_open(struct event_base *base, void (*typed)(void *ctx), void *ctx)
{
	struct input *in = xcalloc(1, sizeof *in);

	in->typed = typed;
	in->ctx = ctx;
	in->terminal = isatty(STDIN_FILENO);
	in->again = event_new(base, -1, 0, on_again, in);
	in->readable = event_new(base, STDIN_FILENO, EV_READ, input_on_readable, in);
	if (event_add(in->readable, NULL)) {
		/* A regular file: epoll refuses it, and it is always ready. */
		event_free(in->readable);
		in->readable = event_new(base, -1, 0, input_on_readable, in);
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

bool input_credit(struct input *in, struct host *h, uint32_t bytes)
{
	struct reader *to = NULL;

	for (size_t i = 0; in && i < in->n && !to; i++)
		if (in->to[i].host == h)
			to = &in->to[i];
	/* The last condition: an agent that sends credit and reads nothing. */
	if (!to || bytes > WIRE_INPUT_MAX || to->credit + bytes > WIRE_INPUT_MAX ||
	    to->credit + bytes + h->out.len > 2 * (size_t)WIRE_INPUT_MAX)
		return false;
	if (!to->granted && bytes > IN_FLIGHT_BYTES / in->n)
		bytes = (uint32_t)(IN_FLIGHT_BYTES / in->n);
	to->granted = true;
	to->credit += bytes;
	if (in->done && !to->ended) /* a later epoch: the input ended before */
		send_input(in, to, 0);
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
