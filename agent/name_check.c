#include "agent/name_check.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/loop.h"
#include "common/str.h"

enum { NAMES_SHOWN = 8 };

struct name_check {
	struct strv names;
	int *result; /* of getaddrinfo(), the first KNOWN ones */
	size_t known;
	size_t got; /* bytes of RESULT */
	uint32_t timeout_ms;
	int fd;
	struct event *readable, *late;
	name_check_done *done;
	void *ctx;
};

/* ---- the child ---- */

/* The agent has one thread, so its copy may call anything.  It touches neither the loop
 * nor the streams of the agent. */
static void look_up(const struct name_check *c, int out) __attribute__((noreturn));

static void look_up(const struct name_check *c, int out)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM };

	signal(SIGALRM, SIG_DFL);
	alarm(c->timeout_ms / 1000 + 1);
	for (size_t i = 0; i < c->names.n; i++) {
		struct addrinfo *list = NULL;
		int rc = getaddrinfo(c->names.v[i], NULL, &hints, &list);

		if (write(out, &rc, sizeof rc) != sizeof rc)
			break;
		if (!rc)
			freeaddrinfo(list);
	}
	_exit(0);
}

/* ---- the agent ---- */

/* The names of C without an address if ANSWERED, else those without an answer, to OUT,
 * a few of them at most.  Returns how many there are. */
static size_t list_names(const struct name_check *c, bool answered, struct str *out)
{
	size_t n = 0;

	for (size_t i = 0; i < c->names.n; i++) {
		if ((i < c->known) != answered || (answered && !c->result[i]))
			continue;
		if (n++ < NAMES_SHOWN)
			str_addf(out, "%s%s", n > 1 ? ", " : "", c->names.v[i]);
	}
	if (n > NAMES_SHOWN)
		str_addf(out, " and %zu more", n - NAMES_SHOWN);
	return n;
}

static void name_check_forget(struct event **e)
{
	if (*e)
		event_free(*e);
	*e = NULL;
}

static void check_end(struct name_check *c)
{
	struct str text = { 0 }, none = { 0 }, unasked = { 0 };
	const size_t failed = list_names(c, true, &none);
	const size_t left = list_names(c, false, &unasked);
	int error = 0; /* of the first that failed */

	name_check_forget(&c->readable);
	name_check_forget(&c->late);
	close(c->fd);
	c->fd = -1;
	if (!failed && !left)
		str_addf(&text, "%zu name%s of other hosts", c->names.n,
			 str_plural(c->names.n));
	for (size_t i = 0; i < c->known && !error; i++)
		error = c->result[i];
	if (failed)
		str_addf(&text, "no address for %s: %s", str_text(&none),
			 error == EAI_SYSTEM ? "the resolver failed"
					     : gai_strerror(error));
	if (left)
		str_addf(&text, "%sno answer in time for %s", failed ? "; " : "",
			 str_text(&unasked));
	c->done(c->ctx, !failed && !left, str_text(&text));
	str_free(&text);
	str_free(&none);
	str_free(&unasked);
}

static void check_on_late(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	check_end(arg);
}

static void on_result(evutil_socket_t fd, short what, void *arg)
{
	struct name_check *c = arg;
	const size_t all = c->names.n * sizeof *c->result;
	ssize_t n = read(fd, (char *)c->result + c->got, all - c->got);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		c->got += (size_t)n;
		c->known = c->got / sizeof *c->result;
	}
	if (n <= 0 || c->got == all)
		check_end(c);
}

static struct name_check *check_fail(struct name_check *c, int error)
{
	name_check_free(c);
	errno = error;
	return NULL;
}

struct name_check *name_check_start(struct event_base *base, const char *const *names,
				    size_t n, uint32_t timeout_ms,
				    name_check_done *done, void *ctx)
{
	struct name_check *c = xcalloc(1, sizeof *c);
	pid_t pid;
	int p[2];

	*c = (struct name_check){
		.timeout_ms = timeout_ms, .fd = -1, .done = done, .ctx = ctx
	};
	for (size_t i = 0; i < n; i++)
		strv_add(&c->names, names[i]);
	c->result = xcalloc(n, sizeof *c->result);
	if (pipe2(p, O_CLOEXEC))
		return check_fail(c, errno);
	c->fd = p[0];
	pid = fork();
	if (!pid)
		look_up(c, p[1]);
	if (pid < 0) {
		const int error = errno;

		close(p[1]);
		return check_fail(c, error);
	}
	close(p[1]);
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
	c->readable = event_new(base, c->fd, EV_READ | EV_PERSIST, on_result, c);
	c->late = event_new(base, -1, 0, check_on_late, c);
	loop_watch(c->readable);
	loop_after_ms(c->late, timeout_ms);
	return c;
}

void name_check_free(struct name_check *c)
{
	if (!c)
		return;
	name_check_forget(&c->readable);
	name_check_forget(&c->late);
	if (c->fd >= 0)
		close(c->fd);
	strv_free(&c->names);
	free(c->result);
	free(c);
}
