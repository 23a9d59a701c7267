#include "launcher/job/signals.h"

#include <event2/event.h>
#include <signal.h>

#include "common/loop.h"
#include "launcher/job/cleanup.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/messages.h"
#include "launcher/output/keys.h"
#include "launcher/output/progress.h"

enum {
	PAUSE_MS = 100, /* for the agents to be told of a ^Z */
	SAME_MS = 2000  /* in which Slurm sends its TERM to all */
};

/* ---- ^Z ---- */

/* Each deadline moves by the MS milliseconds that runner stood still. */
static void move_deadlines(struct job *j, uint64_t ms)
{
	if (j->deadline_ms)
		j->deadline_ms += ms;
	if (j->limit_ms)
		j->limit_ms += ms;
	j->agents.setup.deadline_ms += ms;
	cleanup_postpone(&j->cleanup, ms);
}

static void signals_resume(struct job *j)
{
	j->agents.paused = false;
	for (size_t i = 0; i < j->agents.n; i++) {
		struct host *h = &j->agents.host[i];

		h->heard_ms = clock_ms();
		if (h->state != HOST_UP)
			continue;
		AGENTS_SEND(h, resume, &(struct wire_resume){});
	}
	messages_signal(j, SIGCONT, true);
	keys_resume(j->account.view.keys);
	input_wake(j->input);
}

static void pause_in(struct job *j, unsigned ms);

static void signals_on_pause(evutil_socket_t fd, short what, void *ctx)
{
	struct job *j = ctx;
	uint64_t begin_ms = clock_ms();
	bool told = true; /* the hosts */

	(void)fd;
	(void)what;
	for (size_t i = 0; i < j->agents.n; i++)
		told &= j->agents.host[i].state != HOST_UP ||
			!j->agents.host[i].out.len;
	if (!told && begin_ms < j->signals.pause_by_ms) {
		pause_in(j, 1);
		return;
	}
	raise(SIGSTOP);
	move_deadlines(j, clock_ms() - begin_ms); /* fg or bg: here runner goes on */
	signals_resume(j);
}

static void pause_in(struct job *j, unsigned ms)
{
	const struct timeval t = { .tv_usec = (suseconds_t)ms * 1000 };

	event_base_once(j->base, -1, EV_TIMEOUT, signals_on_pause, j, &t);
}

/* The ranks stop, the agents are told to count no silence; then runner stops itself. */
static void signals_suspend(struct job *j)
{
	if (j->agents.paused)
		return;
	progress_erase(j->progress);
	keys_pause(j->account.view.keys);
	messages_signal(j, SIGSTOP, true);
	for (size_t i = 0; i < j->agents.n; i++) {
		struct host *h = &j->agents.host[i];

		if (h->state != HOST_UP)
			continue;
		AGENTS_SEND(h, suspend, &(struct wire_suspend){});
	}
	j->agents.paused = true;
	j->signals.pause_by_ms = clock_ms() + PAUSE_MS;
	pause_in(j, 0);
}

/* ---- signals as events ---- */

static void signals_on_signal(evutil_socket_t signo, short what, void *ctx)
{
	struct job *j = ctx;

	(void)what;
	if (signo == SIGTSTP)
		signals_suspend(j);
	else if (signo == SIGWINCH)
		job_spec_window(j);
	else if (signo != SIGTERM || !j->signals.told_ms ||
		 clock_ms() - j->signals.told_ms > SAME_MS)
		j->signals.on_signal(j, (int)signo);
}

void signals_open(struct job *j, void (*handler)(struct job *j, int signo))
{
	static const int signals[] = { SIGINT,  SIGTERM, SIGHUP,  SIGUSR1, SIGUSR2,
				       SIGTSTP, SIGCONT, SIGQUIT, SIGWINCH };
	struct sigaction old;

	j->signals.on_signal = handler;
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
		sigaction(signals[i], NULL, &old);
		if (old.sa_handler == SIG_IGN)
			continue;
		j->signals.watch[i] =
			evsignal_new(j->base, signals[i], signals_on_signal, j);
		loop_watch(j->signals.watch[i]);
	}
	signal(SIGPIPE, SIG_IGN);
}

void signals_close(struct signals *s)
{
	for (size_t i = 0; i < sizeof s->watch / sizeof *s->watch; i++)
		if (s->watch[i])
			event_free(s->watch[i]);
	/* A signal that has no rank to go to any more does not change how the job
	 * ended. */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
}
