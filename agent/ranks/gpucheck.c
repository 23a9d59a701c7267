#include "agent/ranks/gpucheck.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/ranks/gpu_check.h"
#include "common/loop.h"

/* A look at all processes takes 6 to 9 us for each: pauses grow, or 2000 processes
 * would cost 0.3 % of a core as long as no rank uses a GPU. */
enum { FIRST_LOOK_S = 5, LAST_LOOK_S = 80, SETTLE_S = 30 };

static void look_in(struct gpucheck *c, int seconds)
{
	const struct timeval t = { .tv_sec = seconds };

	event_add(c->timer, &t);
}

static struct gpu_check_rank *list_ranks(const struct gpucheck *c, size_t *n)
{
	struct gpu_check_rank *list = xcalloc(c->ranks->n, sizeof *list);

	*n = 0;
	for (size_t i = 0; i < c->ranks->n; i++)
		if (c->ranks->v[i].state == RANK_RUNNING)
			list[(*n)++] = (struct gpu_check_rank){ c->ranks->v[i].rank,
								c->placement->v[i].gpu,
								c->ranks->v[i].pid };
	return list;
}

static void __attribute__((noreturn)) ask(const struct gpucheck *c, int fd)
{
	struct gpu_check_rank *list;
	struct strv lines = { 0 };
	struct str all = { 0 };
	size_t n = 0;

	prctl(PR_SET_PDEATHSIG, (long)SIGKILL, 0L, 0L, 0L);
	list = list_ranks(c, &n);
	gpu_check_check(&lines, c->gpus, list, n);
	for (size_t i = 0; i < lines.n; i++)
		str_addf(&all, "%s\n", lines.v[i]);
	_exit(write(fd, str_text(&all), all.len) < 0);
}

static void warn(struct gpucheck *c)
{
	char *line, *next = c->text.s;

	while ((line = strsep(&next, "\n"))) {
		struct err e = { 0 };

		snprintf(e.text, sizeof e.text, "%s", line);
		if (*line)
			stream_log(c->session, LOG_WARNING, &e);
	}
}

static void close_answer(struct gpucheck *c)
{
	if (!c->answer)
		return;
	event_free(c->answer);
	close(c->fd);
	c->answer = NULL;
}

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
	struct gpucheck *c = arg;
	char part[1024];
	ssize_t n = read(fd, part, sizeof part);

	(void)what;
	if (n > 0) {
		str_addn(&c->text, part, (size_t)n);
	} else if (n == 0 || errno != EINTR) {
		warn(c);
		close_answer(c);
	}
}

static void start_child(struct gpucheck *c)
{
	int fd[2];
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid)
		ask(c, fd[1]);
	close(fd[1]);
	if (pid < 0) {
		close(fd[0]);
		return;
	}
	c->fd = fd[0];
	c->answer =
		event_new(c->session->base, c->fd, EV_READ | EV_PERSIST, on_answer, c);
	loop_watch(c->answer);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct gpucheck *c = arg;
	struct gpu_check_rank *list;
	size_t n;

	(void)fd;
	(void)what;
	if (c->used) {
		start_child(c);
		return;
	}
	list = list_ranks(c, &n);
	c->used = gpu_check_any_use(list, n);
	free(list);
	if (c->pause_s < LAST_LOOK_S)
		c->pause_s *= 2;
	look_in(c, c->used ? SETTLE_S : c->pause_s);
}

void gpucheck_begin(struct gpucheck *c, struct stream *s, const struct gpus *g,
		    const struct placement *p, const struct ranks *r)
{
	*c = (struct gpucheck){ .session = s,
				.gpus = g,
				.placement = p,
				.ranks = r,
				.pause_s = FIRST_LOOK_S };
	c->timer = event_new(s->base, -1, 0, on_timer, c);
	look_in(c, c->pause_s);
}

void gpucheck_end(struct gpucheck *c)
{
	close_answer(c);
	if (c->timer)
		event_free(c->timer);
	str_free(&c->text);
	*c = (struct gpucheck){ 0 };
}
