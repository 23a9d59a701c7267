#include "launcher/hosts/allocation.h"

#include <ctype.h>

enum {
	COMPONENTS_MAX = 128, /* of a heterogeneous job; Slurm's own limit */
	NAME_MAX_BYTES = 80,  /* of a variable */
	SHOWN_MAX_BYTES = 160 /* of a value in a message */
};

/* How the text, or the value, becomes lines of a host file. */
enum form { SLURM, LIST, LINES, PAIRS, WORDS, QUEUES };

static const struct source {
	enum allocation_manager manager;
	const char *name, *variable, *job_id;
	enum allocation_text text;
	enum form form;
	bool unasked; /* one line a host says nothing of its slots */
} sources[] = {
	{ ALLOCATION_SLURM, "Slurm", "SLURM_JOB_NODELIST", "SLURM_JOB_ID",
	  ALLOCATION_ENV, SLURM, false },
	{ ALLOCATION_FLUX, "Flux", "FLUX_URI", NULL, ALLOCATION_PROGRAM, LIST, true },
	{ ALLOCATION_PBS, "PBS", "PBS_NODEFILE", "PBS_JOBID", ALLOCATION_FILE, LINES,
	  false },
	{ ALLOCATION_COBALT, "Cobalt", "COBALT_NODEFILE", "COBALT_JOBID",
	  ALLOCATION_FILE, LINES, true },
	{ ALLOCATION_LSF, "LSF", "LSB_MCPU_HOSTS", "LSB_JOBID", ALLOCATION_ENV, PAIRS,
	  false },
	{ ALLOCATION_LSF, "LSF", "LSB_DJOB_HOSTFILE", "LSB_JOBID", ALLOCATION_FILE,
	  LINES, false },
	{ ALLOCATION_LSF, "LSF", "LSB_HOSTS", "LSB_JOBID", ALLOCATION_ENV, WORDS,
	  false },
	{ ALLOCATION_SGE, "Grid Engine", "PE_HOSTFILE", "JOB_ID", ALLOCATION_FILE,
	  QUEUES, false },
	{ ALLOCATION_HOST_FILE, "MPI", "OMPI_MCA_orte_default_hostfile", NULL,
	  ALLOCATION_FILE, LINES, false },
	{ ALLOCATION_HOST_FILE, "MPI", "HYDRA_HOST_FILE", NULL, ALLOCATION_FILE, LINES,
	  false },
	{ ALLOCATION_HOST_FILE, "MPI", "I_MPI_HYDRA_HOST_FILE", NULL, ALLOCATION_FILE,
	  LINES, false },
};

/* ---- the environment ---- */

/* The value of NAME in ENV; NULL if it is not set or empty. */
static const char *allocation_get(char *const *env, const char *name)
{
	const size_t n = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return (*env)[n + 1] ? *env + n + 1 : NULL;
	return NULL;
}

/* The value of NAME for component GROUP of a heterogeneous job; of the job if GROUP is
 * negative. */
static const char *get_of(char *const *env, const char *name, long group)
{
	char whole[NAME_MAX_BYTES];

	if (group < 0)
		return allocation_get(env, name);
	snprintf(whole, sizeof whole, "%s_HET_GROUP_%ld", name, group);
	return allocation_get(env, whole);
}

static const char *slurm_job_id(char *const *env)
{
	const char *id = allocation_get(env, "SLURM_JOB_ID");

	return id ? id : allocation_get(env, "SLURM_JOBID");
}

/* The number of components of a heterogeneous job; 0: it is none.  These variables stay
 * in the environment of a job that was submitted from inside such a job, so one of them
 * has to name this job. */
static long allocation_components(char *const *env)
{
	const char *size = allocation_get(env, "SLURM_HET_SIZE"),
		   *id = slurm_job_id(env);
	long n;

	if (!size || !id || str_to_long(&n, size, 1, COMPONENTS_MAX, NULL))
		return 0;
	for (long i = 0; i < n; i++) {
		const char *component = get_of(env, "SLURM_JOB_ID", i);

		if (component && !strcmp(component, id))
			return n;
	}
	return 0;
}

/* The list of hosts of component GROUP, and its variable. */
static const char *node_list(char *const *env, long group, const char **variable)
{
	*variable = "SLURM_JOB_NODELIST";
	if (get_of(env, *variable, group))
		return get_of(env, *variable, group);
	if (get_of(env, "SLURM_NODELIST", group))
		*variable = "SLURM_NODELIST"; /* its name in old versions */
	return get_of(env, *variable, group);
}

static bool is_there(const struct source *s, char *const *env)
{
	const char *variable;

	switch (s->manager) {
	case ALLOCATION_SLURM:
		return slurm_job_id(env) &&
		       (allocation_components(env) || node_list(env, -1, &variable));
	case ALLOCATION_LSF:
		return allocation_get(env, s->job_id) &&
		       allocation_get(env, s->variable);
	default:
		return allocation_get(env, s->variable);
	}
}

/* "8" or "a100:8" to 8; 0 if it is no such text. */
static unsigned last_number(const char *text)
{
	const char *colon = text ? strrchr(text, ':') : NULL;
	long n;

	if (!text || str_to_long(&n, colon ? colon + 1 : text, 0, 65535, NULL))
		return 0;
	return (unsigned)n;
}

void allocation_find(struct allocation *a, char *const *env)
{
	*a = (struct allocation){ .name = "none" };
	for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
		const struct source *s = &sources[i];

		if (!is_there(s, env))
			continue;
		*a = (struct allocation){
			.manager = s->manager,
			.name = s->name,
			.job_id = s->job_id ? allocation_get(env, s->job_id) : NULL,
			.hosts_from = s->variable,
			.slots_from = s->variable,
			.text = s->text,
			.value = allocation_get(env, s->variable)
		};
		if (s->manager != ALLOCATION_SLURM)
			return;
		a->job_id = slurm_job_id(env);
		if (!allocation_components(env))
			node_list(env, -1, &a->hosts_from);
		a->gpus = last_number(allocation_get(env, "SLURM_GPUS_ON_NODE"));
		if (!a->gpus)
			a->gpus =
				last_number(allocation_get(env, "SLURM_GPUS_PER_NODE"));
		return;
	}
}

/* ---- names ---- */

struct entry {
	const char *name;
	size_t len; /* without its domain */
	size_t at;
};

struct index {
	const struct hosts *hosts;
	struct entry *v;
	size_t n;
};

static size_t short_length(const char *name)
{
	if (!name[strspn(name, "0123456789.")] || strchr(name, ':'))
		return strlen(name); /* an address */
	return strcspn(name, ".");
}

static int by_short_name(const struct entry *x, const struct entry *y)
{
	const size_t n = x->len < y->len ? x->len : y->len;
	const int c = strncasecmp(x->name, y->name, n);

	return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* By the name without its domain; a name that has none comes first. */
static int allocation_by_name(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	const int c = by_short_name(x, y);

	return c ? c : strcasecmp(x->name, y->name);
}

static struct index index_of(const struct hosts *h)
{
	struct index x = { h, xcalloc(h->n, sizeof *x.v), h->n };

	for (size_t i = 0; i < h->n; i++)
		x.v[i] = (struct entry){ h->v[i].name, short_length(h->v[i].name), i };
	qsort(x.v, x.n, sizeof *x.v, allocation_by_name);
	return x;
}

/* The place of NAME, or SIZE_MAX.  Two domains that differ are two hosts. */
static size_t allocation_find_name(const struct index *x, const char *name)
{
	const struct entry key = { name, short_length(name), 0 };
	size_t low = 0, high = x->n;

	while (low < high) { /* the first name from NAME on */
		const size_t middle = low + (high - low) / 2;

		if (allocation_by_name(&x->v[middle], &key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < x->n && !allocation_by_name(&x->v[low], &key))
		return x->v[low].at;
	if (name[key.len]) { /* the same without a domain is before all with one */
		char *bare = xstrndup(name, key.len);
		const size_t at = allocation_find_name(x, bare);

		free(bare);
		return at != SIZE_MAX && strlen(x->hosts->v[at].name) == key.len
			       ? at
			       : SIZE_MAX;
	}
	return low < x->n && !by_short_name(&x->v[low], &key) ? x->v[low].at : SIZE_MAX;
}

/* ---- Slurm ---- */

/* A value for a message. */
static const char *allocation_shown(char out[SHOWN_MAX_BYTES + 4], const char *value)
{
	snprintf(out, SHOWN_MAX_BYTES + 4, "%.*s%s", SHOWN_MAX_BYTES, value,
		 strlen(value) > SHOWN_MAX_BYTES ? "..." : "");
	return out;
}

/* One item of such a list, "N" or "N(xTIMES)", at *TEXT. */
static int read_count(long *n, long *times, const char **text)
{
	const char *p = *text;
	char *end;

	*times = 1;
	if (!isdigit((unsigned char)*p) || strspn(p, "0123456789") > 9)
		return -1;
	*n = strtol(p, &end, 10);
	p = end;
	if (!strncmp(p, "(x", 2)) {
		p += 2;
		if (!isdigit((unsigned char)*p) || strspn(p, "0123456789") > 9)
			return -1;
		*times = strtol(p, &end, 10);
		if (*end != ')')
			return -1;
		p = end + 1;
	}
	if (*n > HOST_SLOTS_MAX || (*p && *p != ','))
		return -1;
	*text = *p ? p + 1 : p;
	return *p && !p[1] ? -1 : 0;
}

/* VALUE of NAME, "2(x3),1", for N hosts into OUT.  *FITS: it counts as many hosts. */
static int read_counts(int *out, size_t n, bool *fits, const char *name,
		       const char *value, struct err *e)
{
	const char *p = value;
	char text[SHOWN_MAX_BYTES + 4];
	uint64_t at = 0;

	if (!value)
		return 0;
	do {
		long count, times;

		if (read_count(&count, &times, &p))
			return err_set(e, E_ALLOCATION_VALUE, name,
				       allocation_shown(text, value),
				       "it is not a list of numbers such as 2(x3),1");
		for (long i = 0; i < times && at + (uint64_t)i < n; i++)
			out[at + (uint64_t)i] = (int)count;
		at += (uint64_t)times;
	} while (*p);
	*fits = at == n;
	return 0;
}

/* Add component GROUP to A, whose hosts are in X.  Its tasks are unknown if the user
 * asked for no number of them, or if a job step has changed the variable. */
static int add_component(struct allocation *a, const struct index *x, char *const *env,
			 long group, struct err *e)
{
	const char *variable, *list = node_list(env, group, &variable);
	struct hosts part = { 0 };
	bool tasks_fit = false, cpus_fit = false;
	int *tasks, *cpus, rc;

	rc = hosts_parse(&part, list, e);
	tasks = xcalloc(part.n, sizeof *tasks);
	cpus = xcalloc(part.n, sizeof *cpus);
	rc = rc ||
	     read_counts(tasks, part.n, &tasks_fit, "SLURM_TASKS_PER_NODE",
			 get_of(env, "SLURM_TASKS_PER_NODE", group), e) ||
	     read_counts(cpus, part.n, &cpus_fit, "SLURM_JOB_CPUS_PER_NODE",
			 get_of(env, "SLURM_JOB_CPUS_PER_NODE", group), e);
	tasks_fit = tasks_fit && get_of(env, "SLURM_NTASKS", group);
	for (size_t i = 0; !rc && i < part.n; i++) {
		const size_t at = allocation_find_name(x, part.v[i].name);
		int *slots = &a->hosts.v[at].slots;

		*slots = tasks_fit && *slots >= 0 ? *slots + tasks[i] : SLOTS_AUTO;
		if (*slots > HOST_SLOTS_MAX)
			*slots = HOST_SLOTS_MAX;
		a->cpus[at] += cpus_fit ? cpus[i] : 0;
		if (a->group[at] < 0)
			a->group[at] = (int)group;
	}
	if (tasks_fit)
		a->slots_from = "SLURM_TASKS_PER_NODE";
	if (cpus_fit)
		a->cpus_from = "SLURM_JOB_CPUS_PER_NODE";
	free(tasks);
	free(cpus);
	hosts_free(&part);
	return rc ? -1 : 0;
}

/* A host of several components is one host with what each of them has there. */
static int read_slurm(struct allocation *a, char *const *env, struct err *e)
{
	const long n = allocation_components(env);
	struct str all = { 0 };
	struct index x;
	int rc = 0;

	for (long i = n ? 0 : -1; i < n && !rc; i++) {
		const char *variable, *list = node_list(env, i, &variable);

		if (!list)
			rc = err_set(e, E_ALLOCATION_VALUE, variable, "",
				     "a component of the job has no hosts");
		else
			str_addf(&all, "%s%s", all.len ? "," : "", list);
		if (!n)
			break;
	}
	if (!rc && hosts_parse(&a->hosts, str_text(&all), e))
		rc = err_in(e, "%s", a->hosts_from);
	str_free(&all);
	if (rc)
		return -1;
	a->cpus = xcalloc(a->hosts.n, sizeof *a->cpus);
	a->group = xcalloc(a->hosts.n, sizeof *a->group);
	for (size_t i = 0; i < a->hosts.n; i++)
		a->group[i] = -1;
	for (size_t i = 0; i < a->hosts.n; i++)
		a->hosts.v[i].slots = 0;
	x = index_of(&a->hosts);
	for (long i = n ? 0 : -1; !rc && (i < n || i < 0); i++) {
		rc = add_component(a, &x, env, i, e);
		if (!n)
			break;
	}
	free(x.v);
	return rc;
}

/* ---- the others ---- */

/* The next word of *TEXT, its length in *N; NULL: there is none.  LINE: only on this
 * line. */
static const char *allocation_next_word(const char **text, size_t *n, bool line)
{
	const char *word = *text + strspn(*text, line ? " \t\r" : " \t\r\n");

	*n = strcspn(word, " \t\r\n");
	*text = word + *n;
	return *n ? word : NULL;
}

/* Adds the hosts of lines "host slots queue cpus", as Grid Engine writes them. */
static void add_queues(struct str *out, const char *text)
{
	while (*text) {
		const char *word;
		size_t n;

		if ((word = allocation_next_word(&text, &n, true))) {
			str_addn(out, word, n);
			word = allocation_next_word(&text, &n, true);
			str_addf(out, " slots=%.*s", word ? (int)n : 0,
				 word ? word : "");
		}
		text += strcspn(text, "\n");
		text += *text == '\n';
		str_add(out, "\n");
	}
}

/* PBS_PPN is the number of slots of each host where the file names each host once. */
static void spread_ppn(struct allocation *a, char *const *env)
{
	const char *value = allocation_get(env, "PBS_PPN");
	long ppn;

	if (!value || str_to_long(&ppn, value, 1, HOST_SLOTS_MAX, NULL))
		return;
	for (size_t i = 0; i < a->hosts.n; i++)
		if (a->hosts.v[i].counted)
			return;
	for (size_t i = 0; i < a->hosts.n; i++)
		a->hosts.v[i].slots = (int)ppn;
	a->slots_from = "PBS_PPN";
}

static int read_others(struct allocation *a, char *const *env, const char *text,
		       struct err *e)
{
	const struct source *s = sources;
	const char *at = a->value, *word;
	struct str lines = { 0 };
	size_t n;
	int rc;

	while (strcmp(s->variable, a->hosts_from))
		s++;

	if (s->form == LIST) {
		rc = hosts_parse(&a->hosts, text, e) ? err_in(e, "%s", a->name) : 0;
	} else {
		if (s->form == QUEUES)
			add_queues(&lines, text);
		while ((s->form == PAIRS || s->form == WORDS) &&
		       (word = allocation_next_word(&at, &n, false))) {
			str_addn(&lines, word, n);
			if (s->form == PAIRS) { /* "host slots host slots" */
				word = allocation_next_word(&at, &n, false);
				str_addf(&lines, " slots=%.*s", word ? (int)n : 0,
					 word ? word : "");
			}
			str_add(&lines, "\n");
		}
		rc = hosts_parse_lines(&a->hosts,
				       s->form == LINES ? text : str_text(&lines),
				       a->hosts_from, e);
	}
	str_free(&lines);
	if (rc)
		return -1;
	a->cpus = xcalloc(a->hosts.n, sizeof *a->cpus);
	a->group = xcalloc(a->hosts.n, sizeof *a->group);
	for (size_t i = 0; i < a->hosts.n; i++)
		a->group[i] = -1;
	for (size_t i = 0; i < a->hosts.n; i++)
		if (s->unasked && !a->hosts.v[i].counted)
			a->hosts.v[i].slots = SLOTS_AUTO;
	if (a->manager == ALLOCATION_PBS)
		spread_ppn(a, env);
	return 0;
}

int allocation_read(struct allocation *a, char *const *env, const char *text,
		    struct err *e)
{
	int rc = a->manager == ALLOCATION_SLURM ? read_slurm(a, env, e)
						: read_others(a, env, text, e);

	if (rc) {
		hosts_free(&a->hosts);
		free(a->cpus);
		free(a->group);
		a->cpus = a->group = NULL;
	}
	return rc;
}

/* ---- what the user asks for ---- */

size_t allocation_match(size_t *at, const struct hosts *asked,
			const struct allocation *a)
{
	struct index x = index_of(&a->hosts);
	size_t missing = 0;

	for (size_t i = 0; i < asked->n; i++) {
		at[i] = allocation_find_name(&x, asked->v[i].name);
		missing += at[i] == SIZE_MAX;
	}
	free(x.v);
	return missing;
}

/* HOST is not in A: its hosts, as far as a line has room. */
static int not_there(const struct allocation *a, const char *host, struct err *e)
{
	const char **names = xcalloc(a->hosts.n, sizeof *names);
	char text[SHOWN_MAX_BYTES + 4];
	struct str folded = { 0 };

	for (size_t i = 0; i < a->hosts.n; i++)
		names[i] = a->hosts.v[i].name;
	hosts_fold(&folded, names, a->hosts.n);
	err_set(e, E_ALLOCATION_HOST, host, a->name,
		allocation_shown(text, str_text(&folded)));
	str_free(&folded);
	free(names);
	return -1;
}

int allocation_filter(struct hosts *asked, const size_t *at, const struct allocation *a,
		      const char *from, struct err *e)
{
	int *taken = xcalloc(a->hosts.n, sizeof *taken), rc = 0;

	for (size_t i = 0; i < asked->n && !rc; i++) {
		struct host_spec *h = &asked->v[i];
		int most, slots;

		if (at[i] == SIZE_MAX) {
			not_there(a, h->name, e);
			rc = err_in(e, "%s", from);
			break;
		}
		slots = a->hosts.v[at[i]].slots;
		most = slots == SLOTS_AUTO   ? a->cpus[at[i]]
		       : slots == SLOTS_GPUS ? 0 /* not known before its agent is up */
					     : slots;
		if (!h->counted)
			h->slots = slots;
		else if (h->slots > 0)
			taken[at[i]] += h->slots;
		if (h->counted && (most || slots == 0) && taken[at[i]] > most) {
			err_set(e, E_ALLOCATION_SLOTS, h->name, taken[at[i]], a->name,
				most,
				slots == SLOTS_AUTO ? a->cpus_from : a->slots_from);
			rc = err_in(e, "%s", from);
		}
		if (h->max_slots && h->slots > h->max_slots)
			h->slots = h->max_slots;
	}
	free(taken);
	return rc;
}

int allocation_per_host(const struct allocation *a, size_t at, int per_host,
			const char *from, struct err *e)
{
	const int cpus = a->cpus[at], slots = a->hosts.v[at].slots;

	if (!cpus || per_host <= cpus || per_host <= slots)
		return 0;
	return err_set(e, E_ALLOCATION_CPUS, from, per_host, a->name, cpus,
		       str_plural((uint64_t)cpus), a->hosts.v[at].name, a->cpus_from);
}

void allocation_free(struct allocation *a)
{
	hosts_free(&a->hosts);
	free(a->cpus);
	free(a->group);
	*a = (struct allocation){ .name = "none" };
}
