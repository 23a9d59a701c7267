#include "launcher/cli/compat.h"

#include <ctype.h>

#include "launcher/cli/exports.h"
#include "launcher/cli/values.h"

/* ---- readers for the options of other launchers ---- */

static int compat_ignore(const struct setting *s, const struct compat *c,
			 const char *const value[2], struct err *e)
{
	(void)value, (void)e;
	value_ignored(s, s->typed, c->text);
	return 0;
}

static int not_supported(const char *what, const struct compat *c, const char *hint,
			 struct err *e)
{
	err_set(e, E_FOREIGN, what, c->tool);
	return err_hint(e, "%s", hint);
}

static int compat_refuse(const struct setting *s, const struct compat *c,
			 const char *const value[2], struct err *e)
{
	(void)value;
	return not_supported(s->typed, c, c->text, e);
}

/* VALUE for the option NAME of ours. */
static int set_option(const struct setting *s, const char *name, const char *value,
		      struct err *e)
{
	struct setting own = *s;
	bool no;

	own.option = option_find(name, &no);
	return own.option->set(&own, value, e);
}

/* The text is an option of ours that takes the same value. */
static int same_value(const struct setting *s, const struct compat *c,
		      const char *const value[2], struct err *e)
{
	return set_option(s, c->text, value[0], e);
}

/* The text is an option of ours, and its value if it takes one: "map-by=node". */
static int compat_same(const struct setting *s, const struct compat *c,
		       const char *const value[2], struct err *e)
{
	size_t n = strcspn(c->text, "=");
	char *name = xstrndup(c->text, n);
	int rc = set_option(s, name, c->text[n] ? c->text + n + 1 : NULL, e);

	(void)value;
	free(name);
	return rc;
}

/* NAME=VALUE for every rank of the job; with APP for the ranks of this app only. */
static int compat_give(const struct setting *s, bool app, const char *name,
		       const char *value, struct err *e)
{
	char *entry = xasprintf("%s=%s", name, value);
	int rc = 0;

	if (strchr(name, '*') || strchr(name, '='))
		rc = exports_refuse(name, e);
	else if (app)
		rc = value_export(s, entry, e);
	else
		strv_add(&s->r->env.export, entry);
	free(entry);
	return rc;
}

/* The text is "NAME=VALUE". */
static int set_fixed(const struct setting *s, const struct compat *c,
		     const char *const value[2], struct err *e)
{
	(void)value, (void)e;
	strv_add(&s->r->env.export, c->text);
	return 0;
}

/* The text is the variable that gets the value.  The next four do the same. */
static int set_text(const struct setting *s, const struct compat *c,
		    const char *const value[2], struct err *e)
{
	if (!*value[0])
		return err_set(e, E_OPTION_EMPTY);
	return compat_give(s, false, c->text, value[0], e);
}

static int set_number(const struct setting *s, const struct compat *c,
		      const char *const value[2], struct err *e)
{
	long n;

	if (str_to_long(&n, value[0], 0, 2147483647, e))
		return -1;
	return compat_give(s, false, c->text, value[0], e);
}

static int set_decimal(const struct setting *s, const struct compat *c,
		       const char *const value[2], struct err *e)
{
	char *end;
	double n = strtod(value[0], &end);

	if (!isdigit((unsigned char)*value[0]) || *end || !(n >= 0 && n < 1e15))
		return err_set(e, E_DECIMAL, value[0]);
	return compat_give(s, false, c->text, value[0], e);
}

static int set_mib(const struct setting *s, const struct compat *c,
		   const char *const value[2], struct err *e)
{
	char bytes[32];
	long n;

	if (str_to_long(&n, value[0], 0, 1 << 20, e))
		return -1;
	snprintf(bytes, sizeof bytes, "%ld", n << 20);
	return compat_give(s, false, c->text, bytes, e);
}

static int set_log_level(const struct setting *s, const struct compat *c,
			 const char *const value[2], struct err *e)
{
	static const char *const names[] = { "TRACE", "DEBUG", "INFO", "WARNING",
					     "ERROR", "FATAL", NULL };

	for (size_t i = 0; names[i]; i++)
		if (!strcmp(names[i], value[0]))
			return compat_give(s, false, c->text, value[0], e);
	return value_none_of(value[0], names, e);
}

/* A list of network interfaces: NCCL gets all, Horovod's gloo gets the first. */
static int set_interfaces(const struct setting *s, const struct compat *c,
			  const char *const value[2], struct err *e)
{
	char *first = xstrndup(value[0], strcspn(value[0], ","));
	int rc = *first ? 0 : err_set(e, E_OPTION_EMPTY);

	if (!rc)
		rc = compat_give(s, false, "HOROVOD_GLOO_IFACE", first, e) ||
		     compat_give(s, false, c->text, value[0], e);
	free(first);
	return rc ? -1 : 0;
}

static int set_pair(const struct setting *s, const struct compat *c,
		    const char *const value[2], struct err *e)
{
	return compat_give(s, c->flags & OPTION_APP, value[0], value[1], e);
}

/* -genvlist A,B: -x of each name. */
static int set_list(const struct setting *s, const struct compat *c,
		    const char *const value[2], struct err *e)
{
	char *copy = xstrdup(value[0]), *rest = copy, *name;
	struct setting own = *s;
	int rc = 0;

	if (!(c->flags & OPTION_APP))
		own.source = FROM_ENV; /* every app of the job */
	while (!rc && (name = strsep(&rest, ",")))
		rc = value_export(&own, name, e);
	free(copy);
	return rc;
}

/* The number of hosts, which the job must have. */
static int set_nodes(const struct setting *s, const struct compat *c,
		     const char *const value[2], struct err *e)
{
	char *what = xasprintf("%s %s", s->typed, value[0]);
	int rc = 0;
	long n;

	if (strpbrk(value[0], ":-,"))
		rc = not_supported(what, c, c->text, e);
	else if (!(rc = str_to_long(&n, value[0], 1, HOSTS_MOST, e)))
		s->r->nodes = (int)n;
	free(what);
	return rc;
}

/* MIN:MAX hosts, or a number of them. */
static int set_node_range(const struct setting *s, const struct compat *c,
			  const char *const value[2], struct err *e)
{
	const char *colon = strchr(value[0], ':');
	char *least = colon ? xstrndup(value[0], (size_t)(colon - value[0])) : NULL;
	long min, max;
	int rc;

	if (!colon)
		return set_nodes(s, c, value, e);
	rc = str_to_long(&min, least, 1, HOSTS_MOST, e) ||
	     str_to_long(&max, colon + 1, min, HOSTS_MOST, e);
	free(least);
	if (rc)
		return -1;
	s->r->growing.min_nodes = (int)min;
	s->r->growing.max_nodes = (int)max;
	return 0;
}

/* From the first number of seconds to the second. */
static int set_cooldown(const struct setting *s, const struct compat *c,
			const char *const value[2], struct err *e)
{
	enum { DAY_S = 24 * 3600 };
	long n[2];

	(void)c;
	for (size_t i = 0; i < 2; i++) {
		if (str_to_long(&n[i], value[i], 0, DAY_S, e))
			return -1;
		s->r->growing.cooldown_ms[i] = n[i] * 1000;
	}
	return 0;
}

/* Hardware threads are slots.  compat_settle() knows whether the number of slots
 * counts. */
static int set_hwthreads(const struct setting *s, const struct compat *c,
			 const char *const value[2], struct err *e)
{
	(void)c, (void)value, (void)e;
	s->r->hwthreads = true;
	return 0;
}

/* --input of srun: a rank, all, none, or a file. */
static int set_stdin(const struct setting *s, const struct compat *c,
		     const char *const value[2], struct err *e)
{
	if (set_option(s, "stdin", value[0], NULL))
		return compat_refuse(s, c, value, e);
	return 0;
}

/* --kill-on-bad-exit[=0|1] */
static int set_kill(const struct setting *s, const struct compat *c,
		    const char *const value[2], struct err *e)
{
	if (value[0] && !strcmp(value[0], "0"))
		return set_option(s, "keep-going", NULL, e);
	return compat_ignore(s, c, value, e);
}

static bool has_prefix(const char *list, const char *name)
{
	const char *prefix;
	size_t n;

	while ((n = option_next_name(&list, &prefix)))
		if (!strncmp(prefix, name, n))
			return true;
	return false;
}

/* The text is the variable; or it says why parameters of PRRTE, which are for the
 * daemons of Open MPI, are ignored. */
static int set_mca(const struct setting *s, const struct compat *c,
		   const char *const value[2], struct err *e)
{
	/* These say which processes run where. */
	static const char mapping[] =
		"rmaps_ ras_ orte_default_hostfile prte_default_hostfile orte_hostfile "
		"orte_rankfile hwloc_base_cpu_ prte_set_";
	/* These are for Open MPI's launcher, not for its library. */
	static const char launcher[] =
		"plm_ oob_ orte_ prte_ routed_ ess_ odls_ grpcomm_ hwloc_base_ iof_ "
		"filem_ state_";
	struct str shown = { 0 };
	const char *what;
	const bool pmix = !strncmp(c->text, "PMIX", 4);
	char *name = xasprintf("%s_MCA_%s", pmix ? "PMIX" : "OMPI", value[0]);
	int rc = 0;

	str_addf(&shown, "%s %s ", s->typed, value[0]);
	str_add_value(&shown, value[0], value[1]);
	what = str_text(&shown);
	if (pmix)
		rc = compat_give(s, s->app != s->r->app, name, value[1], e);
	else if (has_prefix(mapping, value[0]))
		rc = not_supported(what, c,
				   "say where ranks run with -H, -ppn and --map-by", e);
	else if (!strchr(c->text, '='))
		value_ignored(s, what, c->text);
	else if (has_prefix(launcher, value[0]))
		value_ignored(s, what, "it is for Open MPI's own launcher");
	else /* in the first app it is for the whole job, as in mpirun */
		rc = compat_give(s, s->app != s->r->app, name, value[1], e);
	str_free(&shown);
	free(name);
	return rc;
}

/* Words that some options take, in a list with commas. */
static const struct {
	const char *of;     /* the option of the other launcher */
	const char *name;   /* the word */
	const char *option; /* the same option of ours; NULL: the word is ignored */
	const char *text;   /* the value of that option; or why the word is ignored */
} words[] = {
	{ "display", "bind", "report-bindings", NULL },
	{ "display", "bindings", "report-bindings", NULL },
	{ "display", "map", NULL, "--plan shows the map" },
	{ "display", "map-devel", NULL, "--plan shows the map" },
	{ "display", "allocation", NULL, "--plan shows the hosts" },
	{ "display", "topo", NULL, "lstopo shows the topology" },
	{ "output", "tag", "tag", NULL },
	{ "output", "rank", "tag", NULL },
	{ "output", "tag-detailed", "tag", NULL },
	{ "output", "tag-fullname", "tag", NULL },
	{ "output", "timestamp", "timestamps", NULL },
	{ "rank-by", "slot", NULL, "ranks are numbered in the order of the hosts" },
	{ "rank-by", "fill", NULL, "ranks are numbered in the order of the hosts" },
	{ "launcher", "ssh", NULL, "hosts are reached by ssh anyway" },
	{ "launcher", "rsh", NULL, "hosts are reached by ssh" },
	{ "launcher", "fork", "transport", "local" },
	{ "cpu-bind", "none", "bind-to", "none" },
	{ "cpu-bind", "no", "bind-to", "none" },
	{ "cpu-bind", "cores", "bind-to", "core" },
	{ "cpu-bind", "threads", "bind-to", "hwthread" },
	{ "cpu-bind", "sockets", "bind-to", "socket" },
	{ "cpu-bind", "ldoms", "bind-to", "numa" },
	{ "cpu-bind", "verbose", "report-bindings", NULL },
	{ "cpu-bind", "v", "report-bindings", NULL },
	{ "cpu-bind", "quiet", NULL, "--report-bindings prints bindings" },
	{ "cpu-bind", "q", NULL, "--report-bindings prints bindings" },
	{ "gpu-bind", "closest", NULL, "ranks run next to their GPUs" },
	{ "gpu-bind", "single:1", NULL, "each rank gets one GPU" },
	{ "gpu-bind", "per_task:1", NULL, "each rank gets one GPU" },
	{ "gpus-per-task", "1", NULL, "each rank gets one GPU" },
	{ "distribution", "block", "map-by", "slot" },
	{ "distribution", "cyclic", "map-by", "node" },
};

static int compat_read_words(const struct setting *s, const struct compat *c,
			     const char *const value[2], struct err *e)
{
	char *copy = xstrdup(value[0]), *rest = copy, *name;
	const size_t n = sizeof words / sizeof *words;
	int rc = 0;

	while (!rc && (name = strsep(&rest, ","))) {
		char *what = xasprintf("%s %s", s->typed, name);
		size_t i = 0;

		while (i < n && (strcasecmp(words[i].name, name) ||
				 !option_named(c->names, words[i].of)))
			i++;
		if (i == n)
			rc = not_supported(what, c, c->text, e);
		else if (words[i].option)
			rc = set_option(s, words[i].option, words[i].text, e);
		else
			value_ignored(s, what, words[i].text);
		free(what);
	}
	free(copy);
	return rc;
}

/* ---- the table ---- */

#define OMPI "Open MPI"
#define HYDRA "MPICH"
#define HVD "horovodrun"
#define MPIEXEC "mpiexec"
#define TORCHRUN "torchrun"
#define SRUN "srun"
#define TORCHRUN_SRUN "torchrun and srun"

#define WHERE "say where ranks run with -H, -ppn and --map-by"
#define NOT_MPI "it only chooses Horovod's controller"
#define MEETING "ranks meet at MASTER_ADDR:MASTER_PORT, which runner chooses"
#define NODES "name the hosts with -H, as many as the job shall have"
#define ONE_GPU                                                                        \
	"each rank gets one GPU of its host; --gpus says which GPUs, and "             \
	"--gpu-visible node shows all"
#define ALLOCATE "allocate hosts with salloc or sbatch, and name them with -H"
#define OF_SLURM "it is for Slurm"
#define WHOLE_OUTPUT "all output is shown; --log-dir DIR also writes it to files"
#define NO_NOISE "it is for Open MPI's own launcher"

/* clang-format off */
const struct compat compat_table[] = {
	/* Open MPI */
	{ "--mca -gmca", OMPI, 2, set_mca, "OMPI_MCA_A=B", OPTION_APP },
	{ "--omca", OMPI, 2, set_mca, "OMPI_MCA_A=B", OPTION_APP },
	{ "--pmixmca --gpmixmca", OMPI, 2, set_mca, "PMIX_MCA_A=B", OPTION_APP },
	{ "--prtemca", OMPI, 2, set_mca, NO_NOISE, 0 },
	{ "--allow-run-as-root", OMPI, 0, compat_ignore, "root may run jobs", 0 },
	{ "--bynode", OMPI, 0, compat_same, "map-by=node", 0 },
	{ "--byslot", OMPI, 0, compat_same, "map-by=slot", 0 },
	{ "--pernode", OMPI, 0, compat_same, "ppn=1", OPTION_APP },
	{ "--nooversubscribe", OMPI, 0, compat_same, "oversubscribe=no", 0 },
	{ "--bind-to-core", OMPI, 0, compat_same, "bind-to=core", 0 },
	{ "--bind-to-socket", OMPI, 0, compat_same, "bind-to=socket", 0 },
	{ "--bind-to-none", OMPI, 0, compat_same, "bind-to=none", 0 },
	{ "--rank-by", OMPI, 1, compat_read_words, "ranks are numbered host by host, or in turn with --map-by node", 0 },
	{ "--display", OMPI, 1, compat_read_words, "--display takes bind, map, allocation", 0 },
	{ "--display-map --display-devel-map --display-allocation", OMPI, 0, compat_ignore, "--plan shows it", 0 },
	{ "--output", OMPI, 1, compat_read_words, "--output takes tag and timestamp; --output-filename DIR writes files", 0 },
	{ "--merge-stderr-to-stdout", OMPI, 0, compat_ignore, "stderr stays stderr", 0 },
	{ "--cpus-per-proc --cpus-per-rank", OMPI, 1, compat_ignore, "--bind-to core:N gives a rank N cores", 0 },
	{ "--personality", OMPI, 1, compat_ignore, NO_NOISE, 0 },
	{ "--noprefix", OMPI, 0, compat_ignore, NO_NOISE, 0 },
	{ "--debug-daemons --leave-session-attached --novm --show-progress --stream-buffering", OMPI, 0, compat_ignore, NO_NOISE, 0 },
	{ "--report-state-on-timeout --get-stack-traces", OMPI, 0, compat_ignore, "Ctrl-\\ shows the state of every rank", 0 },
	{ "--prefix", OMPI, 1, compat_refuse, "give the ranks the paths: -x PATH=DIR/bin:$PATH -x LD_LIBRARY_PATH=DIR/lib", 0 },
	{ "--npersocket", OMPI, 1, compat_refuse, WHERE, 0 },
	{ "--nolocal", OMPI, 0, compat_refuse, "name the hosts with -H, without this one", 0 },
	{ "--cpu-set --cpu-list", OMPI, 1, compat_refuse, "--bind-to and --share say which CPUs; taskset(1) and cgroups limit them", 0 },
	{ "--use-hwthread-cpus", OMPI, 0, set_hwthreads, "give the number of ranks with -np or -ppn", 0 },
	{ "--default-hostfile", OMPI, 1, compat_refuse, "use --hostfile", 0 },
	{ "--preload-binary --preload-files", OMPI, 0, compat_refuse, "copy the program to the hosts first, or use a shared directory", 0 },
	{ "--tune -am", OMPI, 1, compat_refuse, "give the parameters with -mca", 0 },
	{ "--runtime-options --rtos", OMPI, 1, compat_refuse, "see --plan, --timeout, --keep-going", 0 },
	{ "--enable-recovery --continuous", OMPI, 0, compat_refuse, "see --keep-going", 0 },
	{ "--app", OMPI, 1, compat_refuse, "write the programs on the command line, with ':' between them", 0 },
	{ "-c", OMPI, 1, compat_refuse, "use -np for the number of ranks, --bind-to core:N for CPUs", 0 },

	/* mpiexec of MPICH, Intel MPI and the MPI standard */
	{ "--genv", HYDRA, 2, set_pair, "A=B", 0 },
	{ "--env", HYDRA, 2, set_pair, "A=B", OPTION_APP },
	{ "--genvlist", HYDRA, 1, set_list, "-x of each name", 0 },
	{ "--envlist", HYDRA, 1, set_list, "-x of each name", OPTION_APP },
	{ "--genvall", HYDRA, 0, compat_ignore, "the environment is forwarded anyway", 0 },
	{ "--envall", HYDRA, 0, compat_ignore, "the environment is forwarded anyway", OPTION_APP },
	{ "--genvnone", HYDRA, 0, compat_same, "export=none", 0 },
	{ "--envnone", HYDRA, 0, compat_refuse, "use --export none, for all programs of the job", OPTION_APP },
	{ "--launcher --bootstrap", HYDRA, 1, compat_read_words, "see --transport", 0 },
	{ "--disable-auto-cleanup", HYDRA, 0, compat_same, "keep-going", 0 },
	{ "--disable-hostname-propagation", HYDRA, 0, compat_ignore, "it is for MPICH's own launcher", 0 },
	{ "--iface", HYDRA, 1, compat_ignore, "the agents need no interface", 0 },
	{ "--prepend-pattern", HYDRA, 1, compat_ignore, "see --tag and --timestamps", 0 },
	{ "--outfile-pattern --errfile-pattern", HYDRA, 1, compat_refuse, "use --output-filename DIR", 0 },
	{ "--launcher-exec --bootstrap-exec --rmk", HYDRA, 1, compat_refuse, "see --transport and --launch-agent", 0 },
	{ "--configfile", MPIEXEC, 1, compat_refuse, "write the programs on the command line, with ':' between them", 0 },
	{ "--arch --soft --path --file", MPIEXEC, 1, compat_refuse, WHERE, 0 },

	/* horovodrun */
	{ "--gloo", HVD, 0, compat_ignore, NOT_MPI, 0 },
	{ "--jsrun", HVD, 0, compat_ignore, NOT_MPI, 0 },
	{ "--disable-cache", HVD, 0, compat_ignore, "nothing is cached", 0 },
	{ "--network-interfaces --network-interface", HVD, 1, set_interfaces, "NCCL_SOCKET_IFNAME", 0 },
	{ "--tcp", HVD, 0, set_fixed, "NCCL_IB_DISABLE=1", 0 },
	{ "--fusion-threshold-mb", HVD, 1, set_mib, "HOROVOD_FUSION_THRESHOLD", 0 },
	{ "--cycle-time-ms", HVD, 1, set_decimal, "HOROVOD_CYCLE_TIME", 0 },
	{ "--cache-capacity", HVD, 1, set_number, "HOROVOD_CACHE_CAPACITY", 0 },
	{ "--hierarchical-allreduce", HVD, 0, set_fixed, "HOROVOD_HIERARCHICAL_ALLREDUCE=1", 0 },
	{ "--no-hierarchical-allreduce", HVD, 0, set_fixed, "HOROVOD_HIERARCHICAL_ALLREDUCE=0", 0 },
	{ "--hierarchical-allgather", HVD, 0, set_fixed, "HOROVOD_HIERARCHICAL_ALLGATHER=1", 0 },
	{ "--no-hierarchical-allgather", HVD, 0, set_fixed, "HOROVOD_HIERARCHICAL_ALLGATHER=0", 0 },
	{ "--torus-allreduce", HVD, 0, set_fixed, "HOROVOD_TORUS_ALLREDUCE=1", 0 },
	{ "--no-torus-allreduce", HVD, 0, set_fixed, "HOROVOD_TORUS_ALLREDUCE=0", 0 },
	{ "--autotune", HVD, 0, set_fixed, "HOROVOD_AUTOTUNE=1", 0 },
	{ "--no-autotune", HVD, 0, set_fixed, "HOROVOD_AUTOTUNE=0", 0 },
	{ "--autotune-log-file", HVD, 1, set_text, "HOROVOD_AUTOTUNE_LOG", 0 },
	{ "--autotune-warmup-samples", HVD, 1, set_number, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", 0 },
	{ "--autotune-steps-per-sample", HVD, 1, set_number, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", 0 },
	{ "--autotune-bayes-opt-max-samples", HVD, 1, set_number, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 0 },
	{ "--autotune-gaussian-process-noise", HVD, 1, set_decimal, "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", 0 },
	{ "--timeline-filename", HVD, 1, set_text, "HOROVOD_TIMELINE", 0 },
	{ "--timeline-mark-cycles", HVD, 0, set_fixed, "HOROVOD_TIMELINE_MARK_CYCLES=1", 0 },
	{ "--no-timeline-mark-cycles", HVD, 0, set_fixed, "HOROVOD_TIMELINE_MARK_CYCLES=0", 0 },
	{ "--no-stall-check", HVD, 0, set_fixed, "HOROVOD_STALL_CHECK_DISABLE=1", 0 },
	{ "--stall-check", HVD, 0, set_fixed, "HOROVOD_STALL_CHECK_DISABLE=0", 0 },
	{ "--stall-check-warning-time-seconds", HVD, 1, set_number, "HOROVOD_STALL_CHECK_TIME_SECONDS", 0 },
	{ "--stall-check-shutdown-time-seconds", HVD, 1, set_number, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0 },
	{ "--mpi-threads-disable", HVD, 0, set_fixed, "HOROVOD_MPI_THREADS_DISABLE=1", 0 },
	{ "--no-mpi-threads-disable", HVD, 0, set_fixed, "HOROVOD_MPI_THREADS_DISABLE=0", 0 },
	{ "--num-nccl-streams", HVD, 1, set_number, "HOROVOD_NUM_NCCL_STREAMS", 0 },
	{ "--thread-affinity", HVD, 1, set_text, "HOROVOD_THREAD_AFFINITY", 0 },
	{ "--gloo-timeout-seconds", HVD, 1, set_number, "HOROVOD_GLOO_TIMEOUT_SECONDS", 0 },
	{ "--log-level", HVD, 1, set_log_level, "HOROVOD_LOG_LEVEL", 0 },
	{ "--log-without-timestamp --no-log-with-timestamp --log-hide-timestamp", HVD, 0, set_fixed, "HOROVOD_LOG_HIDE_TIME=1", 0 },
	{ "--log-with-timestamp --no-log-hide-timestamp", HVD, 0, set_fixed, "HOROVOD_LOG_HIDE_TIME=0", 0 },
	{ "--reset-limit", HVD, 1, same_value, "restarts", 0 },
	{ "--blacklist-cooldown-range", HVD, 2, set_cooldown, "--host-cooldown", 0 },
	{ "--mpi-args --binding-args", HVD, 1, compat_refuse, "give these as options of runner, one by one", 0 },

	/* torchrun */
	{ "--nnodes", TORCHRUN, 1, set_node_range, NODES, 0 },
	{ "--standalone", TORCHRUN, 0, compat_ignore, MEETING, 0 },
	{ "--rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --local-addr", TORCHRUN, 1, compat_ignore, MEETING, 0 },
	{ "--master-addr", TORCHRUN, 1, set_text, "MASTER_ADDR", 0 },
	{ "--master-port", TORCHRUN, 1, set_number, "MASTER_PORT", 0 },
	{ "--role", TORCHRUN, 1, set_text, "ROLE_NAME", 0 },
	{ "--node-rank", TORCHRUN, 1, compat_refuse, "start runner once, on one machine, and name all hosts with -H", 0 },
	{ "--module -m", TORCHRUN, 0, compat_refuse, "write the command: python -m MODULE", 0 },
	{ "--run-path", TORCHRUN, 0, compat_refuse, "write the command: python FILE", 0 },
	{ "--no-python", TORCHRUN, 0, compat_ignore, "the program is started as it is", 0 },
	{ "--redirects --tee --duplicate-stdout-filters --duplicate-stderr-filters", TORCHRUN, 1, compat_ignore, WHOLE_OUTPUT, 0 },
	{ "--local-ranks-filter", TORCHRUN, 1, compat_refuse, "use --show", 0 },
	{ "--virtual-local-rank", TORCHRUN, 0, compat_refuse, "--gpu-visible one shows each rank its own GPU, as device 0", 0 },
	{ "--numa-binding", TORCHRUN, 1, compat_ignore, "ranks run next to their GPUs; see --bind-to and --share", 0 },
	{ "--monitor-interval --start-method --event-log-handler --logs-specs --signals-to-handle --shutdown-timeout", TORCHRUN, 1, compat_ignore, "it is for torchrun's own agent", 0 },
	{ "-t", TORCHRUN_SRUN, 1, compat_refuse, "use --timeout for a time limit, --log-dir for files", 0 },
	{ "-r", TORCHRUN_SRUN, 1, compat_refuse, "use -H to name hosts, --log-dir for files", 0 },

	/* srun */
	{ "--nodes", SRUN, 1, set_nodes, NODES, 0 },
	{ "-w --nodelist", SRUN, 1, same_value, "hosts", 0 },
	{ "-F --nodefile", SRUN, 1, same_value, "hostfile", 0 },
	{ "-D", SRUN, 1, same_value, "wdir", OPTION_APP },
	{ "-O --overcommit", SRUN, 0, compat_same, "oversubscribe", 0 },
	{ "--cpu-bind", SRUN, 1, compat_read_words, "--bind-to and --share say which CPUs a rank gets", 0 },
	{ "--gpu-bind", SRUN, 1, compat_read_words, ONE_GPU, 0 },
	{ "--gpus-per-task", SRUN, 1, compat_read_words, ONE_GPU, 0 },
	{ "-G --gpus-per-node --gpus-per-socket --gres --tres-per-task", SRUN, 1, compat_refuse, ONE_GPU, 0 },
	{ "--distribution", SRUN, 1, compat_read_words, "see --map-by", 0 },
	{ "--input", SRUN, 1, set_stdin, "use < FILE; --stdin says which rank reads it", 0 },
	{ "-o -e --error", SRUN, 1, compat_refuse, "use > FILE, or --output-filename DIR, which writes a file for each rank", 0 },
	{ "-u --unbuffered", SRUN, 0, compat_ignore, "lines are shown as they come; --pty makes C programs write line by line", 0 },
	{ "-K --kill-on-bad-exit", SRUN, 0, set_kill, "the first failure ends the job", OPTION_OPTIONAL },
	{ "-k --no-kill", SRUN, 0, compat_refuse, "see --keep-going and --restarts", 0 },
	{ "-W --wait", SRUN, 1, compat_refuse, "see --timeout and --keep-going", 0 },
	{ "--time", SRUN, 1, compat_refuse, "use --timeout, as in --timeout 90m", 0 },
	{ "--export-file", SRUN, 1, compat_refuse, "use --env-file", 0 },
	{ "--cpus-per-task --cpus-per-gpu", SRUN, 1, compat_ignore, "--bind-to core:N gives a rank N cores", 0 },
	{ "--threads-per-core --hint --mem-bind", SRUN, 1, compat_refuse, "--bind-to and --share say which CPUs a rank gets", 0 },
	{ "--ntasks-per-socket --ntasks-per-core --ntasks-per-gpu --relative --exclude", SRUN, 1, compat_refuse, WHERE, 0 },
	{ "--multi-prog", SRUN, 0, compat_refuse, "write the programs on the command line, with ':' between them", 0 },
	{ "--bcast", SRUN, 0, compat_refuse, "copy the program to the hosts first, or use a shared directory", OPTION_OPTIONAL },
	{ "-J --job-name --comment", SRUN, 1, compat_ignore, OF_SLURM, 0 },
	{ "--exclusive --overlap --exact", SRUN, 0, compat_ignore, OF_SLURM, OPTION_OPTIONAL },
	{ "-A --account --partition --qos --reservation -C --constraint --jobid --mem --mem-per-cpu --mem-per-gpu", SRUN, 1, compat_refuse, ALLOCATE, 0 },
};
/* clang-format on */

const size_t compat_count = sizeof compat_table / sizeof *compat_table;

/* Variables of Horovod's that libberth only names in its log. */
static const struct {
	const char *name, *why;
} nothing[] = {
#define PARAM(...)
#define IGNORED(name, why) { #name, why },
#include "lib/core/params.def"
#undef PARAM
#undef IGNORED
};

/* The number of ranks follows from -np or -ppn of each app of R. */
static bool has_number(const struct request *r)
{
	for (size_t a = 0; a < r->napp; a++)
		if (!r->app[a].np && !r->app[a].per_host && !r->per_host)
			return false;
	return true;
}

int compat_settle(const struct request *r, struct strv *notes, struct err *e)
{
	static const char hwthreads[] = "--use-hwthread-cpus";
	const struct setting s = { .notes = notes };

	for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
		const char *value = strv_env_get(&r->env.export, nothing[i].name);

		if (r->horovod == HOROVOD_BERTH && value && strcmp(value, "0") != 0)
			value_ignored(&s, nothing[i].name, nothing[i].why);
	}
	if (r->hwthreads && !has_number(r))
		return not_supported(hwthreads, compat_find(hwthreads),
				     compat_find(hwthreads)->text, e);
	if (r->hwthreads)
		value_ignored(&s, hwthreads, "-np or -ppn says how many ranks start");
	return 0;
}

const struct compat *compat_find(const char *name)
{
	for (size_t i = 0; i < compat_count; i++)
		if (option_named(compat_table[i].names, name))
			return &compat_table[i];
	return NULL;
}

const char *compat_fate(const struct compat *c)
{
	if (c->read == compat_ignore || (c->read == set_mca && !strchr(c->text, '=')))
		return "ignored";
	if (c->read == compat_refuse)
		return "refused";
	if (c->read == compat_same || c->read == same_value)
		return "same as";
	if (c->read == set_nodes || c->read == set_node_range)
		return "checked";
	return c->read == set_hwthreads || c->read == compat_read_words ||
			       c->read == set_stdin || c->read == set_kill
		       ? "in part"
		       : "sets";
}
