/* runner - start a parallel program on many machines, each rank in its berth.
 *
 * argv, environment, config -> request -> hosts -> an agent on each -> plan -> job ->
 * ranks; back come output, exits, one cause, one exit status. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/cli/lint.h"
#include "launcher/cli/options.h"
#include "launcher/hosts/in_front.h"
#include "launcher/hosts/select.h"
#include "launcher/job/dump_ask.h"
#include "launcher/job/job.h"
#include "launcher/job/phase.h"
#include "launcher/output/nccl_log.h"
#include "launcher/trace/trace_merge.h"

extern char **environ;

/* The program that started runner may have closed 0, 1 or 2.  No file of runner's may
 * take their place. */
static void own_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static void print_notes(const struct strv *notes, const struct request *r)
{
	for (size_t i = 0; i < notes->n && r->verbosity >= 0; i++)
		fprintf(stderr, "runner: %s\n", notes->v[i]);
}

/* Whether another launcher has started several of this runner.  One of them says it. */
static bool is_one_of_many(int *status)
{
	const struct in_front f = { environ, getpid(), isatty(STDIN_FILENO) };
	struct err e = { 0 };
	bool say;

	if (!in_front_check(&f, &say, &e))
		return false;
	if (say)
		err_print("runner", &e);
	*status = err_status(e.id);
	return true;
}

/* The job of R, from its hosts to its exit status. */
static int main_run(const struct request *r)
{
	struct strv notes = { 0 };
	struct selection hosts = { 0 };
	struct err e = { 0 };
	const bool none = hosts_select(&hosts, r, &notes, &e) != 0;
	struct job j;
	int status, death;

	print_notes(&notes, r);
	if (hosts.warning)
		fprintf(stderr, "runner: %s\n", hosts.warning);
	strv_free(&notes);
	job_open(&j, r, &hosts, none ? &e : NULL); /* signals are its events now */
	/* agents, plan, berths, ranks; output, exits, one cause */
	status = job_run(&j);
	death = phase_death(&j);
	job_free(&j);
	if (death) { /* so that a shell's loop sees it */
		signal(death, SIG_DFL);
		raise(death);
	}
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
	signal(SIGCHLD, SIG_DFL); /* else the kernel reaps our children */
	switch (options_read(&request, &notes, &print, OPTIONS_SITE_FILE, argc, argv,
			     environ, &e)) {
	case OPTIONS_FAILED:
		err_print("runner", &e);
		status = err_status(e.id);
		break;
	case OPTIONS_PRINTED:
		fputs(str_text(&print), stdout);
		break;
	case OPTIONS_LINT:
		lint_exec(&request.app->argv, &e);
		err_print("runner", &e);
		status = err_status(e.id);
		break;
	case OPTIONS_DUMP:
		if (dump_ask_job(request.app->argv.n ? request.app->argv.v[0] : "",
				 &e)) {
			err_print("runner", &e);
			status = err_status(e.id);
		}
		break;
	case OPTIONS_TRACE:
		if (trace_merge_files(&request.app->argv, &e)) {
			err_print("runner", &e);
			status = err_status(e.id);
		}
		break;
	case OPTIONS_NCCL_LOG:
		status = nccl_log_files(&request.app->argv, &e);
		if (status < 0) {
			err_print("runner", &e);
			status = err_status(e.id);
		}
		break;
	case OPTIONS_RUN:
		if (is_one_of_many(&status))
			break;
		print_notes(&notes, &request);
		status = main_run(&request);
	}
	options_free(&request);
	strv_free(&notes);
	str_free(&print);
	return status;
}
