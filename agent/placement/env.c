#include "agent/placement/env.h"

#include "common/taskvars.h"

/* Who wins. */
enum rule {
	IDENTITY, /* the table, always */
	ALWAYS,   /* the table, but -x over it */
	DEFAULT   /* whatever was set before */
};

/* What a row says to a rank. */
enum give {
	SKIP, /* as if the row were not there */
	SET,  /* the value appended */
	UNSET /* and nobody else's value either, but -x */
};

/* ---- values ---- */

static enum give number(struct str *s, uint32_t n)
{
	str_addf(s, "%u", n);
	return SET;
}

static enum give text(struct str *s, const char *t)
{
	str_add(s, t);
	return SET;
}

static const struct berth *berth_of(const struct env_rank *r)
{
	return &r->placement->v[r->local];
}

static const struct gpu *gpu_of(const struct env_rank *r, size_t local)
{
	int gpu = local < r->placement->n ? r->placement->v[local].gpu : -1;

	return gpu < 0 ? NULL : &r->gpus->v[gpu];
}

static enum give rank(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->ranks.v[r->local]);
}

static enum give size(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->np);
}

static enum give local_rank(struct str *s, const struct env_rank *r)
{
	return number(s, r->local);
}

static enum give local_size(struct str *s, const struct env_rank *r)
{
	return number(s, (uint32_t)r->job->ranks.n);
}

static enum give node(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->node);
}

static enum give nodes(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->nodes);
}

static enum give cross_rank(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->cross_ranks.v[r->local]);
}

static enum give cross_size(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->cross_sizes.v[r->local]);
}

static enum give host(struct str *s, const struct env_rank *r)
{
	return text(s, r->job->host);
}

static enum give master_addr(struct str *s, const struct env_rank *r)
{
	return *r->job->master_addr ? text(s, r->job->master_addr) : SKIP;
}

static enum give master_port(struct str *s, const struct env_rank *r)
{
	return r->job->master_port ? number(s, r->job->master_port) : SKIP;
}

static enum give job_name(struct str *s, const struct env_rank *r)
{
	return text(s, r->job->job_id);
}

static enum give agent_socket(struct str *s, const struct env_rank *r)
{
	return r->agent ? text(s, r->agent) : UNSET;
}

static enum give restarts(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->epoch - 1);
}

static enum give max_restarts(struct str *s, const struct env_rank *r)
{
	return number(s, r->job->restarts);
}

static enum give wdir(struct str *s, const struct env_rank *r)
{
	return text(s, r->app->wdir);
}

static enum give omp_threads(struct str *s, const struct env_rank *r)
{
	uint32_t n = berth_of(r)->ncores;

	return number(s, n < 1 ? 1 : n > 8 ? 8 : n);
}

static enum give cpus(struct str *s, const struct env_rank *r)
{
	str_add_bits(s, berth_of(r)->cpus.w, berth_of(r)->cpus.nwords);
	return SET;
}

static enum give numa(struct str *s, const struct env_rank *r)
{
	return text(s, berth_of(r)->numa ? berth_of(r)->numa : "");
}

static enum give gpu_pci(struct str *s, const struct env_rank *r)
{
	const struct gpu *g = gpu_of(r, r->local);

	return g ? text(s, g->pci) : UNSET;
}

static enum give gpu_uuid(struct str *s, const struct env_rank *r)
{
	const struct gpu *g = gpu_of(r, r->local);

	return g && *g->uuid ? text(s, g->uuid) : UNSET;
}

static bool has_vendor(const struct env_rank *r, enum gpu_vendor vendor)
{
	return r->gpus->n && r->gpus->v[0].vendor == vendor &&
	       r->job->gpu_visible != VISIBLE_INHERIT;
}

static enum give cuda_order(struct str *s, const struct env_rank *r)
{
	return has_vendor(r, GPU_NVIDIA) ? text(s, "PCI_BUS_ID") : SKIP;
}

static enum give cuda_visible(struct str *s, const struct env_rank *r)
{
	if (has_vendor(r, GPU_AMD))
		return UNSET;
	env_visible(s, r);
	return has_vendor(r, GPU_NVIDIA) ? SET : SKIP;
}

static enum give rocr_visible(struct str *s, const struct env_rank *r)
{
	if (!has_vendor(r, GPU_AMD))
		return SKIP;
	env_visible(s, r);
	return SET;
}

/* HIP counts within what ROCR shows: a list for the whole host would be wrong there. */
static enum give hip_visible(struct str *s, const struct env_rank *r)
{
	(void)s;
	return has_vendor(r, GPU_AMD) ? UNSET : SKIP;
}

static enum give never(struct str *s, const struct env_rank *r)
{
	(void)s;
	(void)r;
	return UNSET;
}

/* Inside a Slurm job JAX, Lightning and Megatron read these of whoever started them. */
static bool in_slurm(const struct env_rank *r)
{
	for (size_t i = 0; r->job->flags & JOB_MANAGED && i < r->job->env.n; i++)
		if (!strncmp(r->job->env.v[i], "SLURM_JOB_ID=", 13))
			return true;
	return false;
}

static enum give slurm_rank(struct str *s, const struct env_rank *r)
{
	return in_slurm(r) ? rank(s, r) : SKIP;
}

static enum give slurm_local(struct str *s, const struct env_rank *r)
{
	return in_slurm(r) ? local_rank(s, r) : SKIP;
}

static enum give slurm_node(struct str *s, const struct env_rank *r)
{
	return in_slurm(r) ? node(s, r) : SKIP;
}

static enum give slurm_size(struct str *s, const struct env_rank *r)
{
	return in_slurm(r) ? size(s, r) : SKIP;
}

/* ---- the table ---- */

#define TORCH "torch, Lightning, accelerate, DeepSpeed"
#define ELASTIC "torch.distributed.elastic, Lightning"
#define HVD "Horovod"
#define OMPI "scripts written for Open MPI, accelerate, JAX"

static const struct row {
	const char *name, *readers;
	enum rule rule;
	enum give (*value)(struct str *s, const struct env_rank *r);
	const char *constant; /* in place of a function */
} table[] = {
	{ "RANK", TORCH, IDENTITY, rank, NULL },
	{ "WORLD_SIZE", TORCH, IDENTITY, size, NULL },
	{ "LOCAL_RANK", TORCH, IDENTITY, local_rank, NULL },
	{ "LOCAL_WORLD_SIZE", TORCH, IDENTITY, local_size, NULL },
	{ "NODE_RANK", "Lightning", IDENTITY, node, NULL },
	{ "GROUP_RANK", ELASTIC, IDENTITY, node, NULL },
	{ "GROUP_WORLD_SIZE", ELASTIC, IDENTITY, nodes, NULL },
	{ "ROLE_RANK", ELASTIC, IDENTITY, rank, NULL },
	{ "ROLE_WORLD_SIZE", ELASTIC, IDENTITY, size, NULL },
	{ "ROLE_NAME", ELASTIC, ALWAYS, NULL, "default" },
	{ "MASTER_ADDR", TORCH, ALWAYS, master_addr, NULL },
	{ "MASTER_PORT", TORCH, ALWAYS, master_port, NULL },
	{ "TORCHELASTIC_RUN_ID", ELASTIC, ALWAYS, job_name, NULL },
	{ "TORCHELASTIC_RESTART_COUNT", ELASTIC, ALWAYS, restarts, NULL },
	{ "TORCHELASTIC_MAX_RESTARTS", ELASTIC, ALWAYS, max_restarts, NULL },
	/* True would make every rank a client of a store that nobody serves. */
	{ "TORCHELASTIC_USE_AGENT_STORE", ELASTIC, ALWAYS, never, NULL },
	{ "TORCHELASTIC_ERROR_FILE", ELASTIC, ALWAYS, never, NULL },

	{ "HOROVOD_RANK", HVD, IDENTITY, rank, NULL },
	{ "HOROVOD_SIZE", HVD, IDENTITY, size, NULL },
	{ "HOROVOD_LOCAL_RANK", HVD, IDENTITY, local_rank, NULL },
	{ "HOROVOD_LOCAL_SIZE", HVD, IDENTITY, local_size, NULL },
	{ "HOROVOD_CROSS_RANK", HVD, IDENTITY, cross_rank, NULL },
	{ "HOROVOD_CROSS_SIZE", HVD, IDENTITY, cross_size, NULL },
	{ "HOROVOD_HOSTNAME", HVD, ALWAYS, host, NULL },

	{ "OMPI_COMM_WORLD_RANK", OMPI, IDENTITY, rank, NULL },
	{ "OMPI_COMM_WORLD_SIZE", OMPI, IDENTITY, size, NULL },
	{ "OMPI_COMM_WORLD_LOCAL_RANK", OMPI, IDENTITY, local_rank, NULL },
	{ "OMPI_COMM_WORLD_LOCAL_SIZE", OMPI, IDENTITY, local_size, NULL },
	{ "OMPI_COMM_WORLD_NODE_RANK", OMPI, IDENTITY, local_rank, NULL },
	{ "MPI_LOCALRANKID", "accelerate, Intel MPI scripts", IDENTITY, local_rank,
	  NULL },
	{ "MPI_LOCALNRANKS", "accelerate, Intel MPI scripts", IDENTITY, local_size,
	  NULL },

	{ "SLURM_PROCID", "JAX, Lightning, Megatron", IDENTITY, slurm_rank, NULL },
	{ "SLURM_LOCALID", "JAX, Lightning, Megatron", IDENTITY, slurm_local, NULL },
	{ "SLURM_NODEID", "Lightning", IDENTITY, slurm_node, NULL },
	{ "SLURM_NTASKS", "JAX, Lightning, Megatron", IDENTITY, slurm_size, NULL },
	{ "SLURM_NPROCS", "older scripts", IDENTITY, slurm_size, NULL },

	{ "CUDA_DEVICE_ORDER", "CUDA", ALWAYS, cuda_order, NULL },
	{ "CUDA_VISIBLE_DEVICES", "CUDA", ALWAYS, cuda_visible, NULL },
	{ "ROCR_VISIBLE_DEVICES", "ROCm", ALWAYS, rocr_visible, NULL },
	{ "HIP_VISIBLE_DEVICES", "ROCm", ALWAYS, hip_visible, NULL },

	{ "BERTH_JOB", "berth-agent --sweep", IDENTITY, job_name, NULL },
	{ "BERTH_AGENT", "libberth", IDENTITY, agent_socket, NULL },
	{ "BERTH_RANK", "libberth, scripts", IDENTITY, rank, NULL },
	{ "BERTH_SIZE", "libberth, scripts", IDENTITY, size, NULL },
	{ "BERTH_LOCAL_RANK", "libberth, scripts", IDENTITY, local_rank, NULL },
	{ "BERTH_LOCAL_SIZE", "libberth, scripts", IDENTITY, local_size, NULL },
	{ "BERTH_NODE_RANK", "libberth, scripts", IDENTITY, node, NULL },
	{ "BERTH_NODES", "libberth, scripts", IDENTITY, nodes, NULL },
	{ "BERTH_GPU", "scripts", IDENTITY, gpu_pci, NULL },
	{ "BERTH_GPU_UUID", "scripts", IDENTITY, gpu_uuid, NULL },
	{ "BERTH_CPUS", "scripts", IDENTITY, cpus, NULL },
	{ "BERTH_NUMA", "scripts", IDENTITY, numa, NULL },
	{ "BERTH_VERSION", "libberth, scripts", IDENTITY, NULL, BERTH_VERSION },

	{ "PWD", "shells", ALWAYS, wdir, NULL },
	{ "PYTHONFAULTHANDLER", "Python: a stack on SIGSEGV", DEFAULT, NULL, "1" },
	{ "PYTHONUNBUFFERED", "Python: output as it comes", DEFAULT, NULL, "1" },
	{ "OMP_NUM_THREADS", "OpenMP, torch, MKL", DEFAULT, omp_threads, NULL },
	{ "NCCL_DEBUG", "NCCL", DEFAULT, NULL, "WARN" },
	{ "TF_GPU_THREAD_MODE", "TensorFlow", DEFAULT, NULL, "gpu_private" },
	{ "TF_GPU_THREAD_COUNT", "TensorFlow", DEFAULT, NULL, "2" },
};

enum { ROWS = sizeof table / sizeof *table };
_Static_assert(ROWS <= sizeof((struct env_base){ 0 }.set), "env_base.set is too small");

const char *env_row(size_t row, const char **readers)
{
	if (row >= ROWS)
		return NULL;
	*readers = table[row].readers;
	return table[row].name;
}

static enum give row_value(struct str *s, const struct row *row,
			   const struct env_rank *r)
{
	return row->value ? row->value(s, r) : text(s, row->constant);
}

/* ---- GPUs ---- */

static void add_gpu(struct str *s, const struct gpu *g, const struct env_rank *r)
{
	const char *comma = s->len ? "," : "";

	if (*g->uuid && (g->mig || r->job->gpu_id == GPU_ID_UUID))
		str_addf(s, "%s%s", comma, g->uuid);
	else
		str_addf(s, "%s%d", comma, g->index);
}

/* In node mode index i is local rank i's GPU; GPUs that no rank has follow.  A process
 * can use one MIG instance only: it gets its own. */
void env_visible(struct str *s, const struct env_rank *r)
{
	const struct gpu *own = gpu_of(r, r->local);
	struct str list = { 0 };

	if (!own || r->job->gpu_visible == VISIBLE_INHERIT)
		return;
	if (r->job->gpu_visible != VISIBLE_NODE || own->mig) {
		add_gpu(&list, own, r);
	} else {
		bool *listed = xcalloc(r->gpus->n, sizeof *listed);

		for (size_t i = 0; i < r->placement->n; i++) {
			const struct gpu *g = gpu_of(r, i);

			if (!g || listed[g - r->gpus->v])
				continue;
			add_gpu(&list, g, r);
			listed[g - r->gpus->v] = true;
		}
		for (size_t i = 0; i < r->gpus->n; i++)
			if (!listed[i])
				add_gpu(&list, &r->gpus->v[i], r);
		free(listed);
	}
	str_add(s, str_text(&list));
	str_free(&list);
}

/* ---- this host's own environment ---- */

/* Not to be handed on: another launcher's task, and options of a runner beside us. */
static bool is_foreign(const char *entry)
{
	return taskvars_has(entry, strcspn(entry, "=")) || !strncmp(entry, "BERTH_", 6);
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

static bool no_such_tmpdir(const char *text, const struct env_rank *r)
{
	return !strncmp(text, "TMPDIR=", 7) && r->dir_exists &&
	       !r->dir_exists(text + 7);
}

static void add_layer(struct entries *l, const char *const *v, size_t n,
		      enum layer layer, const struct env_rank *r)
{
	l->v = xreallocarray(l->v, l->n + n, sizeof *l->v);
	for (size_t i = 0; i < n; i++) {
		const char *equals = strchr(v[i], '=');

		if (!equals || equals == v[i] || (layer == OWN && is_foreign(v[i])) ||
		    (layer != GIVEN && no_such_tmpdir(v[i], r)))
			continue;
		l->v[l->n] =
			(struct entry){ v[i], (size_t)(equals - v[i]), layer, l->n };
		l->n++;
	}
}

static int compare_names(const char *a, size_t na, const char *b, size_t nb)
{
	int c = memcmp(a, b, na < nb ? na : nb);

	return c ? c : (na > nb) - (na < nb);
}

/* By name, the one that wins first: of a higher layer, then the later one. */
static int compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = compare_names(x->text, x->name, y->text, y->name);

	return c ? c : (x->order < y->order) - (x->order > y->order);
}

static size_t find_row(const struct entry *e)
{
	size_t row = 0;

	while (row < ROWS &&
	       (strncmp(table[row].name, e->text, e->name) || table[row].name[e->name]))
		row++;
	return row;
}

/* Does E stay, given what the table says of its name?  If so the table's row does not.
 */
static bool stays(struct env_base *b, const struct entry *e, const enum give *give)
{
	size_t row = find_row(e);

	if (row == ROWS || give[row] == SKIP)
		return true;
	if (table[row].rule == IDENTITY ||
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
	size_t nown = 0;

	first.local = 0;
	*b = (struct env_base){ 0 };
	for (size_t i = 0; i < ROWS; i++) {
		give[i] = row_value(&s, &table[i], &first);
		b->set[i] = give[i] == SET;
	}
	str_free(&s);
	while (own[nown])
		nown++;
	add_layer(&l, (const char *const *)own, nown, OWN, r);
	add_layer(&l, r->job->env.v, r->job->env.n, FORWARDED, r);
	add_layer(&l, r->app->env.v, r->app->env.n, GIVEN, r);
	if (l.n)
		qsort(l.v, l.n, sizeof *l.v, compare);
	b->v = xcalloc(l.n + 1, sizeof *b->v);
	for (size_t i = 0; i < l.n; i++) {
		const struct entry *e = &l.v[i];

		if (i && !compare_names(e->text, e->name, e[-1].text, e[-1].name))
			continue;
		if (stays(b, e, give))
			b->v[b->n++] = e->text;
	}
	free(l.v);
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

char **env_build(const struct env_base *b, const struct env_rank *r)
{
	struct str s = { 0 };
	size_t rows = 0, head;
	char **v, *p;

	for (size_t i = 0; i < ROWS; i++) {
		size_t begin = s.len;

		if (!b->set[i])
			continue;
		str_add(&s, table[i].name);
		str_addn(&s, "=", 1);
		if (row_value(&s, &table[i], r) == SET) {
			str_addn(&s, "", 1);
			rows++;
		} else {
			s.len = begin;
		}
	}
	head = (b->n + rows + 1) * sizeof *v;
	v = xmalloc(head + s.len);
	if (b->n)
		memcpy(v, b->v, b->n * sizeof *v);
	p = (char *)v + head;
	if (s.len)
		memcpy(p, s.s, s.len);
	for (size_t i = 0; i < rows; i++, p += strlen(p) + 1)
		v[b->n + i] = p;
	v[b->n + rows] = NULL;
	str_free(&s);
	return v;
}
