#include "agent/ranks/io.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/loop.h"
#include "common/str.h"
#include "common/wire.h"

/* A path to a descriptor may be followed by a process to which this PID means another
 * process, in a container.  That has no descriptor of such a number. */
enum { LOG_FD_MIN = 600 };
enum { FULL_BYTES = 32768, LARGE_PIPE_BYTES = 262144 };

/* ---- output ---- */

static void stream_close(struct io_stream *s)
{
	if (s->fd < 0)
		return;
	event_free(s->event);
	s->event = NULL;
	close(s->fd);
	s->fd = -1;
	s->io->open--;
}

/* A frame's head counts, too: else frames of one byte would fill the launcher. */
static size_t room_by_credit(const struct io *io)
{
	if (io->credit <= WIRE_OUTPUT_HEAD_BYTES)
		return 0;
	return io->credit < WIRE_DATA_MAX + WIRE_OUTPUT_HEAD_BYTES
		       ? (size_t)io->credit - WIRE_OUTPUT_HEAD_BYTES
		       : WIRE_DATA_MAX;
}

static size_t room_for_output(const struct io *io)
{
	return io->out->len < IO_QUEUE_BYTES ? room_by_credit(io) : 0;
}

/* One read of at most ROOM bytes into the queue.  Returns how many there were; 0 at the
 * end, too.  A writer that fills its pipe gets a larger one: half as much again per
 * second.  Not from the start, since most writers never need it and the kernel limits a
 * user's pages in pipes. */
static size_t stream_read(struct io_stream *s, size_t room)
{
	struct io *io = s->io;
	unsigned char *frame;
	ssize_t n;

	if (s->fd < 0 || !room)
		return 0;
	frame = buf_reserve(io->out, WIRE_OUTPUT_HEAD_BYTES + room);
	do
		n = read(s->fd, frame + WIRE_OUTPUT_HEAD_BYTES, room);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		wire_output_head(frame, io->epoch, s->rank, s->stream, (uint32_t)n);
		io->out->len += WIRE_OUTPUT_HEAD_BYTES + (size_t)n;
		io->credit -= WIRE_OUTPUT_HEAD_BYTES + (size_t)n;
		if (s->exit)
			exit_time_stderr(s->exit, frame + WIRE_OUTPUT_HEAD_BYTES,
					 (size_t)n);
		if (n >= FULL_BYTES && !s->large) {
			s->large = true;
			fcntl(s->fd, F_SETPIPE_SZ, LARGE_PIPE_BYTES);
		}
		return (size_t)n;
	}
	/* If the other side is closed, a pty says EIO and a pipe says end of file. */
	if (n == 0 || errno != EAGAIN)
		stream_close(s);
	return 0;
}

/* Read S once.  A short read has emptied a pipe, and then the next byte, or the end, is
 * an event again.  After a full one, and on a pty, which returns its data in parts, S
 * waits for its next turn. */
static void stream_turn(struct io_stream *s)
{
	struct io *io = s->io;
	size_t room = room_for_output(io), n = stream_read(s, room);

	if (s->fd < 0 || s->waiting || (n != room && !(n && s->pty)))
		return;
	s->waiting = true;
	STAILQ_INSERT_TAIL(&io->waiting, s, next);
}

/* Called once each time the stream became readable (EV_ET), in the order in which the
 * streams did.  With level-triggered events, a stream that was just read stands in
 * front of one that was written to before it (1 in 400 lines of stderr came too
 * late). */
static void io_on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct io_stream *s = arg;

	(void)fd;
	(void)what;
	if (!s->waiting)
		stream_turn(s);
}

/* Serve the waiting in turn. */
void io_room(struct io *io)
{
	while (!STAILQ_EMPTY(&io->waiting) && room_for_output(io)) {
		struct io_stream *s = STAILQ_FIRST(&io->waiting);

		STAILQ_REMOVE_HEAD(&io->waiting, next);
		s->waiting = false;
		stream_turn(s);
	}
}

void io_credit(struct io *io, uint32_t bytes)
{
	io->credit += bytes;
	io_room(io);
}

/* Read only the bytes that are there now: a background child may go on writing.  The
 * queue's length is no limit, since these bytes tell why the rank exited. */
static void stream_drain(struct io_stream *s)
{
	struct io *io = s->io;
	int left = 0;
	size_t n;

	if (s->fd < 0 || ioctl(s->fd, FIONREAD, &left))
		left = 0;
	do {
		n = stream_read(s, room_by_credit(io));
		left -= (int)n;
	} while (n && left > 0);
	/* The end may be there already: to see it here saves a turn of the loop. */
	stream_read(s, room_by_credit(io));
}

bool io_say(struct io *io, uint32_t rank, uint32_t stream, const char *text)
{
	const struct wire_output m = {
		io->epoch, rank, stream, { text, strlen(text) }
	};
	const size_t bytes = WIRE_OUTPUT_HEAD_BYTES + m.data.n;

	if (io->credit < bytes)
		return false;
	io->credit -= bytes;
	wire_pack_output(io->out, &m);
	return true;
}

size_t io_send_file(struct io *io, int fd, uint64_t at, uint32_t rank, uint32_t stream)
{
	const size_t room = room_for_output(io);
	unsigned char *frame;
	ssize_t n;

	if (!room)
		return 0;
	frame = buf_reserve(io->out, WIRE_OUTPUT_HEAD_BYTES + room);
	do
		n = pread(fd, frame + WIRE_OUTPUT_HEAD_BYTES, room, (off_t)at);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return 0;
	wire_output_head(frame, io->epoch, rank, stream, (uint32_t)n);
	io->out->len += WIRE_OUTPUT_HEAD_BYTES + (size_t)n;
	io->credit -= WIRE_OUTPUT_HEAD_BYTES + (size_t)n;
	return (size_t)n;
}

void io_drain(struct io_rank *r)
{
	stream_drain(&r->out);
	stream_drain(&r->err);
}

static void stream_finish(struct io_stream *s)
{
	struct pollfd p = { .fd = s->fd, .events = POLLIN };

	while (stream_read(s, room_for_output(s->io)))
		;
	if (s->fd >= 0 && (poll(&p, 1, 0) < 0 || !(p.revents & POLLIN)))
		stream_close(s);
}

void io_finish(struct io_rank *r)
{
	stream_finish(&r->out);
	stream_finish(&r->err);
}

bool io_is_over(const struct io_rank *r)
{
	return r->out.fd < 0 && r->err.fd < 0;
}

/* ---- input ---- */

static void reader_close(struct io_rank *r)
{
	if (r->in < 0)
		return;
	event_free(r->in_event);
	r->in_event = NULL;
	close(r->in);
	r->in = -1;
}

/* Drop what every reader has taken, and grant it to the launcher again, in large parts.
 * A reader that closed its stdin delays nothing. */
static void input_settle(struct io *io)
{
	uint64_t least = io->input_at + io->input.len;
	struct wire_credit m = { .epoch = io->epoch };

	for (size_t i = 0; i < io->nreaders; i++)
		if (io->readers[i]->in >= 0 && io->readers[i]->in_at < least)
			least = io->readers[i]->in_at;
	if (least == io->input_at)
		return;
	buf_drop(&io->input, (size_t)(least - io->input_at));
	io->input_owed += (uint32_t)(least - io->input_at);
	io->input_at = least;
	if (io->input_owed < WIRE_DATA_MAX && io->input.len)
		return;
	m.bytes = io->input_owed;
	io->input_owed = 0;
	wire_pack_credit(io->out, &m);
}

/* Write what R has not got yet. */
static void reader_write(struct io_rank *r)
{
	struct io *io = r->io;
	size_t skip = (size_t)(r->in_at - io->input_at);
	size_t left = io->input.len - skip;
	ssize_t n;

	if (r->in < 0)
		return;
	n = left ? write(r->in, buf_head(&io->input) + skip, left) : 0;
	if (n > 0)
		r->in_at += (size_t)n;
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		reader_close(r);
	else if ((n < 0 ? 0 : (size_t)n) < left)
		loop_watch(r->in_event);
	else if (io->input_end)
		reader_close(r);
}

static void io_on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct io_rank *r = arg;

	(void)fd;
	(void)what;
	reader_write(r);
	input_settle(r->io);
}

int io_input(struct io *io, const void *data, size_t n, struct err *e)
{
	if (io->input.len + n > WIRE_INPUT_MAX)
		return err_set(e, E_WIRE, "more input than was granted");
	buf_add(&io->input, data, n);
	io->input_end |= !n;
	for (size_t i = 0; i < io->nreaders; i++)
		if (io->readers[i]->in >= 0 &&
		    !event_pending(io->readers[i]->in_event, EV_WRITE, NULL))
			reader_write(io->readers[i]);
	input_settle(io);
	return 0;
}

void io_grant(struct io *io)
{
	struct wire_credit m = { io->epoch, WIRE_INPUT_MAX };

	if (io->nreaders && !io->granted)
		wire_pack_credit(io->out, &m);
	io->granted = true;
}

/* ---- opening and closing ---- */

/* Both ends close on exec; only ours must never block. */
static int open_pipe(int *ours, int *theirs, bool read_ours)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		return -1;
	*ours = fd[!read_ours];
	*theirs = fd[read_ours];
	return fcntl(*ours, F_SETFL, O_NONBLOCK);
}

static int open_pty(int *ours, int *theirs, const struct winsize *window)
{
	int unlock = 0;
	struct termios t;

	*ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*ours < 0 || ioctl(*ours, TIOCSPTLCK, &unlock))
		return -1;
	*theirs = ioctl(*ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*theirs < 0 || tcgetattr(*theirs, &t) || ioctl(*ours, TIOCSWINSZ, window))
		return -1;
	cfmakeraw(&t);
	return tcsetattr(*theirs, TCSANOW, &t) || fcntl(*ours, F_SETFL, O_NONBLOCK);
}

static void stream_watch(struct io_stream *s, int fd)
{
	s->fd = fd;
	s->event = event_new(s->io->base, fd, EV_READ | EV_ET | EV_PERSIST,
			     io_on_readable, s);
	loop_watch(s->event);
	s->io->open++;
}

void io_close_child(int child[IO_CHILD_FDS])
{
	for (int i = 0; i < IO_CHILD_FDS; i++)
		if (child[i] >= 0)
			close(child[i]);
}

int io_open(struct io_rank *r, struct io *io, uint32_t rank, bool pty, bool reads_stdin,
	    int child[IO_CHILD_FDS], struct err *e)
{
	int ours[IO_CHILD_FDS] = { -1, -1, -1, -1 }, rc;

	*r = (struct io_rank){ .io = io, .in = -1 };
	r->out = (struct io_stream){ .io = io, .fd = -1, .rank = rank, .stream = 1 };
	r->err = (struct io_stream){ .io = io, .fd = -1, .rank = rank, .stream = 2 };
	r->err.exit = &r->exit;
	child[0] = child[1] = child[2] = child[3] = -1;
	r->out.pty = pty;
	rc = pty ? open_pty(&ours[1], &child[1], &io->window)
		 : open_pipe(&ours[1], &child[1], true);
	rc = rc || open_pipe(&ours[2], &child[2], true);
	rc = rc || open_pipe(&ours[3], &child[3], true);
	if (reads_stdin)
		rc = rc || open_pipe(&ours[0], &child[0], false);
	else
		rc = rc || (child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0;
	if (rc) {
		int error = errno;

		io_close_child(ours);
		io_close_child(child);
		err_set(e, E_SYSTEM,
			pty ? "a pipe or pty for a rank" : "a pipe for a rank",
			strerror(error));
		return error != EMFILE ? -1
				       : err_hint(e, "raise 'ulimit -Hn' on that host: "
						     "the agent has 4 descriptors for "
						     "each rank");
	}
	stream_watch(&r->out, ours[1]);
	stream_watch(&r->err, ours[2]);
	exit_time_watch(&r->exit, io->base, ours[3]);
	if (!reads_stdin)
		return 0;
	r->in = ours[0];
	r->in_at = io->input_at;
	r->in_event = event_new(io->base, r->in, EV_WRITE, io_on_writable, r);
	for (size_t i = 0; i < io->nreaders; i++)
		if (io->readers[i] == r) { /* it starts again, in the middle */
			reader_write(r);
			return 0;
		}
	io->readers = xreallocarray(io->readers, io->nreaders + 1, sizeof *io->readers);
	io->readers[io->nreaders++] = r;
	return 0;
}

bool io_resize(const struct io_rank *r)
{
	return r->out.pty && r->out.fd >= 0 &&
	       !ioctl(r->out.fd, TIOCSWINSZ, &r->io->window);
}

/* ---- the log of NCCL ---- */

bool io_log_is_over(const struct io_log *l)
{
	return l->path[0] != '/' || l->stream.fd < 0;
}

void io_log_open(struct io_log *l, struct io *io, uint32_t rank)
{
	int low = -1, fd = -1;

	if (!io_log_is_over(l))
		return;
	memcpy(l->path, "-", 2);
	if (!open_pipe(&low, &l->writer, true))
		fd = fcntl(low, F_DUPFD_CLOEXEC, LOG_FD_MIN);
	if (low >= 0)
		close(low);
	if (fd < 0) {
		if (low >= 0)
			close(l->writer);
		return;
	}
	l->stream.io = io;
	l->stream.rank = rank;
	l->stream.stream = WIRE_NCCL_LOG;
	stream_watch(&l->stream, fd);
	snprintf(l->path, sizeof l->path, "/proc/%d/fd/%d", (int)getpid(), fd);
}

void io_log_drain(struct io_log *l)
{
	if (!io_log_is_over(l))
		stream_drain(&l->stream);
}

void io_log_free(struct io_log *l)
{
	if (io_log_is_over(l))
		return;
	stream_close(&l->stream);
	close(l->writer);
}

void io_log_finish(struct io_log *l)
{
	if (io_log_is_over(l))
		return;
	stream_finish(&l->stream);
	if (l->stream.fd < 0)
		close(l->writer);
}

void io_free_rank(struct io_rank *r)
{
	if (!r->io)
		return;
	stream_close(&r->out);
	stream_close(&r->err);
	reader_close(r);
	exit_time_free(&r->exit);
}

void io_free(struct io *io)
{
	buf_free(&io->input);
	free(io->readers);
	*io = (struct io){ 0 };
}
