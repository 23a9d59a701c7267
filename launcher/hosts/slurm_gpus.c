#include "launcher/hosts/slurm_gpus.h"

#include <strings.h>

enum { GPUS_MAX = 65535 };

/* ENTRY of an environment is NAME, or with COMPONENTS also NAME of one component of a
 * heterogeneous job. */
static bool gpus_is_named(const char *entry, const char *name, bool components)
{
	static const char het[] = "_HET_GROUP";
	const size_t n = strlen(name);

	return !strncmp(entry, name, n) &&
	       (entry[n] == '=' ||
		(components && !strncmp(entry + n, het, sizeof het - 1)));
}

static const char *gpus_find(char *const *env, const char *name)
{
	for (; *env; env++)
		if (gpus_is_named(*env, name, false))
			return strchr(*env, '=') + 1;
	return NULL;
}

bool slurm_gpus_differ(char *const *env)
{
	static const char *const names[] = { "SLURM_GPUS", "SLURM_GPUS_PER_TASK",
					     "SLURM_GPUS_PER_SOCKET",
					     /* of components that may differ: */
					     "SLURM_GPUS_PER_NODE",
					     "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS" };
	const bool components = gpus_find(env, "SLURM_HET_SIZE");
	const size_t n = components ? sizeof names / sizeof *names : 3;

	for (; *env; env++)
		for (size_t i = 0; i < n; i++)
			if (gpus_is_named(*env, names[i], components))
				return true;
	return false;
}

const char *slurm_gpus_any_option(const char *version)
{
	const char *number = strchr(version, ' '); /* "slurm-wlm 22.05.8" */
	unsigned year, month;
	char text[16];

	if (!number || sscanf(number, " %15[0-9.]", text) != 1 ||
	    sscanf(text, "%4u.%2u", &year, &month) != 2)
		return NULL;
	return 100 * year + month >= 2311 ? "--external-launcher" : NULL;
}

char *slurm_gpus_option(char *const *env)
{
	const char *value = gpus_find(env, "SLURM_GPUS_ON_NODE");
	long n;

	if (!value || str_to_long(&n, value, 1, GPUS_MAX, NULL))
		return NULL;
	return xasprintf("--gpus-per-node=%ld", n);
}

/* "gpu:a100:3(IDX:0-2),gpu:1(IDX:3),mps:100" to 4. */
static int gpus_count(const char *gres, size_t n)
{
	long all = 0;

	for (const char *at = gres, *end = gres + n; at < end;) {
		const size_t item = strcspn(at, ", \n"), name = strcspn(at, "(, \n");
		const char *colon = memrchr(at, ':', name);
		char number[16];
		long one;

		if (!strncmp(at, "gpu:", 4) && colon &&
		    (size_t)snprintf(number, sizeof number, "%.*s",
				     (int)(at + name - colon - 1),
				     colon + 1) < sizeof number &&
		    !str_to_long(&one, number, 0, GPUS_MAX, NULL))
			all += one;
		at += item;
		/* a comma in "(IDX:0,2)" is no end */
		while (at < end && *at == ',' && strncmp(at + 1, "gpu:", 4))
			at += 1 + strcspn(at + 1, ", \n");
		at += at < end;
	}
	return all > GPUS_MAX ? GPUS_MAX : (int)all;
}

static void gpus_add(int *gpus, const struct hosts *all, const char *names, size_t n,
		     int number)
{
	char *list = xstrndup(names, n);
	struct hosts some = { 0 };

	if (hosts_parse(&some, list, NULL))
		some.n = 0;
	for (size_t i = 0; i < some.n; i++)
		for (size_t k = 0; k < all->n; k++)
			if (!strcasecmp(all->v[k].name, some.v[i].name))
				gpus[k] = gpus[k] + number > GPUS_MAX
						  ? GPUS_MAX
						  : gpus[k] + number;
	hosts_free(&some);
	free(list);
}

void slurm_gpus_read(int *gpus, const struct hosts *hosts, const char *text)
{
	static const char nodes[] = "Nodes=", gres[] = "GRES=";

	memset(gpus, 0, hosts->n * sizeof *gpus);
	for (const char *line = text; *line;
	     line += strcspn(line, "\n"), line += *line == '\n') {
		const char *at = line + strspn(line, " \t"), *end;
		const char *of;

		if (strncmp(at, nodes, sizeof nodes - 1))
			continue;
		end = at + strcspn(at, "\n");
		of = memmem(at, (size_t)(end - at), gres, sizeof gres - 1);
		at += sizeof nodes - 1;
		if (of)
			gpus_add(gpus, hosts, at, strcspn(at, " \n"),
				 gpus_count(of + sizeof gres - 1,
					    (size_t)(end - of) - (sizeof gres - 1)));
	}
}
