#include "common/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>

#include "common/buf.h"
#include "common/str.h"

static void say_nothing(int severity, const char *text)
{
	(void)severity;
	(void)text;
}

static void on_fatal(int error)
{
	(void)error;
	die("cannot set up the event loop", errno);
}

struct event_base *loop_open(void)
{
	struct event_base *base;

	event_set_mem_functions(xmalloc, xrealloc, free);
	event_set_log_callback(say_nothing);
	event_set_fatal_callback(on_fatal);
	base = event_base_new();
	if (!base)
		on_fatal(0);
	return base;
}

void loop_watch(struct event *e)
{
	if (event_add(e, NULL))
		die("cannot watch a file or signal", errno);
}

void loop_after_ms(struct event *e, uint64_t ms)
{
	const struct timeval after = { (time_t)(ms / 1000),
				       (suseconds_t)(ms % 1000 * 1000) };

	event_add(e, &after);
}

void loop_send(struct buf *out, int fd, struct event *writable)
{
	while (out->len) {
		ssize_t n =
			send(fd, buf_head(out), out->len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			loop_watch(writable);
			return;
		}
		if (n < 0 && errno != EINTR)
			n = (ssize_t)out->len;
		buf_drop(out, n < 0 ? 0 : (size_t)n);
	}
}
