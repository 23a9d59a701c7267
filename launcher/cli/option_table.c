#include "launcher/cli/option_table.h"

#include <ctype.h>

#include "launcher/cli/exports.h"
#include "launcher/cli/rankfile.h"
#include "launcher/cli/roles.h"
#include "launcher/cli/values.h"

static const char *const bind_names[] = { BIND_TO_NAMES, NULL };
static const char *const share_names[] = { SHARE_NAMES, NULL };
static const char *const visible_names[] = { GPU_VISIBLE_NAMES, NULL };
static const char *const gpu_id_names[] = { GPU_ID_NAMES, NULL };
static const char *const on_hang_names[] = { ON_HANG_NAMES, NULL };
static const char *const replace_names[] = { REPLACE_NAMES, NULL };
static const char *const mpi_names[] = { MPI_NAMES, NULL };
static const char *const horovod_names[] = { HOROVOD_NAMES, NULL };
static const char *const role_names[] = { TF_ROLE_NAMES, NULL };
static const char *const map_names[] = { "slot", "node", NULL };
static const char *const transport_names[] = { "auto",    "local", "ssh",
					       "openssh", "srun",  NULL };
static const char *const export_names[] = { "all", "none", NULL };
static const char *const plan_names[] = { "text", "json", "svg", "png", NULL };
static const char *const summary_names[] = { "none", "text", "json", NULL };
static const char *const tag_names[] = { "long", "short", "none", NULL };
static const char *const colour_names[] = { "auto", "always", "never", NULL };
static const char *const stdin_names[] = { "0", "all", "none", NULL };

/* A setter, and the cells that it uses. */
#define SWITCH(field) .set = value_switch, .at = offsetof(struct request, field)
#define TEXT(field) .set = value_text, .at = offsetof(struct request, field)
#define NUMBER(field, least, most)                                                     \
	.set = value_number, .at = offsetof(struct request, field), .min = (least),    \
	.max = (most)
#define SECONDS(setter, field, least)                                                  \
	.set = (setter), .at = offsetof(struct request, field), .min = (least),        \
	.max = SECONDS_MAX
#define CHOICE(field, names)                                                           \
	.set = value_choice, .at = offsetof(struct request, field), .choices = (names)

enum { SECONDS_MAX = 30 * 24 * 3600 }; /* fits a u32 of milliseconds */

/* clang-format off */
const struct option option_table[] = {
	/* ---- ranks ---- */
	{ "-np -n --num-proc --ntasks", "N", TOPIC_ranks, OPTION_COMMON | OPTION_APP | OPTION_GLUE,
	  "np", "BERTH_NP", .set = value_ranks, .at = offsetof(struct app, np),
	  .min = 1, .max = RANKS_MAX,
	  .help = "start N ranks",
	  .text = "Start N ranks. The default is all slots of the hosts. On this machine alone it "
		  "is one rank per GPU, or per core if there is no GPU. In a job of several "
		  "programs each has its own -np, and BERTH_NP does not count." },
	{ "-ppn --npernode -N --nproc-per-node --ntasks-per-node --perhost", "N", TOPIC_ranks,
	  OPTION_COMMON | OPTION_GLUE | OPTION_LATER,
	  "ppn", "BERTH_PPN", .set = value_ranks, .at = offsetof(struct request, per_host),
	  .min = 1, .max = RANKS_MAX,
	  .help = "N ranks on each host",
	  .text = "Start N ranks on each host, whatever its number of slots. Without -np every host "
		  "gets N. With -np the hosts are filled in order until there are enough ranks. "
		  "In a job of several programs the first one's N counts all ranks on a host; a "
		  "program with its own -H or -ppn counts its own alone. "
		  "Inside a Slurm job N may go up to the CPUs that the job has on each host; with "
		  "--oversubscribe above them." },
	{ "--min-np --min-num-proc", "N", TOPIC_ranks, 0,
	  "min-np", "BERTH_MIN_NP", NUMBER(growing.min_np, 1, RANKS_MAX),
	  .help = "go on with as few as N ranks",
	  .text = "Let the number of ranks follow the hosts, from N on: a start takes as many ranks as "
		  "the hosts that are up have slots for, at most --max-np. If a host is lost, or does "
		  "not come up, the others do with fewer ranks. runner tries that host again after "
		  "--host-cooldown. If the script of --host-discovery-script names other hosts, or one "
		  "is back, all ranks are ended and started again, as many as there is room for then. "
		  "A host whose agent gets TERM, as from a system that shuts down, is left in the same way, and "
		  "not used again; inside Slurm that ends the job. "
		  "The ranks get TERM first, and have --kill-grace to write a checkpoint. That counts as no "
		  "restart. Ranks that change their world by themselves (berth_elastic(3), "
		  "hvd.elastic.run) go on instead: without the ranks of a host that is lost, or that the "
		  "script names no more, and with those that start on a host that came, from the next "
		  "change on. A rank keeps its number, RANK and the name of its files; one that comes "
		  "later may get that of a lost one. Stdin goes to no rank that comes later. If too few hosts are left, runner waits up to --elastic-timeout for others. "
		  "Without --restarts a failure is followed by a restart, 3 times at most in any hour. "
		  "The default is -np if a script names the hosts, else 1 if --max-np is given." },
	{ "--max-np --max-num-proc", "N", TOPIC_ranks, 0,
	  "max-np", "BERTH_MAX_NP", NUMBER(growing.max_np, 1, RANKS_MAX),
	  .help = "start up to N ranks where hosts have slots",
	  .text = "Start at most N ranks in a job whose number of ranks follows the hosts, see "
		  "--min-np. The default is -np." },
	{ "--map-by", "slot|node", TOPIC_ranks, 0,
	  "map-by", "BERTH_MAP_BY", .set = value_map_by, .choices = map_names,
	  .help = "fill host after host, or one rank each in turn",
	  .text = "Choose in which order the hosts get ranks. slot, the default, fills the slots of "
		  "a host before the next one. node gives each host one rank in turn. ppr:N:node is "
		  "the same as -ppn N; ppr:N:socket and ppr:N:numa start N ranks for each socket, or "
		  "each NUMA node with CPUs, of a host. The CPUs and the GPU of a rank do not depend on it: see "
		  "--bind-to." },
	{ "--oversubscribe", NULL, TOPIC_ranks, OPTION_SWITCH,
	  "oversubscribe", "BERTH_OVERSUBSCRIBE", SWITCH(oversubscribe),
	  .help = "allow more ranks than slots",
	  .text = "Allow more ranks on a host than it has slots. The limit is max_slots of the "
		  "hostfile, if that is given." },
	{ "--wdir -wd --chdir", "DIR", TOPIC_ranks, OPTION_COMMON | OPTION_APP | OPTION_DIR,
	  "wdir", "BERTH_WDIR", .set = value_text, .at = offsetof(struct app, wdir),
	  .help = "run the program in DIR",
	  .text = "Run the program in the directory DIR. DIR must exist on each host. The default "
		  "is the directory in which runner was started." },

	{ "--mpi", "auto|pmix|pmi1|none", TOPIC_ranks, OPTION_OPTIONAL,
	  "mpi", "BERTH_MPI", .set = value_mpi, .at = offsetof(struct request, mpi),
	  .choices = mpi_names,
	  .help = "how MPI programs find each other",
	  .text = "Choose how the ranks of an MPI program find each other. pmix: each host has a PMIx "
		  "server, for programs of Open MPI. pmi1: each rank gets a connection that speaks "
		  "PMI-1, for programs of MPICH and Intel MPI. none: MPI_Init finds no "
		  "launcher. auto, the default: both, unless no program can use MPI. Write the "
		  "value behind '=': --mpi without a value is horovodrun's, and changes nothing." },

	{ "--horovod", "berth|installed", TOPIC_ranks, OPTION_OPTIONAL,
	  "horovod", "BERTH_HOROVOD", .set = value_horovod, .at = offsetof(struct request, horovod),
	  .choices = horovod_names,
	  .help = "scripts that import horovod run on berth",
	  .text = "Let the ranks find Berth under the name horovod: `import horovod.torch` then uses "
		  "libberth, and the script needs no change. Directories of Berth are put in front "
		  "of PYTHONPATH; each host must have them, see `make install`, where nobody but root, "
		  "you or the owner of runner can write. An installed Horovod is hidden, and one line "
		  "says so. --horovod=installed leaves PYTHONPATH as it is. "
		  "That is the default, unless runner is started under the name horovodrun." },

	{ "--tf-config", "worker|chief|ps|evaluator|none", TOPIC_ranks, OPTION_APP | OPTION_OPTIONAL,
	  "tf-config", "BERTH_TF_CONFIG", .set = value_tf_config, .at = offsetof(struct app, tf_role),
	  .choices = role_names,
	  .help = "TF_CONFIG for TensorFlow's own strategies",
	  .text = "Give the ranks TF_CONFIG, for MultiWorkerMirroredStrategy and the other strategies "
		  "of TensorFlow. It names the address of each rank; its port is free for the rank, "
		  "taken for other programs, and a new one after a restart. Each rank is a worker, or "
		  "what is behind '='. In a job of several programs each has its own role, and those "
		  "that name none are workers: runner --tf-config=chief -np 1 train : -np 4 train : "
		  "--tf-config=ps -np 2 server. Ranks with the role ps are ended once all others have "
		  "ended. An evaluator knows the others, and they do not know it. A program with none "
		  "gets no TF_CONFIG. A TF_CONFIG that you set stands. The option excludes --horovod." },

	/* ---- hosts ---- */
	{ "-H --hosts --host --hostlist", "LIST", TOPIC_hosts, OPTION_COMMON | OPTION_LATER,
	  "hosts", "BERTH_HOSTS", .set = value_hosts,
	  .help = "hosts and their slots: ip1:8,ip2:8",
	  .text = "Run the job on the hosts in LIST. The number after a colon says how many ranks a "
		  "host takes (its slots): ip1:8,user@ip2:8, gpu[01-16]:8, [fe80::1]:8. A host "
		  "without a number has one slot; a:gpus has one slot for each of its GPUs. Of two "
		  "numbers the first is the port of its sshd: ip1:2222:8. If a host is named again, "
		  "its slots are added. Without hosts the job runs on all hosts of the resource "
		  "manager's job that runner is in, else on this machine. Inside such a job LIST "
		  "chooses some of its hosts: one without a number has the slots that the job has "
		  "there, and no number may be higher. In a job of several programs the first one's "
		  "LIST is also for those without one. A program behind a ':' may have its own -H, "
		  "unless the hosts are in a file. It runs only on the hosts in its LIST, after a "
		  "restart, too. A host in several LISTs has the slots of all. Inside a resource "
		  "manager's job they must fit into its slots; a program with its own -H gets "
		  "slots before one without." },
	{ "--hostfile --machinefile -f", "FILE", TOPIC_hosts, OPTION_COMMON | OPTION_FILE,
	  "hostfile", "BERTH_HOSTFILE", .set = value_hostfile,
	  .help = "read the hosts from FILE",
	  .text = "Read the hosts from FILE, one on each line: 'ip1 slots=8 max_slots=8', 'ip1:8', "
		  "or 'ip1' repeated. 'ip1 slots=8 port=2222' or 'ip1:2222:8' has the port of its "
		  "sshd. Empty lines and lines that begin with # are ignored. '-' reads"
		  " standard input to its end, so that the ranks read end of file." },
	{ "--host-discovery-script", "COMMAND", TOPIC_hosts, OPTION_FILE,
	  "host-discovery-script", "BERTH_HOST_DISCOVERY_SCRIPT", TEXT(growing.script),
	  .help = "the hosts are those that COMMAND prints, each second",
	  .text = "Run COMMAND with /bin/sh each second: it prints a line for each host that the job may "
		  "use now, as in a host file: host or host:slots. A host that it names no more is left; "
		  "one that is new gets ranks, see --min-np. If COMMAND ends with another status than 0, "
		  "or runs for more than 30 seconds, the job ends the first time; later the hosts stay "
		  "as they are. -H and --hostfile cannot go with it." },
	{ "--slots-per-host --slots", "N", TOPIC_hosts, 0,
	  "slots-per-host", "BERTH_SLOTS_PER_HOST", NUMBER(growing.slots, 1, HOST_SLOTS_MAX),
	  .help = "slots of hosts that the script names without",
	  .text = "Give N slots to each host that the script of --host-discovery-script names without a "
		  "number. The default is one slot for each GPU, else for each core." },
	{ "--rankfile -rf", "FILE", TOPIC_hosts, OPTION_FILE,
	  "rankfile", "BERTH_RANKFILE", .set = value_rankfile,
	  .help = "the host of each rank: 'rank 0=ip1' a line",
	  .text = "Read the host of each rank from FILE, which has a line 'rank N=HOST slot=CPUS' for "
		  "each rank from 0 on, as for mpirun. The hosts of the job are those in FILE, in the "
		  "order of their first ranks. What slot= says is ignored, and a note says so: each "
		  "rank gets CPUs near its GPU, see --bind-to. A host is a name; +n0 is an error." },
	{ "-p --ssh-port", "PORT", TOPIC_hosts, OPTION_GLUE,
	  "ssh-port", "BERTH_SSH_PORT", NUMBER(reach.ssh_port, 1, 65535),
	  .help = "port of sshd on the hosts",
	  .text = "Connect to sshd on this port, on all hosts. The default is the port in "
		  "ssh_config(5), else 22. -H and --hostfile can give a host its own." },
	{ "-i --ssh-identity-file", "FILE", TOPIC_hosts, OPTION_FILE,
	  "ssh-identity-file", "BERTH_SSH_IDENTITY_FILE", TEXT(reach.identity),
	  .help = "private key for ssh",
	  .text = "Log in with the private key in FILE. It is tried before the keys of "
		  "ssh_config(5) and of the ssh agent." },
	{ "--accept-new-hosts", NULL, TOPIC_hosts, OPTION_SWITCH,
	  "accept-new-hosts", "BERTH_ACCEPT_NEW_HOSTS", SWITCH(reach.accept_new_hosts),
	  .help = "trust hosts that are not in known_hosts",
	  .text = "Trust a host that is not in known_hosts, and add its key there, as "
		  "StrictHostKeyChecking accept-new does. A key that has changed is still refused." },
	{ "--transport", "auto|local|ssh|openssh|srun", TOPIC_hosts, 0,
	  "transport", "BERTH_TRANSPORT", CHOICE(reach.transport, transport_names),
	  .help = "how agents are started",
	  .text = "Choose how runner starts an agent on a host. local: without ssh, for this "
		  "machine only. ssh: with libssh. openssh: with the ssh command. srun: "
		  "by Slurm, in a job of Slurm only; see berth-slurm(7). auto, the default: srun in "
		  "a job of Slurm; else local for this machine, and ssh for others, or openssh if "
		  "ssh_config(5) or known_hosts needs a feature that libssh does not have, or "
		  "says what runner does not read with certainty." },
	{ "--launch-agent", "PATH", TOPIC_hosts, OPTION_FILE,
	  "launch-agent", "BERTH_LAUNCH_AGENT", TEXT(reach.agent),
	  .help = "where berth-agent is on the hosts",
	  .text = "Start berth-agent on the hosts from PATH. The default is the berth-agent next to "
		  "runner, else the one in PATH, else a copy that is sent. PATH is not started where "
		  "any user could replace it; see berth-agent(8)." },
	{ "--no-push", NULL, TOPIC_hosts, OPTION_SWITCH,
	  "no-push", "BERTH_NO_PUSH", SWITCH(reach.no_push),
	  .help = "never send the agent to a host",
	  .text = "Do not send the agent to a host. The job fails if the host has no agent, or one "
		  "of another version." },

	{ "--allow-same-host", NULL, TOPIC_hosts, OPTION_SWITCH,
	  "allow-same-host", "BERTH_ALLOW_SAME_HOST", SWITCH(reach.allow_same_host),
	  .help = "let several names stand for one machine",
	  .text = "Run on a machine that the list of hosts has under several names, as on "
		  "several hosts. Each of them gets all CPUs and GPUs. Without the option this is "
		  "an error. Containers and network namespaces of one machine count as different "
		  "machines." },

	/* ---- environment ---- */
	{ "-x", "NAME[=VALUE]", TOPIC_environment, OPTION_COMMON | OPTION_APP | OPTION_MANY,
	  "export", "BERTH_EXPORT", .set = value_export,
	  .help = "set a variable for the ranks; may be repeated",
	  .text = "Set the variable NAME for the ranks, to VALUE or, without one, to its value "
		  "here. 'PREFIX*' sets all variables whose names begin with PREFIX. The "
		  "environment is forwarded anyway; -x also forwards variables that are left out. "
		  "In BERTH_EXPORT spaces separate the entries; in a config file each entry has its "
		  "own line." },
	{ "--export", "all|none|LIST", TOPIC_environment, 0,
	  "forward", "BERTH_FORWARD", .set = value_forward, .choices = export_names,
	  .help = "variables that travel: all, none or a LIST",
	  .text = "Forward all variables of the environment here (the default), none, or those in "
		  "LIST, as srun does. LIST is NAME or NAME=VALUE with commas between them; a value "
		  "with a comma needs quotes around its entry: \"'A=1,2',B\". With none or a LIST "
		  "ranks also get PATH and HOME of their host, what runner gives each rank, and "
		  "what -x and --env-file set, and nothing else. ALL,A=1 forwards all, and sets A "
		  "if it is not set here; what follows NONE does not count." },
	{ "--env-file", "FILE", TOPIC_environment, OPTION_FILE,
	  "env-file", "BERTH_ENV_FILE", TEXT(env.file),
	  .help = "variables for the ranks, NAME=VALUE a line",
	  .text = "Set variables for the ranks from FILE. Each line is NAME=VALUE, quoted as for "
		  "sh; nothing is expanded. Empty lines and lines that begin with # are ignored. If "
		  "-x sets the same variable, -x counts." },

	{ "--net", "RANGE[,RANGE...]", TOPIC_environment, 0,
	  "net", NULL, .set = value_net,
	  .help = "addresses that libberth's ranks may use",
	  .text = "Connect the ranks only through addresses in these ranges, such as 10.0.0.0/8 or "
		  "fd00::/8. The ranks get the list as BERTH_NET, see berth(3). By default each "
		  "host uses the interface that leads to its peers." },

	/* ---- ending ---- */
	{ "--timeout", "TIME", TOPIC_ending, OPTION_COMMON,
	  "timeout", "BERTH_TIMEOUT", SECONDS(value_seconds, timeout_ms, 0),
	  .help = "end the job after TIME: 90, 5m, 1h",
	  .text = "End the job after TIME, with exit status 124. TIME is in seconds, or has s, m, h "
		  "or d behind the number, which may have a fraction: 0.5, 1.5h. 0, the default, means no limit." },
	{ "--start-timeout", "TIME", TOPIC_ending, 0,
	  "start-timeout", "BERTH_START_TIMEOUT", SECONDS(value_seconds, reach.start_timeout_ms, 1),
	  .help = "give up if hosts aren't up after TIME (30)",
	  .text = "Give up, with exit status 240, if not every host has a running agent after TIME. "
		  "The default is 30 seconds. A host that refuses the connection is tried again until "
		  "then. After one second runner shows which hosts it waits for, and why. Without a "
		  "terminal this is one warning. -q hides it." },
	{ "--host-timeout", "TIME", TOPIC_ending, 0,
	  "host-timeout", "BERTH_HOST_TIMEOUT", SECONDS(value_seconds, reach.host_timeout_ms, 1),
	  .help = "give up a host silent for TIME (60)",
	  .text = "Give up a host that sends nothing for TIME; the exit status is then 241. The "
		  "default is 60 seconds." },
	{ "--health-check", "COMMAND", TOPIC_hosts, OPTION_FILE,
	  "health-check", "BERTH_HEALTH_CHECK", TEXT(reach.health),
	  .help = "ranks start on hosts where COMMAND ends with 0",
	  .text = "Run COMMAND with /bin/sh on each host before ranks start there: at the start, after "
		  "a restart of all ranks, and on a host that comes later. If it ends with another status "
		  "than 0, or runs longer than --start-timeout, that host counts as lost: the job ends, "
		  "or with --min-np or --spares goes to other hosts, and tries that one again as "
		  "--host-cooldown says. The error shows the last line that it printed. It runs in the "
		  "working directory and environment of the first rank there, unbound and with all GPUs." },
	{ "--spares", "N", TOPIC_hosts, 0,
	  "spares", "BERTH_SPARES", NUMBER(growing.spares, 1, 65536),
	  .help = "keep the agents of N unused hosts up",
	  .text = "Keep the agents of up to N hosts up that have no ranks, so that they can take those of a "
		  "lost host at once. Without it such a host gets an agent only when it is needed. The "
		  "option lets the number of ranks follow the hosts, see --min-np; the least is -np "
		  "unless --min-np says less." },
	{ "--host-cooldown", "TIME", TOPIC_ending, 0,
	  "host-cooldown", "BERTH_HOST_COOLDOWN", SECONDS(value_seconds, growing.cooldown_ms[0], 0),
	  .help = "try a lost host again after TIME (60)",
	  .text = "Try a host that was lost again after TIME, if the number of ranks follows the hosts "
		  "(--min-np): after twice as long each further time, an hour at most. The default is "
		  "60 seconds." },
	{ "--elastic-timeout", "TIME", TOPIC_ending, 0,
	  "elastic-timeout", "BERTH_ELASTIC_TIMEOUT", SECONDS(value_seconds, growing.timeout_ms, 1),
	  .help = "wait TIME for hosts that --min-np needs (600)",
	  .text = "Wait up to TIME for hosts if there are too few for --min-np. The default is "
		  "10 minutes." },
	{ "--kill-grace", "TIME", TOPIC_ending, 0,
	  "kill-grace", "BERTH_KILL_GRACE", SECONDS(value_grace, kill_grace_ms, 0),
	  .help = "from TERM to KILL, after a failure (10)",
	  .text = "Give the ranks TIME to end before KILL. After a failure the other ranks get "
		  "TERM, and KILL after TIME. After ^C they have TIME to end by themselves, then "
		  "they get TERM and KILL. The default is 10 seconds. In the job of a resource "
		  "manager a TERM or HUP has no such limit unless TIME is given, because the "
		  "manager sends KILL itself." },
	{ "--restarts --max-restarts", "N[/TIME]", TOPIC_ending, 0,
	  "restarts", "BERTH_RESTARTS", .set = value_restarts, .min = 0, .max = 1000000,
	  .help = "after a failure start all ranks again, N times",
	  .text = "Start all ranks again after a failure, N times at most; with TIME, as in 3/1h, N "
		  "times at most in any span of that length: a failure now and then does not end a "
		  "long job, a program that fails again and again does. All ranks are ended "
		  "first. They start on the same hosts; a lost host is left out if the others have "
		  "enough slots. Each start has a new MASTER_PORT, and TORCHELASTIC_RESTART_COUNT "
		  "counts the restarts. Input that was read from stdin is not read again. A program "
		  "that cannot be executed, a time limit or a signal still ends the job. --replace "
		  "says when only the rank that failed starts again." },
	{ "--replace", "auto|alone|all", TOPIC_ending, 0,
	  "replace", "BERTH_REPLACE", CHOICE(lives.replace, replace_names),
	  .help = "what a restart starts: the failed rank, or all",
	  .text = "Choose what --restarts starts again. auto, the default: only the rank that failed, "
		  "if all others have said that they go on without it (berth_elastic(3), "
		  "hvd.elastic.run); else all ranks. It starts in its place, as soon as nothing of it "
		  "is left there, and joins the others when they change their world next. alone: only "
		  "the rank that failed, and the others are not told. This is for programs whose "
		  "processes find each other again themselves: servers, workers of a queue, torchft. "
		  "all: all ranks. MASTER_PORT stays if one rank starts again, and "
		  "TORCHELASTIC_RESTART_COUNT counts its starts. Ranks of MPI, and those of libberth "
		  "that have not said so, can't be started alone: then, and if a host is lost, all "
		  "ranks start again." },
	{ "--warm", NULL, TOPIC_ending, OPTION_SWITCH,
	  "warm", "BERTH_WARM", SWITCH(lives.warm),
	  .help = "start Python ranks from one with its imports done",
	  .text = "Import the modules of a Python program once on each host, in a process from which "
		  "its ranks are forked: at the first start and at each restart. A module is left to "
		  "the ranks if its import reads a variable that tells ranks apart, prints, leaves a "
		  "thread, a process, a socket, an open device or writable shared memory, or changes "
		  "the current folder. Modules of the program's own are read anew by each rank. If "
		  "nothing can be imported so, or a rank that was forked dies of a signal such as SEGV "
		  "within 10 seconds, ranks are started as without --warm, and one line says why. All "
		  "ranks of a host have one layout of addresses. runner --check --warm says which "
		  "modules are imported." },
	{ "--hang-timeout", "off|TIME|auto", TOPIC_ending, 0,
	  "hang-timeout", "BERTH_HANG_TIMEOUT", .set = value_hang, .max = SECONDS_MAX,
	  .help = "how long a rank may hang; --on-hang says what then",
	  .text = "Take a rank for one that hangs if other ranks wait for it in an operation of "
		  "libberth for TIME, and it has meanwhile done nothing: used less than a hundredth "
		  "of a CPU, read and written nothing, printed nothing, together with all processes "
		  "that it started. One that does work hangs only if all other ranks wait for it 5 "
		  "times as long. The time in which a rank could run and had no CPU does not count, "
		  "up to nine tenths of it: on a busy host a rank that hangs is found later, at "
		  "most 10 times. A rank that is stopped (state T) for TIME hangs, unless all are. "
		  "Of ranks that do not use libberth only this is seen: stopped ranks, and that no "
		  "rank does anything for TIME; then nobody knows which rank it is, and all are "
		  "meant. A process that a debugger holds, or that has R as its state, does not "
		  "hang. Work of a GPU for which a rank sleeps, and bytes that pass by sockets, are "
		  "not seen: choose TIME above the longest time of a step. auto: 20 times the "
		  "longest pause between two operations of a rank so far, and at least 60 seconds. "
		  "The default is to report after 5 minutes; off: nothing is looked at." },
	{ "--on-hang", "report|kill|restart|replace", TOPIC_ending, 0,
	  "on-hang", "BERTH_ON_HANG", CHOICE(lives.hang.on, on_hang_names),
	  .help = "what is done about a rank that hangs",
	  .text = "Choose what is done about a rank that hangs. report: one warning names it, says "
		  "what it does and which ranks wait for it, and --dump's text follows. The others "
		  "also end it after that, unless it goes on meanwhile: it gets SIGABRT, "
		  "at which Python prints where it is if PYTHONFAULTHANDLER is set (-x "
		  "PYTHONFAULTHANDLER=1), and SIGCONT, and SIGKILL 2 seconds later; a rank in state T or D "
		  "gets SIGKILL at once. It leaves no core. kill: the job ends with it. restart: all "
		  "ranks start again, if --restarts has a start left; else as kill. replace: the rank "
		  "alone starts again, if --replace can do that; else as restart. The default is "
		  "replace with --hang-timeout TIME or auto, else report." },
	{ "--keep-going", NULL, TOPIC_ending, OPTION_SWITCH,
	  "keep-going", "BERTH_KEEP_GOING", SWITCH(lives.keep_going),
	  .help = "a rank that fails does not end the others",
	  .text = "Let the other ranks go on if a rank fails. The exit status is still that of the "
		  "first failure." },

	/* ---- output ---- */
	{ "--output-filename --log-dir --output-directory", "DIR", TOPIC_output,
	  OPTION_COMMON | OPTION_DIR,
	  "output-filename", "BERTH_OUTPUT_FILENAME", TEXT(output.dir),
	  .help = "also write DIR/rank.N/{stdout,stderr}",
	  .text = "Also write the output of each rank to DIR/rank.N/stdout and DIR/rank.N/stderr on "
		  "this machine. The files get the bytes as they come, without labels. N has as "
		  "many digits as the highest rank. In DIR %r stands for the rank (or %t; %4r has "
		  "at least 4 digits, %R as many as the highest rank), %h for the host (or %N), %l "
		  "for the local rank, %e for the life of the rank (1, and one more each time that it "
		  "starts), %j for the job id and %% for %. Without %e all lives of a rank write to the "
		  "same files. With %r, or with %h and %l, the name is that of a file: log.%r has stdout "
		  "of the rank, and log.%r.err its stderr. With %j alone each job has a folder of its own. Files of an earlier run "
		  "are moved: DIR/rank.N to DIR/run.1, then DIR/run.2 and so on; log.0 to log.0.1. "
		  "Nothing is written to a file of another user." },
	{ "--tag --tag-output -l --label --prepend-rank", NULL, TOPIC_output, OPTION_SWITCH,
	  "tag", "BERTH_TAG", .set = value_tag,
	  .help = "--no-tag: lines without [rank]<stdout>:",
	  .text = "Begin each line with its rank and its stream, as in '[3]<stderr>:'. This is the "
		  "default; --no-tag leaves it out." },
	{ "--tag-style", "long|short|none", TOPIC_output, 0,
	  "tag-style", "BERTH_TAG_STYLE", CHOICE(output.tag_style, tag_names),
	  .help = "labels: [3]<stdout>: or [3], or none",
	  .text = "Choose the label of each line. long, the default: '[3]<stdout>:' or "
		  "'[3]<stderr>:'. short: '[3]' and a blank. none: the same as --no-tag." },
	{ "--color --colour", "auto|always|never", TOPIC_output, 0,
	  "color", "BERTH_COLOR", CHOICE(output.colour, colour_names),
	  .help = "colour the labels",
	  .text = "Show the label of each rank in a colour of its own, and that of its stderr in "
		  "reverse video. auto, the default: on a terminal, unless NO_COLOR is set or "
		  "TERM is 'dumb'. The files of --output-filename have no labels." },
	{ "--timestamps --timestamp-output --prefix-timestamp --prefix-output-with-timestamp",
	  NULL, TOPIC_output, OPTION_SWITCH,
	  "timestamps", "BERTH_TIMESTAMPS", SWITCH(output.timestamps),
	  .help = "put the time before each line",
	  .text = "Begin each line with the time at which runner got it, in ISO 8601 with "
		  "milliseconds, as in '2026-11-22T08:24:33.123+01:00', and a blank." },
	{ "--coalesce", NULL, TOPIC_output, OPTION_SWITCH,
	  "coalesce", "BERTH_COALESCE", SWITCH(output.coalesce),
	  .help = "equal lines of several ranks once: [0-511]",
	  .text = "Print equal lines of several ranks once, behind the numbers of those ranks, as in "
		  "'[0-511]<stderr>:'. A line waits half a second for other ranks to print the "
		  "same, or until all have. The lines of each rank keep their order, and none is "
		  "lost. 65536 lines and 4 MiB wait at most; then the oldest is printed early. The "
		  "files of --output-filename get the lines of each rank." },
	{ "--sort-output", NULL, TOPIC_output, OPTION_SWITCH,
	  "sort-output", "BERTH_SORT_OUTPUT", SWITCH(output.sort),
	  .help = "output at the end, rank after rank",
	  .text = "Print the output of the ranks when the job has ended, in the order of the ranks, "
		  "as srun -l | sort does. Until then it is in a file without a name in TMPDIR, else "
		  "in /tmp. If that disk is full, a warning says so, and further output is printed as "
		  "it comes. Messages of runner are not delayed. Before a restart the output of the "
		  "ranks that failed is printed." },
	{ "--show", "LIST", TOPIC_output, OPTION_COMMON,
	  "show", "BERTH_SHOW", .set = value_show, .at = offsetof(struct request, output.show),
	  .help = "show only these ranks: 0,8-11,errors",
	  .text = "Show the output of these ranks only. 'errors' in LIST adds the stderr of all "
		  "ranks; 'all' stands for all ranks, 'none' for no rank. Hidden output still goes "
		  "to the files of --output-filename and to the report of a failure." },
	{ "--pty", NULL, TOPIC_output, OPTION_SWITCH,
	  "pty", "BERTH_PTY", SWITCH(output.pty),
	  .help = "give the ranks a terminal as stdout",
	  .text = "Make stdout of each rank a terminal, so that C programs write line by line. This "
		  "is the default if stdout of runner is a terminal." },
	{ "--events", "FILE", TOPIC_output, OPTION_FILE,
	  "events", "BERTH_EVENTS", TEXT(events_file),
	  .help = "write events to FILE, as JSON lines",
	  .text = "Write each event to FILE, as one JSON object on a line: host up, rank started, "
		  "rank ended, stall, cause, restart, end. An old FILE is replaced, unless it "
		  "belongs to another user. If FILE is -, the lines go to stdout, among the output "
		  "of the ranks." },
	{ "--timeline", "FILE", TOPIC_output, OPTION_FILE,
	  "timeline", "BERTH_TIMELINE", TEXT(insight.timeline.file),
	  .help = "write a timeline of all ranks to FILE",
	  .text = "Write one timeline of all ranks that use libberth, and of the events of --events, to "
		  "FILE when the job has ended: for Perfetto (ui.perfetto.dev) and, as JSON, for "
		  "chrome://tracing. With --monitor, what each rank uses is in it, too. --trace-merge "
		  "says what is in it, and what the name of FILE means: t.json.gz, t.pftrace.gz. All "
		  "times are those of the clock of runner's host; the file says how wrong they can be. "
		  "Until the job has ended, each rank's part is in a file without a name in TMPDIR or "
		  "/tmp of its host, 256 MiB at most. A rank that is killed leaves all but its last "
		  "milliseconds, and a lost host leaves nothing." },
	{ "--timeline-steps", "A:B", TOPIC_output, 0,
	  "timeline-steps", "BERTH_TIMELINE_STEPS", .set = value_steps,
	  .help = "only steps A to B of it",
	  .text = "Write only the steps A to B, from 1 on, to the file of --timeline. A or B may be "
		  "missing. A step begins with an operation that the step before it had, too: one of the "
		  "same name or, without a name, of the same kind, type and size." },
	{ "--summary", "text|json|none", TOPIC_output, OPTION_OPTIONAL,
	  "summary", "BERTH_SUMMARY", .set = value_summary, .choices = summary_names,
	  .help = "at the end: status, cause, times, memory",
	  .text = "Print a summary on stderr when the job has ended, however it ended: status, "
		  "cause, time, restarts, the folder of --output-filename; for each host its ranks, "
		  "their CPU time and peak memory, and when the first and the last of them ended. "
		  "--summary=json prints it as one line for programs." },
	{ "--monitor", "TIME|off", TOPIC_output, 0,
	  "monitor", "BERTH_MONITOR", .set = value_monitor,
	  .help = "sample what ranks use, each so often: 1s, 5s",
	  .text = "Sample each rank and each host every TIME, at least 0.1 s: CPU time of its main "
		  "thread and of all threads, the time in which it had no CPU, memory, reads, child "
		  "processes, the CPUs on which it may run; in libberth its steps, operations and "
		  "the time that it waits for other ranks. At the end runner says what holds the job "
		  "back, with the evidence, and what to try. --summary says so, too." },
	{ "--top", NULL, TOPIC_output, OPTION_SWITCH,
	  "top", "BERTH_TOP", SWITCH(insight.top),
	  .help = "a table of the ranks, while they run",
	  .text = "Show a table of the ranks below their output, on a terminal: what they use and for "
		  "what they wait, drawn again with each sample of --monitor (1s if that is not given). "
		  "The key q removes the table, t brings it back, and the job goes on. No rank reads "
		  "the terminal then." },
	{ "--nccl-transports", NULL, TOPIC_output, OPTION_SWITCH,
	  "nccl-transports", "BERTH_NCCL_TRANSPORTS", SWITCH(insight.nccl_transports),
	  .help = "at the end: how NCCL connects the ranks",
	  .text = "When the job has ended, print on stderr how NCCL connected each pair of ranks: "
		  "a table of hosts, of P2P, SHM and networks with their NICs, and a warning where "
		  "the log shows a better way, as sockets between hosts with InfiniBand. Unless "
		  "NCCL_DEBUG has a value, ranks get NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT, and "
		  "NCCL_DEBUG_FILE names a pipe of the agent: nothing but NCCL's warnings and version "
		  "is shown. If NCCL_DEBUG is INFO, its lines are shown and read." },
	{ "--no-ledger", NULL, TOPIC_output, OPTION_SWITCH,
	  "no-ledger", "BERTH_NO_LEDGER", SWITCH(insight.no_ledger),
	  .help = "do not keep how fast commands were",
	  .text = "Neither read nor write the ledger, berth/ledger in XDG_STATE_HOME or ~/.local/state. It "
		  "keeps the steps a second of jobs whose ranks took steps in libberth for 10 s, 1,000 "
		  "rows at most: a hash of the command, never its text, and the number of ranks. With it "
		  "the verdict compares a job of 12 ranks or more with the smallest job of the same "
		  "command." },
	{ "--report", "FILE.html|FILE.json", TOPIC_output, OPTION_FILE,
	  "report", "BERTH_REPORT", .set = value_report,
	  .help = "write a page on the job to FILE, with pictures",
	  .text = "Write a report on the job to FILE when it has ended, however it ended. FILE.html is "
		  "a page for a browser, without parts from elsewhere: verdict, cause, what each rank "
		  "did over time, which CPUs and GPU it had and why, events, variables. FILE.json has "
		  "the same for programs. Both may be given. Values of secrets are left out. Without "
		  "--monitor the ranks are sampled each second. An old FILE is replaced, unless it "
		  "belongs to another user. --plan and --check write none." },
	{ "--stdin", "0|N|all|none", TOPIC_output, 0,
	  "stdin", "BERTH_STDIN", .set = value_stdin, .choices = stdin_names,
	  .at = offsetof(struct request, stdin_rank),
	  .help = "which rank reads stdin",
	  .text = "Choose which rank reads the standard input of runner: rank 0 (the default), rank "
		  "N, all ranks, or none." },

	/* ---- binding ---- */
	{ "--bind-to", "WHAT[:N]", TOPIC_binding, OPTION_COMMON,
	  "bind-to", "BERTH_BIND_TO", .set = value_bind_to, .choices = bind_names,
	  .help = "auto, none, socket, numa, l3, core[:N], hwthread",
	  .text = "Choose which CPUs a rank may use. auto, the default: the cores nearest to its "
		  "GPU, in equal, disjoint shares. core, hwthread, l3, numa, socket: one such "
		  "object, or N of them, nearest to its GPU; ranks share them if there are not "
		  "enough. none: all CPUs." },
	{ "--share", "socket|home|machine", TOPIC_binding, 0,
	  "share", "BERTH_SHARE", CHOICE(share, share_names),
	  .help = "which cores --bind-to auto divides",
	  .text = "Choose which cores --bind-to auto divides among the ranks. socket, the default: "
		  "those on the socket of the rank's GPU. home: only those of the L3 or NUMA node "
		  "of the GPU; runner(1) says when that is better. machine: all cores of the host." },
	{ "--report-bindings", NULL, TOPIC_binding, OPTION_COMMON | OPTION_SWITCH,
	  "report-bindings", "BERTH_REPORT_BINDINGS", SWITCH(report_bindings),
	  .help = "print which GPU and CPUs each rank got",
	  .text = "Print on stderr which GPU and which CPUs each rank got, in the order of the ranks, "
		  "when all of them run. The CPUs are read back after binding." },

	/* ---- gpus ---- */
	{ "--gpus", "LIST", TOPIC_gpus, 0,
	  "gpus", "BERTH_GPUS", .set = value_gpus,
	  .help = "use only these GPUs of each host",
	  .text = "Use only these GPUs of each host. LIST has indexes in the order of the PCI bus, "
		  "PCI addresses or UUIDs. A host with ':gpus' then has one slot for each of them. "
		  "-x CUDA_VISIBLE_DEVICES=LIST has the same effect." },
	{ "--gpu-visible", "auto|one|node|inherit", TOPIC_gpus, 0,
	  "gpu-visible", "BERTH_GPU_VISIBLE", CHOICE(gpu_visible, visible_names),
	  .help = "which GPUs a rank can see",
	  .text = "Choose the GPUs that a rank can see. one: only its own. node: all GPUs of the "
		  "host, its own at the index that equals its local rank. inherit: what the "
		  "environment of the host says. auto (the default): node if the entry script "
		  "uses its local rank as a device, else one." },
	{ "--gpu-id", "index|uuid", TOPIC_gpus, 0,
	  "gpu-id", "BERTH_GPU_ID", CHOICE(gpu_id, gpu_id_names),
	  .help = "how CUDA_VISIBLE_DEVICES names a GPU",
	  .text = "Choose how CUDA_VISIBLE_DEVICES names a GPU: by its index in the order of the "
		  "PCI bus (the default), or by its UUID." },
	{ "--no-gpu-sharing", NULL, TOPIC_gpus, OPTION_SWITCH,
	  "no-gpu-sharing", "BERTH_NO_GPU_SHARING", SWITCH(no_gpu_sharing),
	  .help = "refuse more ranks than GPUs on a host",
	  .text = "Refuse to start, with exit status 2, if a host would have more ranks than GPUs. "
		  "Without this option ranks share GPUs evenly, and a warning says so." },

	/* ---- plan ---- */
	{ "--plan --dry-run --donotlaunch --do-not-launch", "json|svg|png", TOPIC_plan,
	  OPTION_COMMON | OPTION_OPTIONAL,
	  NULL, NULL, .set = value_plan, .choices = plan_names,
	  .help = "show where each rank would run, and why",
	  .text = "Print where each rank would run, and why; start nothing. The plan has the hosts, "
		  "and for each rank its GPU, CPUs, NUMA node and the reason, on lines that fit the "
		  "terminal. Hosts whose ranks have equal berths share one table. -v prints the "
		  "whole reasons. --plan=json prints it for programs; svg and png draw the machines, "
		  "with the CPUs and GPU of each rank in a colour: hwloc's lstopo draws them, and has "
		  "to be installed here. No program is needed." },
	{ "--topology", "[HOST=]FILE", TOPIC_plan, OPTION_MANY | OPTION_FILE,
	  NULL, NULL, .set = value_topology,
	  .help = "plan on a machine read from an hwloc XML file",
	  .text = "Plan for the machine in FILE, which is hwloc XML, instead of HOST. Without HOST "
		  "it stands for every host that has no file of its own. No host is contacted. The "
		  "option goes with --plan." },

	{ "--check", NULL, TOPIC_plan, OPTION_COMMON | OPTION_SWITCH,
	  "check", "BERTH_CHECK", SWITCH(check),
	  .help = "test the hosts; start nothing",
	  .text = "Test on each host what a start would need, and start nothing: ssh, the agent, "
		  "the directory, the program, what a Python program imports, GPUs and their "
		  "driver, clocks, the names of the other hosts, a connection to rank 0, limits, /dev/shm. "
		  "Hosts with equal answers share a line. The exit status is 0, or 240 if a line says FAIL." },
	{ "--lint", "FILE", TOPIC_plan, OPTION_PRINTS | OPTION_FILE, NULL, NULL,
	  .help = "find mistakes of distributed training in FILE",
	  .text = "Find mistakes of distributed training in the Python script FILE, and in those that "
		  "follow, without running them: shares of data that overlap, a checkpoint that all "
		  "ranks write, a collective that some ranks do not call. Each has its line and a "
		  "remedy. A Dockerfile is searched for private keys. It needs the python3 in PATH. The "
		  "exit status is 0, or 1 if a mistake was found; a note is none." },
	{ "--dump", "JOB", TOPIC_plan, OPTION_PRINTS | OPTION_OPTIONAL, NULL, NULL,
	  .help = "show where the ranks of a running job are",
	  .text = "Print where each rank of a running job is: its operation in libberth, the stack of "
		  "its Python, the state of its process. Ranks that are alike share a line; the fewest "
		  "come first, with what holds them and the line to look at. JOB is the begin of the "
		  "job's id, as in BERTH_JOB; without it the only job of this user on this machine is "
		  "asked, whose runner must run here. A second dump says which ranks have gone on since "
		  "the first: slow, or stuck. Ctrl-\\ twice within 2 s prints the same in runner's own "
		  "terminal. The job goes on. A stack needs Python 3.8 or later, with site-packages; a "
		  "rank that sets a handler of its own for signal 59 has none. Of other processes of "
		  "this user py-spy (Python) or eu-stack tells it, which stops them for as long as it "
		  "looks, 1 s at most: if it is in the PATH of the rank, where no other user can change "
		  "it." },
	{ "--trace-merge", "OUT", TOPIC_plan, OPTION_PRINTS | OPTION_FILE, NULL, NULL,
	  .help = "make one timeline OUT of several trace files",
	  .text = "Make one timeline OUT of the trace files that follow, on one clock: those of "
		  "HOROVOD_TIMELINE, those that torch.profiler writes, and Horovod's; gzipped ones, "
		  "too. Arrows join a collective on all ranks, and a process in front has the critical "
		  "rank of each step, for which others waited longest. OUT is JSON if its name ends in "
		  ".json or .json.gz, for chrome://tracing and Perfetto; else it has Perfetto's own form, "
		  "which is smaller. It is gzipped if its name ends in .gz. Events of one collective that "
		  "lie more than 10000 collectives apart are not joined; the line that is printed counts "
		  "them, and says how wrong the clocks can be." },

	{ "--nccl-log", "FILE", TOPIC_plan, OPTION_PRINTS | OPTION_FILE, NULL, NULL,
	  .help = "say how NCCL connected ranks, by its log FILE",
	  .text = "Print the table and the warnings of --nccl-transports for the log FILE, and for "
		  "those that follow, of any launcher: what programs with NCCL_DEBUG=INFO printed. - "
		  "is stdin. The exit status is 0, or 1 if there is a warning." },

	/* ---- other ---- */
	{ "--config-file", "FILE", TOPIC_other, OPTION_FILE,
	  NULL, "BERTH_CONFIG_FILE", .set = NULL,
	  .help = "read more options from FILE: key = value",
	  .text = "Read more options from FILE, as lines 'key = value'. The help of each option "
		  "names its key. FILE overrides the files of the user and of the site; variables "
		  "and the command line override FILE." },
	{ "-v --verbose", NULL, TOPIC_other, OPTION_OPTIONAL,
	  "verbose", "BERTH_VERBOSE", .set = value_verbose, .min = 0, .max = 2,
	  .help = "print what runner does; -vv: more",
	  .text = "Print what runner does. -vv prints more. As a key: 0, 1 or 2." },
	{ "-vv", NULL, TOPIC_other, OPTION_HIDDEN, NULL, NULL, .set = value_verbose, .at = 2,
	  .help = "", .text = "" },
	{ "-q --quiet", NULL, TOPIC_other, OPTION_SWITCH,
	  "quiet", "BERTH_QUIET", .set = value_quiet,
	  .help = "print errors only, no notes and no warnings",
	  .text = "Print errors only, no notes and no warnings.  One line stays: that "
		  "a key goes over the network in clear (berth-slurm(7))." },
	{ "-h --help", "TOPIC", TOPIC_other, OPTION_PRINTS | OPTION_OPTIONAL, NULL, NULL,
	  .help = "help: TOPIC, 'all', or an option's name",
	  .text = "Print help on the options most used, on a TOPIC, on 'all' options, or on one "
		  "option, as in --help --map-by. Any other word is searched in the texts." },
	{ "-V --version", NULL, TOPIC_other, OPTION_PRINTS, NULL, NULL,
	  .help = "print the version",
	  .text = "Print the version." },
	{ "--check-build -cb", NULL, TOPIC_other, OPTION_PRINTS, NULL, NULL,
	  .help = "print what this build has for Horovod scripts",
	  .text = "Print which frameworks, controllers and tensor operations this build of Berth has, "
		  "in the form of horovodrun; then which TensorFlow and Keras the python3 in PATH has, and "
		  "whether the operations for TensorFlow load." },
	{ "--berth-folder", "DIR", TOPIC_other, OPTION_HIDDEN, NULL, NULL, TEXT(berth_folder),
	  .help = "", .text = "" }, /* of berth.run() */
	{ "--print", "FORM", TOPIC_other, OPTION_PRINTS | OPTION_HIDDEN, NULL, NULL,
	  .help = "", .text = "" },
};
/* clang-format on */

const size_t option_count = sizeof option_table / sizeof *option_table;

size_t option_next_name(const char **list, const char **name)
{
	size_t n;

	*list += strspn(*list, " ");
	n = strcspn(*list, " ");
	*name = *list;
	*list += n;
	return n;
}

/* Whether the N bytes at A are the name B: without dashes in front, '_' as '-'. */
static bool same_name(const char *a, size_t n, const char *b)
{
	size_t i = 0;

	while (i < n && *a == '-')
		a++, n--;
	b += strspn(b, "-");
	for (; i < n && b[i]; i++)
		if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i]))
			return false;
	return i == n && !b[i] && n;
}

bool option_named(const char *list, const char *name)
{
	const char *own;
	size_t n;

	while ((n = option_next_name(&list, &own)))
		if (same_name(own, n, name))
			return true;
	return false;
}

static const struct option *table_find(const char *name)
{
	for (size_t i = 0; i < option_count; i++)
		if (option_named(option_table[i].names, name))
			return &option_table[i];
	return NULL;
}

const struct option *option_find(const char *name, bool *no)
{
	const struct option *o = table_find(name);
	char *other;

	*no = false;
	if (o)
		return o;
	name += strspn(name, "-");
	if (!strncmp(name, "no-", 3) || !strncmp(name, "no_", 3))
		other = xstrdup(name + 3);
	else
		other = xasprintf("no-%s", name);
	o = table_find(other);
	free(other);
	*no = true;
	return o && o->flags & OPTION_SWITCH ? o : NULL;
}

const struct option *option_find_glued(const char *word, const char **value)
{
	size_t n = strcspn(word, "0123456789");
	const struct option *o;
	char *name;

	if (word[0] != '-' || word[1] == '-' || !word[n])
		return NULL;
	name = xstrndup(word, n);
	o = table_find(name);
	free(name);
	*value = word + n;
	return o && o->flags & OPTION_GLUE ? o : NULL;
}

const struct option *option_find_key(const char *key)
{
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].key && *key != '-' &&
		    same_name(option_table[i].key, strlen(option_table[i].key), key))
			return &option_table[i];
	return NULL;
}

const char *const *options_env_names(size_t *n)
{
	static const char *names[sizeof option_table / sizeof *option_table];

	*n = 0;
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].env)
			names[(*n)++] = option_table[i].env;
	return names;
}
