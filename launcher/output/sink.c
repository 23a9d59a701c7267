#include "launcher/output/sink.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/loop.h"
#include "common/str.h"

enum { WRITE_MAX = 1 << 20, WIDE_BYTES = 65536, PIPE_BYTES = 1 << 20 };

static void sink_on_writable(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	sink_push(ctx);
}

void sink_open(struct sink *s, struct event_base *base, int fd,
	       const struct sink_events *events, void *ctx)
{
	struct stat st;
	char path[64];
	int own;

	*s = (struct sink){ .fd = fd, .events = events, .ctx = ctx, .how = SINK_FILE };
	if (fstat(fd, &st))
		s->broken = true;
	else if (S_ISSOCK(st.st_mode))
		s->how = SINK_SOCKET;
	else if (S_ISFIFO(st.st_mode) || isatty(fd)) {
		/* a new description, as O_NONBLOCK would act on all that share FD's */
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
		s->how = own >= 0 ? SINK_NONBLOCK : SINK_POLL;
		s->own = own >= 0;
		s->fd = own >= 0 ? own : fd;
	}
	if (s->how != SINK_FILE)
		s->writable = event_new(base, s->fd, EV_WRITE, sink_on_writable, s);
}

static ssize_t write_some(struct sink *s)
{
	size_t n = s->queue.len < WRITE_MAX ? s->queue.len : WRITE_MAX;
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };

	if (s->how == SINK_SOCKET)
		return send(s->fd, buf_head(&s->queue), n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (s->how == SINK_POLL) {
		if (poll(&p, 1, 0) <= 0) {
			errno = EAGAIN;
			return -1;
		}
		n = n < PIPE_BUF ? n : PIPE_BUF;
	}
	return write(s->fd, buf_head(&s->queue), n);
}

void sink_push(struct sink *s)
{
	ssize_t n;
	int error;

	if (s->queue.len > WIDE_BYTES && s->how == SINK_NONBLOCK && !s->wide)
		s->wide = fcntl(s->fd, F_SETPIPE_SZ, PIPE_BYTES) != 0;
	while (s->queue.len && !s->broken) {
		n = write_some(s);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (s->writable)
				loop_watch(s->writable);
			return;
		}
		if (n < 0) {
			error = errno;
			s->broken = true;
			buf_free(&s->queue);
			s->events->broken(s->ctx, error);
			return;
		}
		buf_drop(&s->queue, (size_t)n);
		s->events->written(s->ctx, (size_t)n);
	}
}

void sink_free(struct sink *s)
{
	if (s->writable)
		event_free(s->writable);
	if (s->own)
		close(s->fd);
	buf_free(&s->queue);
	*s = (struct sink){ .fd = -1 };
}
