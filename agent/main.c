/* berth-agent - Berth's presence on one host.
 *
 * Read agent_main() and the calls below it in order; each step's header says the rest.
 *
 *   guard     two processes: kill -9 of either leaves nothing   guard.h
 *   topology  what machine is this, which GPUs                  topo.h gpu.h
 *   hello     tell the launcher                                 session.h
 *   job       its ranks come: a berth for each                  placing.c place.h
 *   start     the environment, then bind and exec               starting.c spawn.h
 *   watch     output, input, signals, endings, to the last      rank.h io.h
 *             those who use libberth find each other            service.h
 */
#include <event2/event.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/ranks/guard.h"
#include "agent/ranks/procs.h"
#include "agent/ranks/turns.h"
#include "common/loop.h"

static const char usage[] =
	"usage: berth-agent                 talk to runner on stdin and stdout\n"
	"       berth-agent --place FILE    the same for the machine of an XML file:\n"
	"                                   places ranks, starts none\n"
	"       berth-agent --sweep JOB     kill own processes whose environment\n"
	"                                   has BERTH_JOB=JOB; print how many\n"
	"       berth-agent --version       print the version\n"
	"       berth-agent --help          print this\n"
	"\n"
	"runner starts it on each host of a job.  See berth-agent(8).\n";

/* ---- topology and hello ---- */

static int find_machine(struct agent *a, struct err *e)
{
	const struct gpu_sources from = { .root = "",
					  .cuda_visible =
						  getenv("CUDA_VISIBLE_DEVICES"),
					  .cuda_order = getenv("CUDA_DEVICE_ORDER"),
					  .rocr_visible =
						  getenv("ROCR_VISIBLE_DEVICES") };

	if (topo_load(&a->topo, a->xml, e))
		return -1;
	gpu_find(&a->gpus, &a->topo, &from);
	return 0;
}

/* The address at which ssh reached us: "client port SERVER port". */
static char *own_address(void)
{
	const char *text = getenv("SSH_CONNECTION");
	char address[64] = "";

	if (!text || sscanf(text, "%*s %*s %63s", address) != 1)
		return xstrdup("");
	return xstrdup(address);
}

static void say_hello(struct agent *a)
{
	struct utsname u = { 0 };
	char *address = own_address();
	struct wire_hello m = { .version = BERTH_VERSION, .wire = WIRE_VERSION };

	uname(&u);
	if (!a->xml)
		port_hold(&a->port);
	m.hostname = u.nodename;
	m.arch = u.machine;
	m.cpus = a->topo.npu;
	m.cores = (uint32_t)a->topo.ncore;
	m.gpus = (uint32_t)a->gpus.n;
	m.address = address;
	m.port = a->port.number;
	m.clock_ns = clock_ns();
	wire_pack_hello(&a->stream.out, &m);
	free(address);
}

/* ---- job and start ---- */

static void on_job(void *ctx, const struct wire_job *job, const struct wire_app *app,
		   size_t napp)
{
	struct agent *a = ctx;

	a->job = job;
	a->app = app;
	a->napp = napp;
	if (job->master_port != a->port.number)
		port_release(&a->port);
	if (!a->xml && !(job->flags & JOB_PLAN))
		a->mark = procs_sweep_mark(job->job_id);
	ranks_begin(&a->ranks, a->base, &a->stream.out, job);
	agent_place(a);
}

static void on_start(void *ctx)
{
	struct agent *a = ctx;

	if (a->ranks.phase == RANKS_RUN) /* what was told to end does not start */
		agent_start(a);
}

/* ---- watch ---- */

static void on_input(void *ctx, const void *data, size_t n)
{
	struct agent *a = ctx;
	struct io *io = &a->ranks.io;
	struct err e;

	if (io->input.len + n <= IO_INPUT_BYTES) {
		io_input(io, data, n);
		return;
	}
	err_set(&e, E_WIRE, "more input than was granted");
	stream_refuse(&a->stream, &e);
}

static void on_credit(void *ctx, uint32_t bytes)
{
	struct agent *a = ctx;

	io_credit(&a->ranks.io, bytes);
}

static void on_signal(void *ctx, int signo, bool tree)
{
	struct agent *a = ctx;

	ranks_signal(&a->ranks, signo, tree);
}

static void on_end(void *ctx, uint32_t grace_ms)
{
	struct agent *a = ctx;

	ranks_end(&a->ranks, grace_ms);
}

static int on_library(void *ctx, const struct wire_frame *f, struct err *e)
{
	struct agent *a = ctx;

	return server_frame(a->server, f, e);
}

static void forget_job(struct agent *a)
{
	gpucheck_end(&a->check);
	server_free(a->server);
	a->server = NULL;
	ranks_free(&a->ranks);
	placement_free(&a->placement);
	gpu_free(&a->chosen); /* and its claims */
	if (a->mark >= 0)
		close(a->mark);
	a->mark = -1;
	a->job = NULL;
	a->placed = false;
	a->stream.busy = false;
}

/* The next epoch gets another port: the last one's may still have connections. */
static void hold_fresh_port(struct agent *a)
{
	struct port fresh;

	port_hold(&fresh);
	port_release(&a->port);
	a->port = fresh;
}

/* `gone` says that all of the job is: its claims on GPUs too. */
static void finish_job(struct agent *a)
{
	char *which = str_take(&a->ranks.which);
	struct wire_cleared m = { a->ranks.epoch, 0, a->ranks.left, which };

	forget_job(a);
	hold_fresh_port(a);
	m.port = a->port.number;
	wire_pack_cleared(&a->stream.out, &m);
	free(which);
}

static void on_turn(void *ctx)
{
	struct agent *a = ctx;

	if (!a->job)
		return;
	ranks_settle(&a->ranks);
	if (a->ranks.phase == RANKS_GONE)
		finish_job(a);
}

static void on_sweep(void *ctx, const char *job_id)
{
	struct agent *a = ctx;

	procs_sweep_job(job_id);
	wire_pack_cleared(&a->stream.out, &(struct wire_cleared){ .which = "" });
}

static void on_bye(void *ctx)
{
	struct agent *a = ctx;

	stream_stop(&a->stream);
}

/* The launcher or the guardian is gone: nobody waits for anything any more. */
static void on_lost(void *ctx)
{
	struct agent *a = ctx;

	a->status = a->job ? EXIT_RUNNER : 0;
	stream_stop(&a->stream);
}

static void on_guardian_gone(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	on_lost(arg);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	ranks_reap(&a->ranks);
}

/* Somebody on this host, or its resource manager, wants us to go: that is the ranks' to
 * hear. */
static void on_term(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	if (a->ranks.running)
		ranks_signal(&a->ranks, SIGTERM, false);
	else
		on_lost(a);
}

static const struct stream_calls calls = {
	.job = on_job,
	.start = on_start,
	.input = on_input,
	.credit = on_credit,
	.signal = on_signal,
	.end = on_end,
	.sweep = on_sweep,
	.library = on_library,
	.bye = on_bye,
	.lost = on_lost,
	.turn = on_turn,
};

static void watch(struct agent *a)
{
	a->stream.base = a->base;
	a->stream.calls = &calls;
	a->stream.ctx = a;
	stream_begin(&a->stream);
	a->child = evsignal_new(a->base, SIGCHLD, on_child, a);
	a->term = evsignal_new(a->base, SIGTERM, on_term, a);
	loop_watch(a->child);
	loop_watch(a->term);
	if (a->guardian < 0)
		return;
	a->guardian_gone =
		event_new(a->base, a->guardian, EV_READ, on_guardian_gone, a);
	loop_watch(a->guardian_gone);
}

/* ---- the whole ---- */

/* Up to three descriptors a rank: what this user may have, for us; ranks get their own
 * limit. */
static void raise_own_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

static void forget_machine(struct agent *a)
{
	stream_end(&a->stream);
	port_release(&a->port);
	gpu_free(&a->gpus);
	topo_free(&a->topo);
	event_free(a->child);
	event_free(a->term);
	if (a->guardian_gone)
		event_free(a->guardian_gone);
	event_base_free(a->base);
}

static int agent_main(const char *xml)
{
	enum { PATIENCE_MS = 5000 };
	struct agent a = {
		.xml = xml, .guardian = -1, .port = { .fd = -1 }, .mark = -1
	};
	struct err e = { 0 };

	if (!xml && (a.guardian = guard_split(&e)) < 0) {
		err_print("berth-agent", &e);
		return EXIT_RUNNER;
	}
	raise_own_limit();
	turns_short();
	signal(SIGPIPE, SIG_IGN);
	a.base = loop_open();
	watch(&a);
	if (find_machine(&a, &e)) {
		stream_log(&a.stream, LOG_ERROR, &e);
		stream_send_all(&a.stream, PATIENCE_MS);
		forget_machine(&a);
		return EXIT_RUNNER;
	}
	say_hello(&a);
	stream_loop(&a.stream);
	guard_kill_all(PATIENCE_MS);
	stream_send_all(&a.stream, 1000);
	forget_job(&a);
	forget_machine(&a);
	return a.status;
}

/* A launcher is at the other end of a pipe or a socket; a person is not. */
static bool has_launcher(void)
{
	struct stat st;

	return !fstat(STDIN_FILENO, &st) &&
	       (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

int main(int argc, char **argv)
{
	if (argc == 1 && has_launcher())
		return agent_main(NULL);
	if (argc == 3 && !strcmp(argv[1], "--place") && has_launcher())
		return agent_main(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "--sweep") && *argv[2]) {
		printf("%zu\n", procs_sweep_job(argv[2]));
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		printf("berth-agent %s\n", BERTH_VERSION);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc == 1 || !strcmp(argv[1], "--place"))
		fputs("berth-agent: runner starts this program on each host of a job; "
		      "it is "
		      "not for the command line (berth-agent --help)\n",
		      stderr);
	else
		fprintf(stderr, "berth-agent: unknown arguments from '%s' on\n%s",
			argv[1], usage);
	return EXIT_USAGE;
}
