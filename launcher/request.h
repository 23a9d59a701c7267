/* request.h - the job that the user asked for, from command line, environment and
 * config files; and sets of ranks.
 *
 * Plain data.  launcher/cli/options.c fills it, and all rooms may read it. */
#ifndef BERTH_LAUNCHER_REQUEST_H
#define BERTH_LAUNCHER_REQUEST_H

#include "common/job.h"
#include "launcher/hosts.h"

enum map_by { MAP_SLOT, MAP_NODE };
enum per_object { PER_NODE, PER_SOCKET, PER_NUMA }; /* of a host */
enum transport_choice {
	TRANSPORT_AUTO,
	TRANSPORT_LOCAL,
	TRANSPORT_SSH,
	TRANSPORT_OPENSSH,
	TRANSPORT_SRUN
};
enum tag_style { TAG_LONG, TAG_SHORT, TAG_NONE };
enum colour_when { COLOUR_AUTO, COLOUR_ALWAYS, COLOUR_NEVER };
enum plan_form { PLAN_OFF, PLAN_TEXT, PLAN_JSON, PLAN_SVG, PLAN_PNG };

enum summary_form { SUMMARY_NONE, SUMMARY_TEXT, SUMMARY_JSON };

/* One command line of a ":"-separated job. */
struct app {
	struct strv argv;     /* program and arguments; may be empty with --plan */
	int np;               /* its -np; 0: not given */
	char *np_from;        /* the source of np: "-np", "BERTH_NP", or NULL */
	struct strv export;   /* its -x, as typed: NAME, NAME=VALUE or 'PREFIX*' */
	char *wdir;           /* its --wdir, or NULL */
	enum tf_role tf_role; /* its --tf-config */
	/* For an app behind a ':'.  Those of the first app are the job's. */
	struct hosts hosts; /* its -H, or none */
	char *hosts_from;
	int per_host; /* its -ppn; 0: not given */
	char *per_host_from;
};

/* The addresses that begin as ADDRESS does, in its first BITS bits. */
struct net_range {
	bool v4;
	unsigned char address[16];
	unsigned bits;
};

/* The words of a list of GPUs, "0,3" or "GPU-1a2b, 20:00.0", to WORDS. */
void request_list_gpus(struct strv *words, const char *list);

/* A set of ranks that grows as ranks are added.  {0} is empty. */
struct rank_set {
	bool all;       /* it holds every rank; bits do not count */
	uint64_t *bits; /* bit r of word r/64 */
	size_t nwords;
};

void rank_set_add(struct rank_set *set, uint32_t rank);
bool rank_set_has(const struct rank_set *set, uint32_t rank);
/* Whether a rank of FROM or higher was added, and the first such rank. */
bool rank_set_first(const struct rank_set *set, uint32_t from, uint32_t *rank);
/* How many ranks were added. */
size_t rank_set_count(const struct rank_set *set);
/* Were the same ranks added to both? */
bool rank_set_equal(const struct rank_set *a, const struct rank_set *b);
/* Append the ranks that were added: "0,8-11". */
void rank_set_print(struct str *out, const struct rank_set *set);
/* SET is empty again. */
void rank_set_free(struct rank_set *set);

/* The user's wishes for the environment of all apps. */
struct asked_env {
	/* As -x, but for every app: BERTH_EXPORT, config files, -mca, -genv.  Of two
	 * entries for a name the later one counts.  The entries of an app come last. */
	struct strv export;
	char *file;
	/* --export: the variables that it names, as in export; whether only they
	 * travel. */
	struct strv forward;
	bool forward_listed;
	/* The BERTH_* variables that options read.  The ranks do not get them. */
	const char *const *options;
	size_t noptions;
	bool tf_config; /* a program has a role in TF_CONFIG */
};

/* How agents on hosts are started. */
struct reach {
	enum transport_choice transport;
	bool allow_same_host;
	int ssh_port;   /* 0: not given */
	char *identity; /* -i, or NULL */
	bool accept_new_hosts;
	char *agent;           /* --launch-agent, or NULL */
	struct net_range *net; /* net[0..nnet): --net; none: all addresses */
	size_t nnet;
	bool no_push;
	long start_timeout_ms;
	long host_timeout_ms; /* without a message */
	char *health;         /* --health-check, or NULL */
};

/* How the output of the ranks is shown, and where it is kept. */
struct output_look {
	char *dir; /* --output-filename, or NULL */
	enum tag_style tag_style;
	enum colour_when colour; /* of labels */
	bool timestamps;
	bool coalesce; /* equal lines of several ranks are one */
	bool sort;
	bool pty;             /* each rank has a terminal of its own */
	struct rank_set show; /* both streams of these ranks are shown; default: all */
	bool show_errors;     /* "errors" in --show: stderr of every rank as well */
};

/* When a rank hangs, and what is done then. */
#define ON_HANG_NAMES "report", "kill", "restart", "replace"
enum on_hang {
	ON_HANG_REPORT,
	ON_HANG_KILL,
	ON_HANG_RESTART,
	ON_HANG_REPLACE,
	ON_HANG_NOT_GIVEN
};
struct hang_limit {
	long ms;     /* 0: none */
	bool learns; /* from the pauses of the ranks; MS is the least */
	bool given;  /* by the user */
	enum on_hang on;
};

/* How ranks start, and start again, and which are taken for hanging. */
struct lives {
	int restarts; /* at most, after failures, */
	bool restarts_given;
	long span_ms; /* in so much time; 0: in all */
	enum replace replace;
	bool keep_going; /* a failure ends no other rank */
	bool warm;       /* ranks are forked from a process that has their modules */
	struct hang_limit hang;
};

/* A job whose number of ranks follows that of its hosts. */
struct growing {
	int min_np; /* 0: the number is fixed */
	int max_np;
	int min_nodes, max_nodes; /* --nnodes MIN:MAX; 0: not given */
	char *script;             /* --host-discovery-script, or NULL */
	int spares;               /* hosts without ranks whose agents listen */
	int slots;                /* of a host that it names without; 0: SLOTS_AUTO */
	long timeout_ms;          /* to wait for hosts that min_np needs */
	long cooldown_ms
		[2]; /* after it a lost host is tried again: at first, at most */
};

enum report_form { REPORT_HTML, REPORT_JSON, REPORT_FORMS };

/* --timeline, --timeline-steps */
struct timeline_wanted {
	char *file;                     /* or NULL */
	uint32_t first_step, last_step; /* from 1 on */
};

/* --summary, --monitor, --top, --report, --nccl-transports: what runner says of how the
 * job used its machines. */
struct insight {
	enum summary_form summary;
	long monitor_ms;    /* from one sample of the ranks to the next; 0: none */
	bool monitor_given; /* also if it is off */
	bool top, nccl_transports, no_ledger;
	char *report[REPORT_FORMS]; /* files, or NULL */
	struct timeline_wanted timeline;
};

enum { INSIGHT_MS = 1000 /* where an option needs samples and names no time */ };

/* How often ranks are sampled; 0: never. */
static inline uint32_t insight_period_ms(const struct insight *i)
{
	const bool wanted = i->top || i->report[REPORT_HTML] || i->report[REPORT_JSON];

	return wanted && !i->monitor_given ? (uint32_t)INSIGHT_MS
					   : (uint32_t)i->monitor_ms;
}

struct request {
	struct app *app;
	size_t napp; /* at least 1 */

	/* hosts and mapping */
	struct hosts hosts; /* -H, or none */
	char *hosts_from;   /* "-H", "BERTH_HOSTS", "hosts in /etc/..." */
	char *hostfile;
	struct strv
		rank_hosts; /* --rankfile: the host of each rank, as typed; or none */
	int per_host;       /* -ppn; 0: not given */
	enum per_object per_object; /* for each of which per_host ranks start */
	char *per_host_from;        /* its source, or NULL */
	enum map_by map_by;
	bool oversubscribe;
	bool hwthreads; /* --use-hwthread-cpus of mpirun: hardware threads are slots */
	int nodes;      /* the job must have so many hosts; 0: any number */

	/* environment */
	struct asked_env env;

	/* how hosts are reached */
	struct reach reach;
	long timeout_ms; /* 0: none */
	long kill_grace_ms;
	bool kill_grace_given;
	struct lives lives;
	struct growing growing;

	/* output and input */
	struct output_look output;
	struct insight insight;
	char *events_file;
	uint32_t stdin_rank; /* rank, STDIN_ALL or STDIN_NONE of wire.h; 0 by default */

	/* placement */
	enum bind_to bind_to;
	unsigned bind_count; /* N of core:N, at least 1 */
	enum share share;
	bool report_bindings;
	enum plan_form plan;
	bool check; /* say what a start would meet, start nothing */
	/* --topology: a file, and the host that it is meant for; "": each other one */
	struct strv topology, topology_host;
	struct strv gpus; /* --gpus: what names one, on any host; or none */
	enum gpu_visible gpu_visible;
	enum gpu_id gpu_id;
	bool no_gpu_sharing;

	enum mpi mpi;         /* what MPI programs are started by */
	enum horovod horovod; /* what `import horovod` gives them */
	char *berth_folder;   /* for PYTHONPATH, where it has berth; or NULL */

	int verbosity; /* -1 quiet, 0, 1, 2 */
};

#endif
