#include "agent/placement/env.h"

#include <stddef.h>
#include <string.h>

#include "common/taskvars.h"
#include "common/wire.h"

/* The value that wins. */
enum rule {
	IDENTITY, /* the table's, always */
	ALWAYS,   /* the table's, but -x over it */
	DEFAULT,  /* any that was set before */
	BEFORE    /* the table's, a ':', and any that was set before */
};

/* A row says to a rank: */
enum give {
	SKIP, /* as if the row were not there */
	SET,  /* the value appended */
	UNSET /* and no other source's value either, but -x */
};

/* ---- values that are not a field of struct env_rank ---- */

static enum give env_text(struct str *s, const char *t)
{
	if (!t)
		return UNSET;
	str_add(s, t);
	return SET;
}

static const struct berth *berth_of(const struct env_rank *r)
{
	return &r->placement->v[r->local_rank];
}

static const struct gpu *gpu_of(const struct env_rank *r, size_t local)
{
	int gpu = local < r->placement->n ? r->placement->v[local].gpu : -1;

	return gpu < 0 ? NULL : &r->gpus->v[gpu];
}

static enum give env_master_addr(struct str *s, const struct env_rank *r)
{
	return *r->master_addr ? env_text(s, r->master_addr) : SKIP;
}

static enum give env_master_port(struct str *s, const struct env_rank *r)
{
	str_addf(s, "%u", r->master_port);
	return r->master_port ? SET : SKIP;
}

/* The value of NAME that -x gives, or VALUE. */
static const char *env_given(const struct env_rank *r, const char *name,
			     const char *value)
{
	const size_t len = strlen(name);

	for (size_t i = 0; i < r->given.n; i++)
		if (!strncmp(r->given.v[i], name, len) && r->given.v[i][len] == '=')
			value = r->given.v[i] + len + 1;
	return value;
}

/* Where the ranks meet, as MASTER_ADDR and MASTER_PORT say it to them. */
static enum give env_coordinator_address(struct str *s, const struct env_rank *r)
{
	struct str own = { 0 };
	const char *addr, *port;
	enum give give;

	str_addf(&own, "%u", r->master_port);
	addr = env_given(r, "MASTER_ADDR", r->master_addr);
	port = env_given(r, "MASTER_PORT", r->master_port ? str_text(&own) : "");
	give = *addr && *port ? SET : SKIP;
	str_addf(s, strchr(addr, ':') ? "[%s]:%s" : "%s:%s", addr, port);
	str_free(&own);
	return give;
}

void env_add_tf_config(struct str *s, const struct env_tf *tf)
{
	str_addf(s, "{\"cluster\":%s,\"task\":{\"type\":\"%s\",\"index\":%u}}",
		 tf->cluster, tf->role, tf->task);
}

static enum give env_tf_config(struct str *s, const struct env_rank *r)
{
	if (!r->tf.cluster || !strcmp(r->tf.role, "none"))
		return SKIP;
	env_add_tf_config(s, &r->tf);
	return SET;
}

static enum give env_cores(struct str *s, const struct env_rank *r)
{
	uint32_t n = berth_of(r)->ncores;

	str_addf(s, "%u", n < 1 ? 1 : n);
	return SET;
}

static enum give env_cores_at_most_8(struct str *s, const struct env_rank *r)
{
	uint32_t n = berth_of(r)->ncores;

	str_addf(s, "%u", n < 1 ? 1 : n > 8 ? 8 : n);
	return SET;
}

static enum give env_cpus(struct str *s, const struct env_rank *r)
{
	str_add_bits(s, berth_of(r)->cpus.w, berth_of(r)->cpus.nwords);
	return SET;
}

static enum give env_numa(struct str *s, const struct env_rank *r)
{
	return env_text(s, berth_of(r)->numa ? berth_of(r)->numa : "");
}

static enum give env_gpu_pci(struct str *s, const struct env_rank *r)
{
	const struct gpu *g = gpu_of(r, r->local_rank);

	return env_text(s, g ? g->pci : NULL);
}

static enum give env_gpu_uuid(struct str *s, const struct env_rank *r)
{
	const struct gpu *g = gpu_of(r, r->local_rank);

	return env_text(s, g && *g->uuid ? g->uuid : NULL);
}

/* Number 0 of the one GPU that the rank can see.  JAX would take the local rank for a
 * number there. */
static enum give env_first_if_one_gpu(struct str *s, const struct env_rank *r)
{
	struct str visible = { 0 };
	bool one;

	env_visible(&visible, r);
	one = visible.len && !strchr(str_text(&visible), ',');
	str_free(&visible);
	return one ? env_text(s, "0") : SKIP;
}

static bool has_vendor(const struct env_rank *r, enum gpu_vendor vendor)
{
	return r->gpus->n && r->gpus->v[0].vendor == vendor &&
	       r->gpu_visible != VISIBLE_INHERIT;
}

static enum give env_cuda_order(struct str *s, const struct env_rank *r)
{
	return has_vendor(r, GPU_NVIDIA) ? env_text(s, "PCI_BUS_ID") : SKIP;
}

static enum give env_cuda_visible(struct str *s, const struct env_rank *r)
{
	if (has_vendor(r, GPU_AMD))
		return UNSET;
	env_visible(s, r);
	return has_vendor(r, GPU_NVIDIA) ? SET : SKIP;
}

static enum give env_rocr_visible(struct str *s, const struct env_rank *r)
{
	if (!has_vendor(r, GPU_AMD))
		return SKIP;
	env_visible(s, r);
	return SET;
}

/* HIP counts within what ROCR shows: a list for the whole host would be wrong there. */
static enum give env_hip_visible(struct str *s, const struct env_rank *r)
{
	(void)s;
	return has_vendor(r, GPU_AMD) ? UNSET : SKIP;
}

static enum give pmi_number(struct str *s, const struct env_rank *r, uint32_t number)
{
	str_addf(s, "%u", number);
	return r->pmi_fd ? SET : UNSET;
}

static enum give env_pmi_fd(struct str *s, const struct env_rank *r)
{
	return pmi_number(s, r, r->pmi_fd);
}

static enum give env_pmi_rank(struct str *s, const struct env_rank *r)
{
	return pmi_number(s, r, r->rank);
}

static enum give env_pmi_size(struct str *s, const struct env_rank *r)
{
	return pmi_number(s, r, r->size);
}

static enum give env_pmi1_beside_pmix(struct str *s, const struct env_rank *r)
{
	return r->pmi_fd && r->has_pmix ? env_text(s, "1") : SKIP;
}

static enum give with_pmix(struct str *s, const struct env_rank *r, const char *value)
{
	return r->has_pmix && *value ? env_text(s, value) : SKIP;
}

static enum give env_without_orte_and_slurm(struct str *s, const struct env_rank *r)
{
	return with_pmix(s, r, "^orte,slurm");
}

static enum give env_yes_with_pmix(struct str *s, const struct env_rank *r)
{
	return with_pmix(s, r, "1");
}

static enum give env_none_with_pmix(struct str *s, const struct env_rank *r)
{
	return with_pmix(s, r, "none");
}

static enum give env_yes_if_oversubscribed(struct str *s, const struct env_rank *r)
{
	return r->oversubscribed ? with_pmix(s, r, "1") : SKIP;
}

static enum give env_folder_in_dev_shm(struct str *s, const struct env_rank *r)
{
	return with_pmix(s, r,
			 r->paths.shared_memory ? r->paths.shared_memory : "later");
}

static enum give env_python_path(struct str *s, const struct env_rank *r)
{
	const char *const part[] = { r->paths.hook, r->python ? r->horovod : NULL,
				     r->python, r->folder };
	bool any = false;

	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		if (part[i])
			str_addf(s, "%s%s", any ? ":" : "", part[i]);
		any |= part[i] != NULL;
	}
	return any ? SET : SKIP;
}

static enum give env_libberth(struct str *s, const struct env_rank *r)
{
	return r->library ? env_text(s, r->library) : SKIP;
}

static enum give env_list_of_hosts(struct str *s, const struct env_rank *r)
{
	return r->host_list && *r->host_list ? env_text(s, r->host_list) : SKIP;
}

/* The job asks for NCCL's log. */
static bool asks_for_log(const struct env_paths *p)
{
	return p->nccl_log != NULL;
}

static enum give env_warn_or_info(struct str *s, const struct env_rank *r)
{
	return env_text(s, asks_for_log(&r->paths) ? "INFO" : "WARN");
}

static enum give env_init(struct str *s, const struct env_rank *r)
{
	return asks_for_log(&r->paths) ? env_text(s, "INIT") : SKIP;
}

static enum give env_pipe_of_the_agent(struct str *s, const struct env_rank *r)
{
	return asks_for_log(&r->paths) && *r->paths.nccl_log != '-'
		       ? env_text(s, r->paths.nccl_log)
		       : SKIP;
}

static enum give env_never(struct str *s, const struct env_rank *r)
{
	(void)s;
	(void)r;
	return UNSET;
}

/* ---- the table ---- */

#define NUMBER(field) .number = offsetof(struct env_rank, field)
#define TEXT(field) .text = offsetof(struct env_rank, field)
#define VALUE(function) .value = env_##function
#define CONSTANT(string) .constant = (string), .common = true
/* All ranks of an app on this host get it, in each life. */
#define COMMON(...) __VA_ARGS__, .common = true
/* Inside a Slurm job JAX, Lightning and Megatron read these variables of their
 * launcher. */
#define IN_SLURM(...) __VA_ARGS__, .in_slurm = true
/* Pages show TEXT. */
#define SHOWN(text, ...) __VA_ARGS__
/* Only if the variable OTHER has the table's value. */
#define WITH(other, ...) __VA_ARGS__, .with = other
#define GIVEN(name, readers, rule, ...) { name, rule, __VA_ARGS__ },

static const struct row {
	const char *name;
	enum rule rule;
	size_t number,
		text; /* the field's offset; neither of struct env_rank's first */
	enum give (*value)(struct str *s, const struct env_rank *r);
	const char *constant, *with;
	bool in_slurm; /* for ranks inside a Slurm job alone */
	bool common;
} table[] = {
#include "common/given.def"
};

enum { ROWS = sizeof table / sizeof *table };
_Static_assert(ROWS <= sizeof((struct env_base){ 0 }.set), "env_base.set is too small");

static enum give row_value(struct str *s, const struct row *row,
			   const struct env_rank *r)
{
	const void *field = (const char *)r + row->number + row->text;

	if (row->value)
		return row->value(s, r);
	if (!row->number)
		return env_text(s, row->constant ? row->constant
						 : *(const char *const *)field);
	str_addf(s, "%u", *(const uint32_t *)field);
	return SET;
}

/* ---- GPUs ---- */

static void env_add_gpu(struct str *s, const struct gpu *g, const struct env_rank *r)
{
	const char *comma = s->len ? "," : "";

	if (*g->uuid && (g->mig || r->gpu_id == GPU_ID_UUID))
		str_addf(s, "%s%s", comma, g->uuid);
	else
		str_addf(s, "%s%d", comma, g->index);
}

/* In node mode index i is local rank i's GPU.  GPUs without a rank follow.  A
 * process can use one MIG instance only: it gets its own. */
void env_visible(struct str *s, const struct env_rank *r)
{
	const struct gpu *own = gpu_of(r, r->local_rank);
	struct str list = { 0 };

	if (!own || r->gpu_visible == VISIBLE_INHERIT)
		return;
	if (r->gpu_visible != VISIBLE_NODE || own->mig) {
		env_add_gpu(&list, own, r);
	} else {
		bool *listed = xcalloc(r->gpus->n, sizeof *listed);

		for (size_t i = 0; i < r->placement->n; i++) {
			const struct gpu *g = gpu_of(r, i);

			if (!g || listed[g - r->gpus->v])
				continue;
			env_add_gpu(&list, g, r);
			listed[g - r->gpus->v] = true;
		}
		for (size_t i = 0; i < r->gpus->n; i++)
			if (!listed[i])
				env_add_gpu(&list, &r->gpus->v[i], r);
		free(listed);
	}
	str_add(s, str_text(&list));
	str_free(&list);
}

/* ---- layers ---- */

enum layer { OWN, FORWARDED, GIVEN };

struct entry {
	const char *text;
	size_t name; /* length */
	enum layer layer;
	size_t order;
};

struct entries {
	struct entry *v;
	size_t n;
};

/* Whether ENTRY of this host's own environment is for ranks.  The variables of another
 * launcher's task are not, nor are options of a runner. */
static bool is_for_ranks(const char *entry, size_t name, const struct env_rank *r)
{
	if (r->own_few)
		return (name == 4 && !memcmp(entry, "PATH", 4)) ||
		       (name == 4 && !memcmp(entry, "HOME", 4));
	return strncmp(entry, "BERTH_", 6) != 0 && !taskvars_has(entry, name);
}

/* A TMPDIR that is not on this host is left out. */
static void add_layer(struct entries *l, const char *const *v, size_t n,
		      enum layer layer, const struct env_rank *r)
{
	l->v = xreallocarray(l->v, l->n + n, sizeof *l->v);
	for (size_t i = 0; i < n; i++) {
		const char *equals = strchr(v[i], '=');

		if (!equals || equals == v[i])
			continue;
		/* PMIx's own variables, not those of its user's tuning */
		if (r->has_pmix && !strncmp(v[i], "PMIX_", 5) &&
		    strncmp(v[i], "PMIX_MCA_", 9) != 0)
			continue;
		if (layer == OWN && !is_for_ranks(v[i], (size_t)(equals - v[i]), r))
			continue;
		if (layer != GIVEN && !strncmp(v[i], "TMPDIR=", 7) && r->dir_exists &&
		    !r->dir_exists(equals + 1))
			continue;
		l->v[l->n] =
			(struct entry){ v[i], (size_t)(equals - v[i]), layer, l->n };
		l->n++;
	}
}

static int compare_names(const struct entry *a, const struct entry *b)
{
	int c = memcmp(a->text, b->text, a->name < b->name ? a->name : b->name);

	return c ? c : (a->name > b->name) - (a->name < b->name);
}

/* By name, the one that wins first: of a higher layer, then the later one. */
static int env_compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = compare_names(x, y);

	return c ? c : (x->order < y->order) - (x->order > y->order);
}

/* Whether E stays, given what the table says of its name.  If so, the table's row goes.
 */
static bool env_stays(struct env_base *b, const struct entry *e, const enum give *give)
{
	size_t row = 0;

	while (row < ROWS &&
	       (strncmp(table[row].name, e->text, e->name) || table[row].name[e->name]))
		row++;
	if (row == ROWS || give[row] == SKIP)
		return true;
	if (table[row].rule == BEFORE && e->text[e->name + 1])
		b->rest[row] = e->text + e->name + 1;
	if (table[row].rule == IDENTITY || table[row].rule == BEFORE ||
	    (table[row].rule == ALWAYS && e->layer != GIVEN))
		return false;
	b->set[row] = false;
	return true;
}

void env_base(struct env_base *b, const struct env_rank *r, char *const *own)
{
	struct env_rank first = *r;
	struct entries l = { 0 };
	enum give give[ROWS];
	struct str s = { 0 };
	bool in_slurm = false;
	size_t nown = 0;

	for (size_t i = 0; r->managed && i < r->forwarded.n; i++)
		in_slurm |= !strncmp(r->forwarded.v[i], "SLURM_JOB_ID=", 13);
	first.local_rank = 0;
	*b = (struct env_base){ 0 };
	for (size_t i = 0; i < ROWS; i++) {
		give[i] = table[i].in_slurm && !in_slurm
				  ? SKIP
				  : row_value(&s, &table[i], &first);
		b->set[i] = give[i] == SET;
	}
	str_free(&s);
	while (own[nown])
		nown++;
	add_layer(&l, (const char *const *)own, nown, OWN, r);
	add_layer(&l, r->forwarded.v, r->forwarded.n, FORWARDED, r);
	add_layer(&l, r->given.v, r->given.n, GIVEN, r);
	if (l.n)
		qsort(l.v, l.n, sizeof *l.v, env_compare);
	b->v = xcalloc(l.n + 1, sizeof *b->v);
	for (size_t i = 0; i < l.n; i++) {
		const struct entry *e = &l.v[i];

		if (i && !compare_names(e, e - 1))
			continue;
		if (env_stays(b, e, give))
			b->v[b->n++] = e->text;
	}
	free(l.v);
	for (size_t i = 0, other = 0; i < ROWS; i++) {
		while (table[i].with && strcmp(table[other].name, table[i].with) != 0)
			other++;
		b->set[i] &= !table[i].with || b->set[other];
	}
}

const char *env_get(const struct env_base *b, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < b->n; i++)
		if (!strncmp(b->v[i], name, len) && b->v[i][len] == '=')
			return b->v[i] + len + 1;
	return NULL;
}

void env_base_free(struct env_base *b)
{
	free(b->v);
	*b = (struct env_base){ 0 };
}

/* ---- one rank ---- */

static char **env_block(const struct env_base *b, const struct env_rank *r,
			bool common_only)
{
	const size_t npmix = common_only ? 0 : r->pmix.n;
	struct str s = { 0 };
	size_t rows = 0, head;
	char **v, *p;

	for (size_t i = 0; i < ROWS; i++) {
		size_t begin = s.len;

		if (!b->set[i] || (common_only && !table[i].common))
			continue;
		str_add(&s, table[i].name);
		str_addn(&s, "=", 1);
		if (row_value(&s, &table[i], r) == SET) {
			if (b->rest[i])
				str_addf(&s, ":%s", b->rest[i]);
			str_addn(&s, "", 1);
			rows++;
		} else {
			s.len = begin;
		}
	}
	head = (b->n + rows + npmix + 1) * sizeof *v;
	v = xmalloc(head + s.len);
	if (b->n)
		memcpy(v, b->v, b->n * sizeof *v);
	p = (char *)v + head;
	if (s.len)
		memcpy(p, s.s, s.len);
	for (size_t i = 0; i < rows; i++, p += strlen(p) + 1)
		v[b->n + i] = p;
	if (npmix)
		memcpy(v + b->n + rows, r->pmix.v, npmix * sizeof *v);
	v[b->n + rows + npmix] = NULL;
	str_free(&s);
	return v;
}

char **env_build(const struct env_base *b, const struct env_rank *r)
{
	return env_block(b, r, false);
}

char **env_build_common(const struct env_base *b, const struct env_rank *r)
{
	return env_block(b, r, true);
}

const char *const *env_own_names(void)
{
	static const char *names[ROWS + 1];

	for (size_t i = 0, n = 0; i < ROWS; i++)
		if (!table[i].common)
			names[n++] = table[i].name;
	return names;
}

/* ---- a task of another launcher ---- */

void env_task(struct strv *set, struct strv *defaults, struct strv *unset,
	      const struct env_rank *r)
{
	/* the launcher's to set, or of an agent that such a task does not have */
	static const char *const launchers[] = {
		"SLURM_",     "PMI_",       "BERTH_JOB", "BERTH_AGENT",
		"BERTH_RANK", "BERTH_SIZE", "PWD",       "OMPI_MCA_orte_hnp_uri"
	};

	for (size_t i = 0; i < ROWS; i++) {
		const struct row *row = &table[i];
		struct str s = { 0 };
		enum give give;

		bool is_launchers = false;

		for (size_t k = 0; k < sizeof launchers / sizeof *launchers; k++)
			if (!strncmp(row->name, launchers[k], strlen(launchers[k])))
				is_launchers = true;
		if (is_launchers || row->rule == BEFORE)
			continue;
		str_addf(&s, "%s=", row->name);
		give = row_value(&s, row, r);
		if (give == SET)
			strv_add(row->rule == DEFAULT ? defaults : set, str_text(&s));
		else if (give == UNSET)
			strv_add(unset, row->name);
		str_free(&s);
	}
}
