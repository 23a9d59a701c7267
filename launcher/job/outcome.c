#include "launcher/job/outcome.h"

#include <signal.h>
#include <sys/wait.h>

#include "common/job.h"

enum { MS = 1000000, REAP_NS = 2 * MS }; /* REAP: from an exit to its being noticed */

void outcome_classify(struct ending *out, uint32_t status, bool oom, bool exec_failed)
{
	int st = (int)status;

	out->code = WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st);
	if (exec_failed && !out->code)
		out->code = EXIT_RUNNER;
	if (exec_failed)
		out->fate = FATE_EXEC;
	else if (oom)
		out->fate = FATE_OOM;
	else if (!WIFSIGNALED(st))
		out->fate = out->code ? FATE_EXIT : FATE_OK;
	else
		out->fate = FATE_SIGNAL;
}

/* When it printed the error because of which it exited; 0: it printed none. */
static int64_t failed_at(const struct ending *e)
{
	bool recent =
		e->began_ns - e->error_printed_ns < (int64_t)ERROR_TO_EXIT_MS * MS;

	return recent ? e->error_printed_ns : 0;
}

/* Some programs print an error and then abort while they shut down, as PyTorch's
 * threads make them do on a busy machine.  That abort is an exit. */
static bool outcome_is_exit(const struct ending *e)
{
	return e->fate == FATE_EXIT ||
	       (e->fate == FATE_SIGNAL && e->code == SIGABRT && failed_at(e));
}

/* TERM and PIPE are what kills bystanders. */
static int outcome_gravity(const struct ending *e)
{
	if (e->fate == FATE_SIGNAL && (e->code == SIGTERM || e->code == SIGPIPE))
		return FATE_EXIT;
	return outcome_is_exit(e) ? FATE_EXIT : (int)e->fate;
}

static bool is_crash(const struct ending *e)
{
	return e->fate == FATE_SIGNAL && (e->code == SIGSEGV || e->code == SIGBUS ||
					  e->code == SIGILL || e->code == SIGFPE);
}

/* Is this an end that no end of another rank can bring about? */
static bool is_untouched(const struct ending *e)
{
	return e->fate == FATE_OOM || e->fate == FATE_LOST ||
	       (e->fate == FATE_SIGNAL && e->code == SIGKILL);
}

/* May FIRST, though noticed before E, follow from it?  No exit brings about a crash,
 * but a host that is gone does in some MPIs. */
static bool goes_before(const struct ending *e, const struct ending *first)
{
	return is_crash(first) ? e->fate == FATE_LOST : is_untouched(e) || is_crash(e);
}

/* The gravest of the failures that may have been the first, or -1. */
static long first_failure(const struct ending *v, size_t n)
{
	int64_t latest = INT64_MAX; /* the first failure was surely before this */
	long found = -1;

	for (size_t i = 0; i < n; i++)
		if (v[i].fate > FATE_OK &&
		    v[i].began_ns + (int64_t)v[i].clock_error_ns < latest)
			latest = v[i].began_ns + (int64_t)v[i].clock_error_ns;
	for (size_t i = 0; i < n; i++) {
		int graver;

		if (v[i].fate <= FATE_OK ||
		    v[i].began_ns - (int64_t)v[i].clock_error_ns > latest)
			continue;
		graver = found < 0
				 ? 1
				 : outcome_gravity(&v[i]) - outcome_gravity(&v[found]);
		if (graver > 0 || (!graver && v[i].began_ns < v[found].began_ns))
			found = (long)i;
	}
	return found;
}

long outcome_cause(const struct ending *v, size_t n)
{
	long first = first_failure(v, n), found = first;
	int64_t before;

	if (first < 0 || is_untouched(&v[first]) ||
	    (v[first].fate != FATE_EXIT && v[first].fate != FATE_SIGNAL))
		return first;

	/* One that was killed, crashed or was lost while FIRST exited? */
	for (size_t i = 0; i < n; i++)
		if (goes_before(&v[i], &v[first]) &&
		    v[i].began_ns <= v[first].began_ns + EXIT_LASTS_MS * MS &&
		    (found == first || v[i].began_ns < v[found].began_ns))
			found = (long)i;
	if (found != first || !outcome_is_exit(&v[first]))
		return found;

	/* One that printed its error before FIRST failed, and exited after it? */
	before = failed_at(&v[first]);
	if (!before)
		before = v[first].began_ns - REAP_NS;
	for (size_t i = 0; i < n; i++) {
		int64_t at = outcome_is_exit(&v[i]) ? failed_at(&v[i]) : 0;

		if (at && at < before) {
			found = (long)i;
			before = at;
		}
	}
	return found;
}

int outcome_status(const struct ending *cause)
{
	if (cause->fate <= FATE_OK)
		return 0;
	if (cause->fate == FATE_LOST)
		return EXIT_LOST;
	return cause->fate >= FATE_SIGNAL ? EXIT_SIGNAL_BASE + cause->code
					  : cause->code;
}

int outcome_signalled(int signo, bool all_ok)
{
	return signo == SIGTERM && all_ok ? 0 : EXIT_SIGNAL_BASE + signo;
}

const char *outcome_signal_name(int signo)
{
	static char text[32];
	const char *name = sigabbrev_np(signo);

	if (name)
		snprintf(text, sizeof text, "SIG%s", name);
	else
		snprintf(text, sizeof text, "signal %d", signo);
	return text;
}
