#include "agent/copy.h"

#include <event2/event.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/str.h"

enum { SHA256_DIGITS = 64 };

static void on_period(evutil_socket_t fd, short what, void *exe)
{
	(void)fd;
	(void)what;
	utimensat(AT_FDCWD, exe, NULL,
		  0); /* the program, not a later one of its name */
}

static bool is_copy(const char *exe)
{
	static const char begin[] = "/agent-";
	char path[4096];
	ssize_t n = readlink(exe, path, sizeof path - 1);
	const char *name;

	if (n <= 0)
		return false;
	path[n] = '\0';
	name = strrchr(path, '/');
	if (!name || strncmp(name, begin, strlen(begin)) != 0)
		return false;
	name += strlen(begin);
	return strspn(name, "0123456789abcdef") == SHA256_DIGITS &&
	       !name[SHA256_DIGITS];
}

struct event *copy_keep(struct event_base *base, const char *exe, int period_s)
{
	const struct timeval period = { .tv_sec = period_s };
	struct event *e;

	if (!is_copy(exe))
		return NULL;
	on_period(-1, 0, (void *)exe);
	e = event_new(base, -1, EV_PERSIST, on_period, (void *)exe);
	if (e)
		event_add(e, &period);
	return e;
}
