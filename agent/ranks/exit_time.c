#include "agent/ranks/exit_time.h"

#include <event2/event.h>
#include <unistd.h>

#include "agent/ranks/procs.h"
#include "common/job.h"
#include "common/loop.h"

static bool time_within(uint64_t ms, uint64_t from_ns, uint64_t to_ns)
{
	return from_ns && to_ns - from_ns < ms * 1000000;
}

static void time_on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct exit_time *t = arg;
	char none[64];

	(void)what;
	if (read(fd, none, sizeof none) != 0)
		return; /* nothing has a reason to write there */
	t->closed_ns = clock_ns();
	exit_time_free(t);
}

void exit_time_watch(struct exit_time *t, struct event_base *base, int fd)
{
	t->fd = fd;
	t->readable = event_new(base, fd, EV_READ | EV_PERSIST, time_on_readable, t);
	loop_watch(t->readable);
}

/* The first of several errors in a row counts: the others follow from it. */
void exit_time_stderr(struct exit_time *t, const void *text, size_t n)
{
	static const char sign[] = "Traceback (most recent call last)";
	uint64_t now = clock_ns();

	if (memmem(text, n, sign, sizeof sign - 1) &&
	    !time_within(ERROR_TO_EXIT_MS, t->error_printed_ns, now))
		t->error_printed_ns = now;
}

uint64_t exit_time_began(const struct exit_time *t, uint64_t reaped_ns)
{
	return time_within(EXIT_LASTS_MS, t->closed_ns, reaped_ns) ? t->closed_ns
								   : reaped_ns;
}

bool exit_time_is_near(const struct exit_time *t, pid_t pid)
{
	return time_within(ERROR_TO_EXIT_MS, t->error_printed_ns, clock_ns()) ||
	       proc_exiting(pid);
}

void exit_time_free(struct exit_time *t)
{
	if (!t->readable)
		return;
	event_free(t->readable);
	t->readable = NULL;
	close(t->fd);
}
