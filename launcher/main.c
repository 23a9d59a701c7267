/* runner - start a parallel program on many machines, each rank in its berth.
 *
 * argv, environment, config -> request -> hosts -> an agent on each -> plan -> job ->
 * ranks; back come output, endings, one cause, one exit status. */
#include <fcntl.h>
#include <unistd.h>

#include "launcher/cli/options.h"
#include "launcher/job/report.h"
#include "launcher/job/job.h"
#include "launcher/hosts/select.h"

extern char **environ;

/* Whoever started us may have closed 0, 1 or 2; a file of ours must not land there. */
static void own_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* A host that is lost before the ranks run could not be started: OTHERWISE. */
static int fail(struct session *s, int otherwise)
{
	int status = err_status(s->err.id);

	if (s->err.id == ERR_NONE)
		return otherwise;
	report_error(s, &s->err);
	return status == EXIT_LOST ? otherwise : status;
}

static int run(const struct request *r)
{
	struct session s;
	struct strv notes = { 0 };
	int status = EXIT_RUNNER, failed;

	session_open(&s, r);
	/* -H, host file or this machine */
	failed = hosts_select(&s.agents, &s.slots_from, r, &notes, &s.err);
	for (size_t i = 0; i < notes.n && r->verbosity >= 0; i++)
		report_note(&s, "runner: %s", notes.v[i]);
	strv_free(&notes);
	if (failed || session_gather(&s) || /* an agent on each, and its hello */
	    session_map(&s) ||              /* rank -> host */
	    session_place(&s)) {            /* rank -> GPU and cpus, by the agents */
		status = fail(&s, EXIT_START);
	} else if (r->plan != PLAN_OFF) {
		report_overload(&s);
		report_plan(&s);
		status = 0;
	} else if (session_run(&s)) { /* exec, output, input, signals, endings */
		status = fail(&s, EXIT_RUNNER);
	}
	session_leave(&s);
	if (s.output || s.signo) /* it ran, or somebody ended it before */
		status = session_status(&s);
	session_free(&s);
	return status;
}

int main(int argc, char **argv)
{
	struct request request;
	struct strv notes = { 0 };
	struct str print = { 0 };
	struct err e = { 0 };
	int status = 0;

	own_standard_files();
	switch (options_read(&request, &notes, &print, argc, argv, environ, &e)) {
	case OPTIONS_FAILED:
		err_print("runner", &e);
		status = err_status(e.id);
		break;
	case OPTIONS_PRINTED:
		fputs(str_text(&print), stdout);
		break;
	case OPTIONS_RUN:
		for (size_t i = 0; i < notes.n && request.verbosity >= 0; i++)
			fprintf(stderr, "runner: %s\n", notes.v[i]);
		status = run(&request);
	}
	options_free(&request);
	strv_free(&notes);
	str_free(&print);
	return status;
}
