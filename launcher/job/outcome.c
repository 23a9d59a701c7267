#include "launcher/job/outcome.h"

#include <signal.h>
#include <sys/wait.h>

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

static bool failed(const struct ending *e)
{
	return e->fate > FATE_OK;
}

/* An interpreter that said that it fails may abort while it takes itself apart, as
 * PyTorch's threads make it do on a busy machine: that is how it exits. */
static bool is_exit(const struct ending *e)
{
	return e->fate == FATE_EXIT ||
	       (e->fate == FATE_SIGNAL && e->code == SIGABRT && e->failing_ns);
}

/* TERM and PIPE are how bystanders die: no graver than an exit. */
static int gravity(const struct ending *e)
{
	if (is_exit(e))
		return FATE_EXIT;
	if (e->fate == FATE_SIGNAL && (e->code == SIGTERM || e->code == SIGPIPE))
		return FATE_EXIT;
	return e->fate;
}

static bool better(const struct ending *a, const struct ending *b)
{
	if (gravity(a) != gravity(b))
		return gravity(a) > gravity(b);
	return a->at_ns < b->at_ns;
}

/* Of those that exited: who failed before FIRST, who ended before them all? */
static long first_word(const struct ending *v, size_t n, long first)
{
	enum { REAP_NS = 2000000 }; /* from an end to its being noticed */
	const struct ending *f = &v[first];
	int64_t before = f->failing_ns ? f->failing_ns : f->at_ns - REAP_NS;

	for (size_t i = 0; i < n; i++) {
		if (!is_exit(&v[i]) || !v[i].failing_ns || v[i].failing_ns >= before)
			continue;
		first = (long)i;
		before = v[i].failing_ns;
	}
	return first;
}

/* Is this how only the rank itself, its user or its machine ends it? */
static bool own_end(const struct ending *e)
{
	static const int signals[] = { SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE };

	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		if (e->fate == FATE_SIGNAL && e->code == signals[i])
			return true;
	return e->fate == FATE_OOM;
}

/* In place of FIRST, which exited, who was about to die when it did. */
static long dying(const struct ending *v, size_t n, long first)
{
	enum { DYING_NS = 400000000 }; /* so long agents wait for such a rank */
	int64_t until = v[first].at_ns + DYING_NS;
	long found = first;

	for (size_t i = 0; i < n; i++)
		if (own_end(&v[i]) && v[i].at_ns <= until &&
		    (found == first || v[i].at_ns < v[found].at_ns))
			found = (long)i;
	return found;
}

long outcome_cause(const struct ending *v, size_t n)
{
	int64_t latest = INT64_MAX; /* the first failure was surely before this */
	long cause = -1, first;

	for (size_t i = 0; i < n; i++)
		if (failed(&v[i]) && v[i].at_ns + (int64_t)v[i].error_ns < latest)
			latest = v[i].at_ns + (int64_t)v[i].error_ns;
	for (size_t i = 0; i < n; i++)
		if (failed(&v[i]) && v[i].at_ns - (int64_t)v[i].error_ns <= latest &&
		    (cause < 0 || better(&v[i], &v[cause])))
			cause = (long)i;
	if (cause < 0 || own_end(&v[cause]) ||
	    (v[cause].fate != FATE_EXIT && v[cause].fate != FATE_SIGNAL))
		return cause;
	first = dying(v, n, cause);
	return first != cause || !is_exit(&v[cause]) ? first : first_word(v, n, cause);
}

int outcome_status(const struct ending *cause)
{
	switch (cause->fate) {
	case FATE_NONE:
	case FATE_OK:
		return 0;
	case FATE_EXIT:
	case FATE_EXEC:
		return cause->code;
	case FATE_SIGNAL:
	case FATE_OOM:
		return EXIT_SIGNAL_BASE + cause->code;
	case FATE_LOST:
		return EXIT_LOST;
	}
	return EXIT_RUNNER;
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
