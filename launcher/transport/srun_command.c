#include "launcher/transport/srun_command.h"

#include <strings.h>

#include "launcher/transport/agent_install.h"
#include "launcher/transport/install_scripts.h"

/* Says on which host the agent could not be started.  exec does not come to it. */
static const char at_exit[] = "trap 'echo; echo :berth: again $SLURMD_NODENAME' EXIT; ";

#define AGAIN ":berth: again "

static void add_options(struct strv *argv, const struct srun_step *step)
{
	static const char *const fixed[] = {
		"srun",
		"--overlap",       /* the user's own steps may run beside it */
		"--mem=0",         /* all that the job has there */
		"--cpu-bind=none", /* the agent binds */
		"--mpi=none",
		"--kill-on-bad-exit=0", /* the end of one agent does not end others */
		"--wait=0",
		"--no-kill",
		"--export=ALL",
		"--input=all",
		"--chdir=/", /* the agent goes to where ranks run */
		"--job-name=berth-agent",
		"--ntasks-per-node=1",
	};
	struct str hosts = { 0 };

	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		strv_add(argv, fixed[i]);
	for (size_t i = 0; i < step->n; i++)
		str_addf(&hosts, "%s%s", i ? "," : "", step->hosts[i]);
	strv_take(argv, xasprintf("--nodes=%zu", step->n));
	strv_take(argv, xasprintf("--ntasks=%zu", step->n));
	strv_take(argv, xasprintf("--nodelist=%s", str_text(&hosts)));
	if (step->het_group >= 0)
		strv_take(argv, xasprintf("--het-group=%d", step->het_group));
	if (step->gpus)
		strv_add(argv, step->gpus);
	if (step->copy)
		strv_take(argv, xasprintf("--bcast=%s", step->copy));
	str_free(&hosts);
}

void srun_argv(struct strv *argv, const struct srun_step *step)
{
	add_options(argv, step);
	if (!step->copy) {
		strv_add(argv, "/bin/sh");
		strv_add(argv, "-c");
		strv_take(argv, xasprintf("%s%s", at_exit, install_direct));
		strv_add(argv, "sh");
		strv_add(argv, step->any_owner ? "-ldnL" : "-ldn");
	}
	strv_add(argv, step->agent);
	strv_take(argv, xasprintf("--connect=%s", step->how));
}

void srun_environment(struct strv *env, char *const *own)
{
	/* The controller tells srun the rest; a list of hosts here would mislead it in
	 * a heterogeneous job. */
	static const char *const kept[] = {
		"PATH",           "HOME",
		"SLURM_CONF",     "SLURM_JOB_ID",
		"SLURM_JOBID",    "SLURM_CLUSTER_NAME",
		"SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER",
		"SLURM_HET_SIZE",
	};
	static const char het[] = "SLURM_JOB_ID_HET_GROUP_";

	for (; *own; own++) {
		const size_t n = strcspn(*own, "=");
		bool keep = !strncmp(*own, het, sizeof het - 1);

		for (size_t i = 0; !keep && i < sizeof kept / sizeof *kept; i++)
			keep = strlen(kept[i]) == n && !strncmp(kept[i], *own, n);
		if (keep && (*own)[n])
			strv_add(env, *own);
	}
	strv_add(env, "BERTH_STEP_OF_RUNNER=1");
}

const char *srun_again(const char *line)
{
	return strncmp(line, AGAIN, sizeof AGAIN - 1) ? NULL : line + sizeof AGAIN - 1;
}

/* VALUE begins with a range of ports. */
static bool is_range(const char *value, unsigned *first, unsigned *last)
{
	const size_t n = strspn(value, "0123456789-");
	char text[16], more;
	unsigned a, b;

	if (n >= sizeof text)
		return false;
	memcpy(text, value, n);
	text[n] = '\0';
	if (sscanf(text, "%5u-%5u%c", &a, &b, &more) != 2 || !a || a > b || b > 65535)
		return false;
	*first = a;
	*last = b;
	return true;
}

/* The value behind the next KEY of a text at *AT, which moves on; NULL: there is none.
 * A quote in front of it is left out. */
static const char *next_value(const char **at, const char *key)
{
	static const char blanks[] = " \t";

	while (**at) {
		const char *p = *at + strspn(*at, blanks);

		*at += strcspn(*at, "\n");
		*at += **at == '\n';
		if (strncasecmp(p, key, strlen(key)) != 0)
			continue;
		p += strlen(key);
		p += strspn(p, blanks);
		if (*p != '=')
			continue;
		p++;
		p += strspn(p, blanks);
		return p + (*p == '"');
	}
	return NULL;
}

bool srun_port_range(const char *conf, unsigned *first, unsigned *last)
{
	const char *value;
	bool found = false;

	while ((value = next_value(&conf, "SrunPortRange")))
		found |= is_range(value, first, last);
	return found;
}

static bool command_is_word(const char *value, const char *word)
{
	const size_t n = strcspn(value, " \t\r\n\"#");

	return n == strlen(word) && !strncasecmp(value, word, n);
}

enum srun_auth srun_auth_type(const char *conf)
{
	enum srun_auth type = SRUN_AUTH_UNKNOWN;
	const char *value;

	while ((value = next_value(&conf, "AuthType")))
		type = command_is_word(value, "auth/slurm") ||
				       command_is_word(value, "auth/none")
			       ? SRUN_AUTH_OWN
			       : SRUN_AUTH_MUNGE;
	return type;
}

char *srun_munge_socket(const char *conf)
{
	static const char key[] = "socket=";
	const char *value, *last = NULL;

	while ((value = next_value(&conf, "AuthInfo")))
		for (last = NULL; *value && !strchr(" \t\r\n\"#", *value);
		     value += *value == ',') {
			if (!strncasecmp(value, key, sizeof key - 1))
				last = value + sizeof key - 1;
			value += strcspn(value, ", \t\r\n\"#");
		}
	return last && *last == '/' ? xstrndup(last, strcspn(last, ", \t\r\n\"#"))
				    : NULL;
}

char *srun_words(const char *said)
{
	char *copy = xstrdup(said), *line, *rest = copy, *last = NULL, *words = NULL;

	while ((line = strsep(&rest, "\n"))) {
		const char *p = line;

		while (*p && (unsigned char)*p <= ' ')
			p++;
		/* srun says that in any case; a task has said before why it ends */
		if (*p && !strstr(p, "lacks support for cpu binding") &&
		    !(last && strstr(line, ": Exited with exit code ")))
			last = line;
	}
	if (last)
		words = agent_install_quote(last, strlen(last));
	free(copy);
	return words;
}
