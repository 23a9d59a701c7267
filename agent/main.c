/* berth-agent - Berth's presence on one host.
 *
 * Read agent_main() first, then this file from top to bottom.  Each step's header says
 * the rest.
 *
 *   guard     two processes: kill -9 of either leaves nothing   ranks/guard.h
 *   topology  what machine is this, which GPUs                  placement/topo.h gpu.h
 *   hello     tell the launcher                                 stream.h messages.c
 *   job       its ranks come: a berth for each                  job_place.c
 *   start     the environment, then bind and exec               job_start.c
 *   watch     output, input, signals, exits, to the last        ranks/rank.h io.h
 *             ranks that use libberth or MPI find each other    pmi/server.h
 */
#include <event2/event.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/connect.h"
#include "agent/copy.h"
#include "agent/nccl_check.h"
#include "agent/pmi/pmix_child.h"
#include "agent/pmi/pmix_folder.h"
#include "agent/ranks/guard.h"
#include "agent/ranks/procs.h"
#include "agent/step.h"
#include "common/loop.h"

/* ---- topology and hello ---- */

/* Two agents on one machine have the same text.  Containers and network namespaces of
 * one kernel are machines of their own. */
static void name_machine(char *text, size_t n)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	char boot[64] = "";
	struct stat net, pid;

	if (f && fscanf(f, "%63s", boot) == 1 && !stat("/proc/self/ns/net", &net) &&
	    !stat("/proc/self/ns/pid", &pid))
		snprintf(text, n, "%s %ju %ju", boot, (uintmax_t)net.st_ino,
			 (uintmax_t)pid.st_ino);
	if (f)
		fclose(f);
}

static void say_hello(struct agent *a)
{
	/* "client port SERVER port": the address at which ssh reached us */
	const char *connection = getenv("SSH_CONNECTION");
	char address[64] = "", machine[256] = "";
	struct utsname own = { 0 };

	if (!a->xml)
		name_machine(machine, sizeof machine);
	if (a->side)
		connect_own_address(address, sizeof address);
	else if (connection && sscanf(connection, "%*s %*s %63s", address) != 1)
		*address = '\0';
	if (!a->xml)
		port_hold(&a->port);
	uname(&own);
	wire_pack_hello(&a->stream.out,
			&(struct wire_hello){ .version = BERTH_VERSION,
					      .wire = WIRE_VERSION,
					      .cpus = a->topo.npu,
					      .cores = (uint32_t)a->topo.ncore,
					      .gpus = (uint32_t)a->gpus.n,
					      .sockets = topo_sockets(&a->topo),
					      .numas = topo_numas(&a->topo),
					      .address = address,
					      .port = a->port.number,
					      .machine = machine,
					      .own = own.nodename });
}

/* ---- watch ---- */

/* The launcher or the guardian is lost: nothing waits for the ranks any more. */
static void main_leave(struct agent *a)
{
	if (!a->done)
		a->status = a->job ? EXIT_RUNNER : 0;
	a->done = true;
}

static void on_guardian_gone(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	main_leave(arg);
}

/* TERM: a user of this host, or its resource manager, wants us to go.  The ranks
 * decide.  Slurm may tell agents alone, and not all of them: so the launcher tells all
 * ranks.  Where hosts may go while the job runs, it leaves this one. */
static void on_signal(evutil_socket_t signo, short what, void *arg)
{
	struct agent *a = arg;

	(void)what;
	if (signo == SIGCHLD)
		ranks_reap(&a->ranks);
	else if (a->side || (a->job && a->job->flags & JOB_GROWS))
		wire_pack_terminate(&a->stream.out, &(struct wire_terminate){});
	else if (a->ranks.running)
		ranks_signal(&a->ranks, SIGTERM, false);
	else
		main_leave(a);
}

/* `cleared` also says that the job's claims on GPUs are given back.  The next epoch
 * gets another port: the last one's may still have connections.  The cgroup goes first:
 * after `cleared` nobody sweeps this host, even if this agent is killed. */
static void finish_job(struct agent *a)
{
	enum { LEAVE_MS = 100 }; /* for a cgroup whose processes are dead or stuck */
	char *which = str_take(&a->ranks.which);
	const struct cgroup_use use = cgroup_used(a->guarded.cgroup);
	struct wire_cleared m = { .epoch = a->epoch,
				  .unkillable = a->ranks.unkillable,
				  .which = which,
				  .cpu_us = use.cpu_us,
				  .peak_bytes = use.peak_bytes };
	struct port fresh;

	agent_forget_job(a);
	cgroup_remove(a->guarded.cgroup, LEAVE_MS);
	port_hold(&fresh);
	port_release(&a->port);
	a->port = fresh;
	m.port = fresh.number;
	wire_pack_cleared(&a->stream.out, &m);
	free(which);
}

static void main_watch(struct agent *a)
{
	struct buf *in = &a->stream.in;

	while (!a->done) {
		struct wire_frame f;
		struct err e = { 0 };
		long n = 0;

		stream_turn(&a->stream);
		while (!a->done && (n = wire_next_from(WIRE_LAUNCHER, &f, buf_head(in),
						       in->len, &e)) > 0) {
			if (agent_take(a, &f, &e)) {
				n = -1;
				break;
			}
			buf_drop(in, (size_t)n);
		}
		if (n < 0) {
			stream_log(&a->stream, LOG_ERROR, &e);
			stream_send_all(&a->stream, 100);
		}
		if (n < 0 || a->stream.lost)
			main_leave(a);
		if (!a->job)
			continue;
		agent_settle(a);
		ranks_settle(&a->ranks);
		if (a->ranks.phase == RANKS_CLEARED)
			finish_job(a);
	}
}

/* ---- the whole ---- */

static void main_begin(struct agent *a)
{
	signal(SIGPIPE, SIG_IGN);
	a->base = loop_open();
	stream_begin(&a->stream, a->base, a->side);
	a->child = evsignal_new(a->base, SIGCHLD, on_signal, a);
	a->term = evsignal_new(a->base, SIGTERM, on_signal, a);
	loop_watch(a->child);
	loop_watch(a->term);
	if (a->guardian < 0)
		return;
	a->copy = copy_keep(a->base, "/proc/self/exe", COPY_PERIOD_S);
	a->guardian_gone =
		event_new(a->base, a->guardian, EV_READ, on_guardian_gone, a);
	loop_watch(a->guardian_gone);
}

static void main_end(struct agent *a)
{
	agent_forget_job(a);
	stream_end(&a->stream);
	port_release(&a->port);
	ports_release(&a->ports);
	gpu_free(&a->gpus);
	topo_free(&a->topo);
	event_free(a->child);
	event_free(a->term);
	if (a->copy)
		event_free(a->copy);
	if (a->guardian_gone)
		event_free(a->guardian_gone);
	event_base_free(a->base);
}

static int agent_main(const char *xml, struct key_side *side)
{
	enum { PATIENCE_MS = 5000 };
	struct agent a = { .xml = xml,
			   .side = side,
			   .guardian = -1,
			   .port = { .fd = -1 },
			   .job_socket = -1 };
	const struct gpu_sources from = { .root = "",
					  .cuda_visible =
						  getenv("CUDA_VISIBLE_DEVICES"),
					  .cuda_order = getenv("CUDA_DEVICE_ORDER"),
					  .rocr_visible =
						  getenv("ROCR_VISIBLE_DEVICES") };
	struct err e = { 0 };
	struct rlimit l;

	if (!xml && (a.guardian = guard_split(&a.guarded, &e)) < 0) {
		err_print("berth-agent", &e);
		return EXIT_RUNNER;
	}
	/* A rank takes up to four descriptors of ours; it gets a limit of its own. */
	if (!getrlimit(RLIMIT_NOFILE, &l)) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
	main_begin(&a);
	if (!topo_load(&a.topo, a.xml, &e)) {
		gpu_find(&a.gpus, &a.topo, &from);
		say_hello(&a);
		/* while the launcher makes its plan */
		stream_send(&a.stream);
		/* Slurm ends what is in a cgroup of its own: ranks stay there. */
		if (!getenv("SLURM_JOB_ID"))
			cgroup_locate(a.guarded.cgroup);
		main_watch(&a);
		warm_free(a.warm);
		guard_kill_all(&a.guarded, PATIENCE_MS);
		stream_send_all(&a.stream, 1000);
	} else {
		stream_log(&a.stream, LOG_ERROR, &e);
		stream_send_all(&a.stream, PATIENCE_MS);
		a.status = EXIT_RUNNER;
	}
	main_end(&a);
	return a.status;
}

static const char usage[] =
	"usage: berth-agent                 talk to runner on stdin and stdout\n"
	"       berth-agent --connect=HOW   talk to the runner that stdin names, by\n"
	"                                   MUNGE (munge, munge:SOCKET) or in clear\n"
	"       berth-agent --place FILE    the same for the machine of an XML file:\n"
	"                                   places ranks, starts none\n"
	"       berth-agent --step          a berth for each task of a Slurm step;\n"
	"                                   berth_spank.so asks on stdin\n"
	"       berth-agent --sweep JOB     kill own processes whose environment\n"
	"                                   has BERTH_JOB=JOB; print how many\n"
	"       berth-agent --version       print the version\n"
	"       berth-agent --help          print this\n"
	"\n"
	"runner starts it on each host of a job.  See berth-agent(8).\n";

int main(int argc, char **argv)
{
	static const char calls[] = "--connect=";
	struct call_how how;
	struct key_side side;
	struct err e = { 0 };
	struct stat st;
	/* A launcher is at the other end of a pipe or a socket; a person is not. */
	bool launched = !fstat(STDIN_FILENO, &st) &&
			(S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));

	if (argc == 1 && launched)
		return agent_main(NULL, NULL);
	if (argc == 2 && !strncmp(argv[1], calls, sizeof calls - 1) && launched &&
	    call_how_read(&how, argv[1] + sizeof calls - 1)) {
		/* Slurm started this process */
		if (connect_launcher(&how, &side, &e)) {
			err_print("berth-agent", &e);
			return EXIT_RUNNER;
		}
		connect_environment();
		return agent_main(NULL, &side);
	}
	if (argc == 3 && !strcmp(argv[1], "--place") && launched)
		return agent_main(argv[2], NULL);
	if (argc == 2 && !strcmp(argv[1], "--pmix") && launched)
		return pmix_child_main(STDIN_FILENO);
	if (argc == 3 && !strcmp(argv[1], "--nccl"))
		nccl_check_main(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "--step") && launched)
		return step_main(STDIN_FILENO, STDOUT_FILENO);
	if (argc == 3 && !strcmp(argv[1], "--sweep") && *argv[2]) {
		printf("%zu\n", procs_sweep_job(argv[2]));
		pmix_folders_sweep();
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
	if (argc == 1 || !strcmp(argv[1], "--place") || !strcmp(argv[1], "--step") ||
	    !strncmp(argv[1], calls, sizeof calls - 2))
		fputs("berth-agent: runner starts this program on each host of a job; "
		      "it is not for the command line (berth-agent --help)\n",
		      stderr);
	else
		fprintf(stderr, "berth-agent: unknown arguments from '%s' on\n%s",
			argv[1], usage);
	return EXIT_USAGE;
}
