#include "launcher/cli/option_table.h"

#include <ctype.h>

#include "launcher/cli/values.h"

static const char *const bind_names[] = { BIND_TO_NAMES, NULL };
static const char *const share_names[] = { SHARE_NAMES, NULL };
static const char *const visible_names[] = { GPU_VISIBLE_NAMES, NULL };
static const char *const gpu_id_names[] = { GPU_ID_NAMES, NULL };
static const char *const map_names[] = { "slot", "node", NULL };
static const char *const transport_names[] = { "auto", "local", "ssh", "openssh",
					       NULL };
static const char *const plan_names[] = { "text", "json", NULL };
static const char *const stdin_names[] = { "0", "all", "none", NULL };

/* What a setter needs beside the text. */
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
	  "np", "BERTH_NP", .set = value_np, .min = 1, .max = RANKS_MAX,
	  .help = "start N ranks",
	  .text = "Start N ranks. Without it, all slots of the hosts are used; on this machine "
		  "alone, one rank per GPU, or per core where there is no GPU. In a job of "
		  "several programs each has its own -np, and BERTH_NP does not count." },
	{ "-ppn --npernode -N --nproc-per-node --ntasks-per-node --perhost", "N", TOPIC_ranks,
	  OPTION_COMMON | OPTION_GLUE,
	  "ppn", "BERTH_PPN", .set = value_per_host, .min = 1, .max = RANKS_MAX,
	  .help = "N ranks on each host",
	  .text = "Put N ranks on each host, whatever its slots are. Without -np every host gets "
		  "N; with -np the hosts are filled in order until there are enough." },
	{ "--map-by", "slot|node", TOPIC_ranks, 0,
	  "map-by", "BERTH_MAP_BY", .set = value_map_by, .choices = map_names,
	  .help = "fill host after host, or deal ranks out in turn",
	  .text = "Fill the slots of a host before the next one (slot, the default), or deal "
		  "the ranks out one host at a time (node). ppr:N:node is -ppn N. Which CPUs and "
		  "which GPU a rank gets on its host does not depend on it: see --bind-to." },
	{ "--oversubscribe", NULL, TOPIC_ranks, OPTION_SWITCH,
	  "oversubscribe", "BERTH_OVERSUBSCRIBE", SWITCH(oversubscribe),
	  .help = "allow more ranks than slots",
	  .text = "Allow more ranks on a host than it has slots, up to max_slots of the hostfile "
		  "where that is given." },
	{ "--wdir -wd --chdir", "DIR", TOPIC_ranks, OPTION_COMMON | OPTION_APP | OPTION_DIR,
	  "wdir", "BERTH_WDIR", .set = value_wdir,
	  .help = "run the program in DIR",
	  .text = "Run the program in DIR, which has to exist on each host. The default is the "
		  "folder that runner was started in." },

	/* ---- hosts ---- */
	{ "-H --hosts --host --hostlist", "LIST", TOPIC_hosts, OPTION_COMMON,
	  "hosts", "BERTH_HOSTS", .set = value_hosts, .at = offsetof(struct request, hosts),
	  .help = "hosts and their slots: ip1:8,ip2:8",
	  .text = "The hosts, and after a colon how many ranks each takes: ip1:8,user@ip2:8, "
		  "gpu[01-16]:8, [fe80::1]:8. A host without a number has one slot; a:gpus has "
		  "as many as it has GPUs. A host that is named again adds its slots to the "
		  "first. Without hosts the job runs on this machine." },
	{ "--hostfile --machinefile -f", "FILE", TOPIC_hosts, OPTION_COMMON | OPTION_FILE,
	  "hostfile", "BERTH_HOSTFILE", .set = value_hosts, .at = offsetof(struct request, hostfile),
	  .help = "read the hosts from FILE",
	  .text = "Read the hosts from FILE, one a line: 'ip1 slots=8 max_slots=8', 'ip1:8', or "
		  "'ip1' repeated. Empty lines and lines that begin with # do not count." },
	{ "-p --ssh-port", "PORT", TOPIC_hosts, OPTION_GLUE,
	  "ssh-port", "BERTH_SSH_PORT", NUMBER(ssh_port, 1, 65535),
	  .help = "port of sshd on the hosts",
	  .text = "The port of sshd on all hosts. The default is what ssh_config(5) says, else 22." },
	{ "-i --ssh-identity-file", "FILE", TOPIC_hosts, OPTION_FILE,
	  "ssh-identity-file", "BERTH_SSH_IDENTITY_FILE", TEXT(identity),
	  .help = "private key for ssh",
	  .text = "The private key to log in with, before those of ssh_config(5) and the ssh agent." },
	{ "--accept-new-hosts", NULL, TOPIC_hosts, OPTION_SWITCH,
	  "accept-new-hosts", "BERTH_ACCEPT_NEW_HOSTS", SWITCH(accept_new_hosts),
	  .help = "trust hosts that known_hosts doesn't have",
	  .text = "Trust a host that is not in known_hosts and remember its key, as "
		  "StrictHostKeyChecking accept-new does. A key that has changed is refused "
		  "all the same." },
	{ "--transport", "auto|local|ssh|openssh", TOPIC_hosts, 0,
	  "transport", "BERTH_TRANSPORT", CHOICE(transport, transport_names),
	  .help = "how agents are started",
	  .text = "How the agents are started. local: no ssh, for this machine only. ssh: by "
		  "libssh. openssh: by the ssh command. auto, the default: local for this "
		  "machine, else ssh, else openssh where ssh_config(5) asks for what libssh "
		  "does not know." },
	{ "--launch-agent", "PATH", TOPIC_hosts, OPTION_FILE,
	  "launch-agent", "BERTH_LAUNCH_AGENT", TEXT(launch_agent),
	  .help = "where berth-agent is on the hosts",
	  .text = "The path of berth-agent on the hosts. Without it: next to runner, else in "
		  "PATH, else it is sent." },
	{ "--no-push", NULL, TOPIC_hosts, OPTION_SWITCH,
	  "no-push", "BERTH_NO_PUSH", SWITCH(no_push),
	  .help = "never send the agent to a host",
	  .text = "Do not send the agent to a host where it is missing or of another version; "
		  "that is then an error." },

	/* ---- environment ---- */
	{ "-x", "NAME[=VALUE]", TOPIC_environment, OPTION_COMMON | OPTION_APP | OPTION_MANY,
	  "export", "BERTH_EXPORT", .set = value_export,
	  .help = "set a variable for the ranks; many times",
	  .text = "Give the ranks the variable NAME with this VALUE or, without one, with the "
		  "value it has here; 'PREFIX*' stands for all that begin so. The environment is "
		  "forwarded anyway; -x also forwards what would be left out. In BERTH_EXPORT "
		  "blanks part the entries; in a config file each has a line." },
	{ "--env-file", "FILE", TOPIC_environment, OPTION_FILE,
	  "env-file", "BERTH_ENV_FILE", TEXT(env_file),
	  .help = "variables for the ranks, NAME=VALUE a line",
	  .text = "Read variables for the ranks from FILE: NAME=VALUE a line, quoted as for sh, "
		  "nothing is expanded. Empty lines and lines that begin with # do not count. "
		  "-x goes before it." },

	{ "--net", "RANGE[,RANGE...]", TOPIC_environment, 0,
	  "net", NULL, .set = value_net,
	  .help = "addresses that libberth's ranks may use",
	  .text = "Let the ranks' connections to each other use addresses of these ranges only, "
		  "such as 10.0.0.0/8 or fd00::/8: gives them BERTH_NET, see berth(3). Without it "
		  "each host uses the interface that leads to its peers." },

	/* ---- ending ---- */
	{ "--timeout", "TIME", TOPIC_ending, OPTION_COMMON,
	  "timeout", "BERTH_TIMEOUT", SECONDS(value_seconds, timeout_s, 0),
	  .help = "end the job after TIME: 90, 5m, 1h",
	  .text = "End the job after TIME, in seconds or with s, m, h or d behind the number. The "
		  "exit status is then 124. 0, the default, is no limit." },
	{ "--start-timeout", "TIME", TOPIC_ending, 0,
	  "start-timeout", "BERTH_START_TIMEOUT", SECONDS(value_seconds, start_timeout_s, 1),
	  .help = "give up if hosts aren't up after TIME (30)",
	  .text = "Give up, with exit status 240, if an agent does not run on every host after "
		  "TIME. The default is 30 seconds. After the first, standard error shows "
		  "whom runner still waits for if it is a terminal, unless -q is given." },
	{ "--host-timeout", "TIME", TOPIC_ending, 0,
	  "host-timeout", "BERTH_HOST_TIMEOUT", SECONDS(value_seconds, host_timeout_s, 1),
	  .help = "give up a host silent for TIME (60)",
	  .text = "Give up a host that has been silent for TIME; the exit status is then 241. The "
		  "default is 60 seconds." },
	{ "--kill-grace", "TIME", TOPIC_ending, 0,
	  "kill-grace", "BERTH_KILL_GRACE", SECONDS(value_grace, kill_grace_s, 0),
	  .help = "from TERM to KILL, after a failure (10)",
	  .text = "After a failure the ranks that are left get TERM, and KILL after TIME. After ^C "
		  "they have TIME to end by themselves, then come TERM and KILL. The default is 10 "
		  "seconds; in the job of a resource manager a TERM or HUP has no such limit unless "
		  "TIME is given: the manager brings its own KILL." },
	{ "--restarts --max-restarts", "N", TOPIC_ending, 0,
	  "restarts", "BERTH_RESTARTS", NUMBER(restarts, 0, 1000000),
	  .help = "after a failure start all ranks again, N times",
	  .text = "After a failure end all ranks and start them again on the same hosts, N times "
		  "at most; hosts that were lost are left out if the others have the slots. "
		  "MASTER_PORT is a new one then, and TORCHELASTIC_RESTART_COUNT counts. What was "
		  "read of stdin is not read again. A program that cannot be executed, a time "
		  "limit or a signal ends the job all the same." },
	{ "--keep-going", NULL, TOPIC_ending, OPTION_SWITCH,
	  "keep-going", "BERTH_KEEP_GOING", SWITCH(keep_going),
	  .help = "a rank that fails does not end the others",
	  .text = "A rank that fails does not end the others. The exit status is still that of "
		  "the first failure." },

	/* ---- output ---- */
	{ "--output-filename --log-dir --output-directory", "DIR", TOPIC_output,
	  OPTION_COMMON | OPTION_DIR,
	  "output-filename", "BERTH_OUTPUT_FILENAME", TEXT(output_dir),
	  .help = "also write DIR/rank.N/{stdout,stderr}",
	  .text = "Write the output of each rank into DIR/rank.N/stdout and DIR/rank.N/stderr on "
		  "this machine as well: the bytes as they come, without labels. N has as many "
		  "digits as the highest rank." },
	{ "--tag --tag-output -l --label --prepend-rank", NULL, TOPIC_output, OPTION_SWITCH,
	  "tag", "BERTH_TAG", .set = value_tag, .at = offsetof(struct request, tag),
	  .help = "--no-tag: lines without [rank]<stdout>:",
	  .text = "Begin each line with the rank and the stream it comes from, [3]<stderr>: for "
		  "one. That is the default; --no-tag leaves it out." },
	{ "--timestamps --timestamp-output --prefix-timestamp --prefix-output-with-timestamp",
	  NULL, TOPIC_output, OPTION_SWITCH,
	  "timestamps", "BERTH_TIMESTAMPS", SWITCH(timestamps),
	  .help = "put the time before each line",
	  .text = "Put the time at which it came before each line." },
	{ "--show", "LIST", TOPIC_output, OPTION_COMMON,
	  "show", "BERTH_SHOW", .set = value_show, .at = offsetof(struct request, show),
	  .help = "show only these ranks: 0,8-11,errors",
	  .text = "Show the output of these ranks only. 'errors' in the list adds the stderr of "
		  "all ranks; 'all' and 'none' mean what they say. What is not shown still goes "
		  "to the files of --output-filename and into the report of a failure." },
	{ "--pty", NULL, TOPIC_output, OPTION_SWITCH,
	  "pty", "BERTH_PTY", SWITCH(pty),
	  .help = "give the ranks a terminal as stdout",
	  .text = "Make stdout of each rank a terminal, so that C programs write line by line. "
		  "That is done anyway where stdout of runner is a terminal." },
	{ "--events", "FILE", TOPIC_output, OPTION_FILE,
	  "events", "BERTH_EVENTS", TEXT(events_file),
	  .help = "write what happens to FILE, as JSON lines",
	  .text = "Write one JSON object a line to FILE for each event: host up, rank started, "
		  "rank ended, cause, end." },
	{ "--stdin", "0|N|all|none", TOPIC_output, 0,
	  "stdin", "BERTH_STDIN", .set = value_stdin, .choices = stdin_names,
	  .at = offsetof(struct request, stdin_rank),
	  .help = "which rank reads stdin",
	  .text = "Which rank reads the standard input of runner: rank 0 (the default), rank N, "
		  "all of them, or none." },

	/* ---- binding ---- */
	{ "--bind-to", "WHAT[:N]", TOPIC_binding, OPTION_COMMON,
	  "bind-to", "BERTH_BIND_TO", .set = value_bind_to, .choices = bind_names,
	  .help = "auto, none, socket, numa, l3, core[:N], hwthread",
	  .text = "Which CPUs a rank may use. auto, the default: the cores nearest to its GPU, in "
		  "disjoint, equal shares. core, hwthread, l3, numa, socket: that object, or "
		  "N of them, nearest to its GPU; shared where there are not enough. none: all "
		  "CPUs." },
	{ "--share", "socket|home|machine", TOPIC_binding, 0,
	  "share", "BERTH_SHARE", CHOICE(share, share_names),
	  .help = "from which cores --bind-to auto deals",
	  .text = "Which cores --bind-to auto divides between the ranks: those of the socket of "
		  "the rank's GPU (the default), those of the L3 or NUMA node of the GPU only "
		  "(home), or all of the machine." },
	{ "--report-bindings", NULL, TOPIC_binding, OPTION_COMMON | OPTION_SWITCH,
	  "report-bindings", "BERTH_REPORT_BINDINGS", SWITCH(report_bindings),
	  .help = "say which GPU and CPUs each rank got",
	  .text = "Say on stderr which GPU and which CPUs each rank got, read back after binding." },

	/* ---- gpus ---- */
	{ "--gpus", "LIST", TOPIC_gpus, 0,
	  "gpus", "BERTH_GPUS", TEXT(gpus),
	  .help = "use only these GPUs of each host",
	  .text = "Use only these GPUs, on every host: a list of indexes in the order of the PCI "
		  "bus, PCI addresses or UUIDs." },
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
	  .text = "Name GPUs in CUDA_VISIBLE_DEVICES by their index in the order of the PCI bus "
		  "(the default) or by UUID." },
	{ "--no-gpu-sharing", NULL, TOPIC_gpus, OPTION_SWITCH,
	  "no-gpu-sharing", "BERTH_NO_GPU_SHARING", SWITCH(no_gpu_sharing),
	  .help = "refuse more ranks than GPUs on a host",
	  .text = "Refuse to start, with exit status 2, where a host would have more ranks than "
		  "GPUs. Without it they share evenly, and one line says so." },

	/* ---- plan ---- */
	{ "--plan --dry-run --donotlaunch --do-not-launch", "json", TOPIC_plan,
	  OPTION_COMMON | OPTION_OPTIONAL,
	  NULL, NULL, .set = value_plan, .choices = plan_names,
	  .help = "show who would run where and why; start nothing",
	  .text = "Print the hosts, and for each rank its host, GPU, CPUs, NUMA node and why; "
		  "start nothing. --plan=json prints the same for programs. No program is needed." },
	{ "--topology", "[HOST=]FILE", TOPIC_plan, OPTION_MANY | OPTION_FILE,
	  NULL, NULL, .set = value_topology,
	  .help = "plan on a machine read from an hwloc XML file",
	  .text = "Plan for the machine in FILE, which is hwloc XML, in place of HOST, or of every "
		  "host that has no file of its own; no host is asked. Goes with --plan." },

	/* ---- other ---- */
	{ "--config-file", "FILE", TOPIC_other, OPTION_FILE,
	  NULL, "BERTH_CONFIG_FILE", .set = NULL,
	  .help = "read more options from FILE: key = value",
	  .text = "Read options from FILE as well: lines 'key = value', where a key is named with "
		  "each option here. It goes before the files of the user and of the site, and "
		  "after the environment and the command line." },
	{ "-v --verbose", NULL, TOPIC_other, OPTION_OPTIONAL,
	  "verbose", "BERTH_VERBOSE", .set = value_verbose, .min = 0, .max = 2,
	  .help = "say more; -vv: still more",
	  .text = "Say what runner does; -vv says still more. As a key: 0, 1 or 2." },
	{ "-vv", NULL, TOPIC_other, OPTION_HIDDEN, NULL, NULL, .set = value_verbose, .at = 2,
	  .help = "", .text = "" },
	{ "-q --quiet", NULL, TOPIC_other, OPTION_SWITCH,
	  "quiet", "BERTH_QUIET", .set = value_quiet,
	  .help = "errors only, no notes and warnings",
	  .text = "Say nothing but errors." },
	{ "-h --help", "TOPIC", TOPIC_other, OPTION_PRINTS | OPTION_OPTIONAL, NULL, NULL,
	  .help = "help: TOPIC, 'all', or an option's name",
	  .text = "Print help: the options most used, those of a TOPIC, 'all', or one option, as "
		  "in --help --map-by." },
	{ "-V --version", NULL, TOPIC_other, OPTION_PRINTS, NULL, NULL,
	  .help = "print the version",
	  .text = "Print the version." },
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

/* N bytes of A and the whole of B, without dashes in front, '_' taken as '-'. */
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

static const struct option *find(const char *name)
{
	for (size_t i = 0; i < option_count; i++)
		if (option_named(option_table[i].names, name))
			return &option_table[i];
	return NULL;
}

const struct option *option_find(const char *name, bool *no)
{
	const struct option *o = find(name);
	char *other;

	*no = false;
	if (o)
		return o;
	name += strspn(name, "-");
	if (!strncmp(name, "no-", 3) || !strncmp(name, "no_", 3))
		other = xstrdup(name + 3);
	else
		other = xasprintf("no-%s", name);
	o = find(other);
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
	o = find(name);
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
