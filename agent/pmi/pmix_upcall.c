/* The functions that libpmix calls in its host.  Each call becomes a message, and the
 * host's answer calls libpmix back.
 *
 * All upcalls run on libpmix's own thread, which must not wait for the host: they
 * leave behind what is to be called (struct pending). */
#include "agent/pmi/pmix_child_internal.h"

/* ---- exchanges ---- */

static int compare_ranks(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The ranks of PROCS, ascending; none: all.  False: they are of another job. */
static bool list_ranks(uint32_t *list, size_t *count, const struct px_proc *procs,
		       size_t n)
{
	size_t kept = 0;

	*count = 0;
	for (size_t i = 0; i < n; i++) {
		if (strncmp(procs[i].nspace, px.nspace, sizeof px.nspace))
			return false;
		if (procs[i].rank == PX_RANK_ALL)
			return true;
		list[i] = procs[i].rank;
	}
	qsort(list, n, sizeof *list, compare_ranks);
	for (size_t i = 0; i < n; i++)
		if (!i || list[i] != list[i - 1])
			list[kept++] = list[i];
	*count = kept;
	return true;
}

/* libpmix says in INFO that it lets a collective go on though a rank here that should
 * take part has ended. */
static bool upcall_lacks_rank(const struct px_info *info, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (upcall_is(&info[i], PX_LOCAL_STATUS) &&
		    info[i].value.type == PX_STATUS &&
		    (int)info[i].value.data.uint32 != PX_SUCCESS)
			return true;
	return false;
}

/* Give DATA to an exchange of these processes. */
static int upcall_collect(struct pending *p, const struct px_proc *procs, size_t n,
			  uint64_t name, const void *data, size_t ndata, bool lost)
{
	uint32_t *list = xcalloc(n, sizeof *list);
	struct wire_pmix_collect m = { .use = p->use, .name = name };
	int status = PX_SUCCESS;

	if (!list_ranks(list, &m.ranks.n, procs, n))
		status = PX_NOT_SUPPORTED;
	else if (!(m.id = pending_leave(p)))
		status = PX_OUT_OF_RESOURCE;
	if (status == PX_SUCCESS) {
		m.ranks.v = list;
		m.withheld = lost ? COLLECT_LACKS_RANK : ndata > px.data_most;
		if (!m.withheld)
			m.data = (wire_bytes){ data, ndata };
		CHILD_SAY(pmix_collect, &m);
	}
	free(list);
	return status;
}

static int upcall_on_fence(const struct px_proc *procs, size_t n,
			   const struct px_info *info, size_t ninfo, char *data,
			   size_t ndata, px_modex_done *done, void *ctx)
{
	struct pending p = { .use = EXCHANGE_PMIX_FENCE, .modex = done, .ctx = ctx };
	int status = upcall_collect(&p, procs, n, 0, data, ndata,
				    upcall_lacks_rank(info, ninfo));

	if (status == PX_SUCCESS)
		free(data);
	return status;
}

static int on_connect(const struct px_proc *procs, size_t n, const struct px_info *info,
		      size_t ninfo, px_op_done *done, void *ctx)
{
	struct pending p = { .use = EXCHANGE_PMIX_CONNECT, .op = done, .ctx = ctx };

	return upcall_collect(&p, procs, n, 0, NULL, 0, upcall_lacks_rank(info, ninfo));
}

static int on_disconnect(const struct px_proc *procs, size_t n,
			 const struct px_info *info, size_t ninfo, px_op_done *done,
			 void *ctx)
{
	struct pending p = { .use = EXCHANGE_PMIX_DISCONNECT, .op = done, .ctx = ctx };

	return upcall_collect(&p, procs, n, 0, NULL, 0, upcall_lacks_rank(info, ninfo));
}

/* FNV-1a. */
static uint64_t upcall_hash(const char *text)
{
	uint64_t h = 14695981039346656037u;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 1099511628211u;
	return h;
}

static bool is_true(const struct px_info *i)
{
	return i->value.type != PX_BOOL || i->value.data.flag;
}

/* A group of local ranks alone ends without its host, but releases 5.0.7 and before
 * call twice if they are to wait. */
static int on_group(enum px_group what, char *name, const struct px_proc *procs,
		    size_t n, const struct px_info *info, size_t ninfo,
		    px_info_done *done, void *ctx)
{
	struct pending p = { .use = what == PX_GROUP_CONSTRUCT ? EXCHANGE_PMIX_GROUP
							       : EXCHANGE_PMIX_UNGROUP,
			     .info = done,
			     .ctx = ctx,
			     .nprocs = n };
	struct px_bytes endpoints = { 0 };
	int status;

	for (size_t i = 0; i < ninfo; i++) {
		if (upcall_is(&info[i], PX_GROUP_LOCAL_ONLY) && is_true(&info[i]) &&
		    what == PX_GROUP_DESTRUCT)
			return PX_DONE;
		if (upcall_is(&info[i], PX_GROUP_ASSIGN_ID))
			p.wants_id = is_true(&info[i]);
		if (upcall_is(&info[i], PX_GROUP_ENDPOINTS) &&
		    info[i].value.type == PX_BYTES)
			endpoints = info[i].value.data.bytes;
	}
	if (endpoints.size > px.data_most)
		return PX_OUT_OF_RESOURCE;
	p.procs = xcalloc(n, sizeof *p.procs);
	memcpy(p.procs, procs, n * sizeof *procs);
	status = upcall_collect(&p, procs, n, upcall_hash(name), endpoints.bytes,
				endpoints.size, upcall_lacks_rank(info, ninfo));
	if (status != PX_SUCCESS)
		free(p.procs);
	return status;
}

/* The answer to the members of a new group.  libpmix reads it later, on its thread. */
struct group_answer {
	struct px_info info[3];
	struct px_array members;
};

/* libpmix takes the endpoints over, and leaves NULL in their place; the members it
 * does not (4.2.2, 5.0).  It loses bytes of its own with each group (4 ranks: 11 KB in
 * 4.2.2, 7 KB in 5.0). */
static void group_answer_free(void *ctx)
{
	struct group_answer *a = ctx;

	for (size_t i = 0; i < sizeof a->info / sizeof *a->info; i++)
		if (a->info[i].value.type == PX_BYTES)
			free(a->info[i].value.data.bytes.bytes);
	free(a->members.v);
	free(a);
}

static struct px_value *upcall_say(struct px_info *i, const char *key, uint16_t type)
{
	snprintf(i->key, sizeof i->key, "%s", key);
	i->value.type = type;
	return &i->value;
}

static void answer_group(struct pending *p, const struct wire_pmix_collected *m)
{
	struct group_answer *a = xcalloc(1, sizeof *a);
	size_t n = 0;

	a->members = (struct px_array){ PX_PROC, p->nprocs, p->procs };
	p->procs = NULL;
	upcall_say(&a->info[n++], PX_GROUP_MEMBERS, PX_ARRAY)->data.array = &a->members;
	if (p->wants_id)
		upcall_say(&a->info[n++], PX_GROUP_ID, PX_SIZE)->data.size =
			(size_t)m->serial;
	if (m->data.n) {
		char *endpoints = xmalloc(m->data.n);

		memcpy(endpoints, m->data.p, m->data.n);
		upcall_say(&a->info[n++], PX_GROUP_ENDPOINTS, PX_BYTES)->data.bytes =
			(struct px_bytes){ endpoints, m->data.n };
	}
	p->info(PX_SUCCESS, a->info, n, p->ctx, group_answer_free, a);
}

static void upcall_answer_get(const struct pending *p, int status, wire_bytes data)
{
	char *copy = data.n ? xmalloc(data.n) : NULL;

	if (copy)
		memcpy(copy, data.p, data.n);
	p->modex(status, copy, data.n, p->ctx, free, copy);
}

void upcall_collected(const struct wire_pmix_collected *m)
{
	struct pending *p = pending_fetch(m->id);
	const int status = m->failed ? PX_LOST_CONNECTION : PX_SUCCESS;

	if (!p)
		return;
	if (p->modex)
		upcall_answer_get(p, status, m->data);
	else if (p->op)
		p->op(status, p->ctx);
	else if (p->use == EXCHANGE_PMIX_GROUP && !m->failed)
		answer_group(p, m);
	else if (p->info)
		p->info(status, NULL, 0, p->ctx, NULL, NULL);
	pending_free(p);
}

/* ---- direct modex ---- */

static int on_direct_modex(const struct px_proc *proc, const struct px_info *info,
			   size_t ninfo, px_modex_done *done, void *ctx)
{
	struct pending p = { .modex = done, .ctx = ctx };
	struct wire_modex_request m = { .rank = proc->rank };

	(void)info;
	(void)ninfo;
	if (strncmp(proc->nspace, px.nspace, sizeof px.nspace) ||
	    proc->rank >= PX_RANK_ALL)
		return PX_NOT_FOUND;
	m.id = pending_leave(&p);
	if (!m.id)
		return PX_OUT_OF_RESOURCE;
	CHILD_SAY(modex_request, &m);
	return PX_SUCCESS;
}

void upcall_got(const struct wire_modex_data *m)
{
	struct pending *p = pending_fetch(m->id);

	if (!p)
		return;
	if (p->modex)
		upcall_answer_get(p, m->failed ? PX_NOT_FOUND : PX_SUCCESS, m->data);
	pending_free(p);
}

static void upcall_served(int status, char *data, size_t n, void *ctx)
{
	enum { MOST = 1 << 20 };
	struct wire_modex_data m = { .id = (uint32_t)(uintptr_t)ctx,
				     .failed = status != PX_SUCCESS || n > MOST };

	if (!m.failed)
		m.data = (wire_bytes){ data, n };
	CHILD_SAY(modex_data, &m);
}

void upcall_serve(const struct wire_modex_request *m)
{
	struct px_proc proc = { .rank = m->rank };
	void *ctx = (void *)(uintptr_t)m->id;
	int status;

	memcpy(proc.nspace, px.nspace, sizeof proc.nspace);
	status = px.server_dmodex_request(&proc, upcall_served, ctx);
	if (status != PX_SUCCESS)
		upcall_served(status, NULL, 0, ctx);
}

/* ---- the others ---- */

static void say_client(uint32_t rank, bool present)
{
	CHILD_SAY(pmix_client, &(struct wire_pmix_client){ rank, present });
}

static int done_now(px_op_done *done, void *ctx)
{
	if (!done)
		return PX_DONE;
	done(PX_SUCCESS, ctx);
	return PX_SUCCESS;
}

static int on_connected(const struct px_proc *proc, void *object, struct px_info *info,
			size_t ninfo, px_op_done *done, void *ctx)
{
	(void)object;
	(void)info;
	(void)ninfo;
	say_client(proc->rank, true);
	return done_now(done, ctx);
}

/* The host hears of it before the rank does, which may exit then. */
static int on_finalized(const struct px_proc *proc, void *object, px_op_done *done,
			void *ctx)
{
	(void)object;
	say_client(proc->rank, false);
	return done_now(done, ctx);
}

static int upcall_on_abort(const struct px_proc *proc, void *object, int status,
			   const char *text, struct px_proc *procs, size_t n,
			   px_op_done *done, void *ctx)
{
	enum { TEXT_MOST = 1024 };
	struct wire_pmix_abort m = { .rank = proc->rank, .status = (uint32_t)status };
	char *cut = xstrndup(text ? text : "", TEXT_MOST);

	(void)object;
	(void)procs;
	(void)n;
	m.text = cut;
	CHILD_SAY(pmix_abort, &m);
	free(cut);
	return done_now(done, ctx);
}

/* To call DONE here would hang libpmix 4.2, which holds a lock. */
static void upcall_on_log(const struct px_proc *proc, const struct px_info *data,
			  size_t n, const struct px_info *how, size_t nhow,
			  px_op_done *done, void *ctx)
{
	enum { TEXT_MOST = 60000 };

	(void)how;
	(void)nhow;
	for (size_t i = 0; i < n; i++) {
		const bool out = upcall_is(&data[i], PX_LOG_STDOUT);
		char *text;

		if ((!out && !upcall_is(&data[i], PX_LOG_STDERR)) ||
		    data[i].value.type != PX_STRING || !data[i].value.data.string)
			continue;
		text = xstrndup(data[i].value.data.string, TEXT_MOST);
		CHILD_SAY(pmix_log,
			  &(struct wire_pmix_log){ proc->rank, out ? 1 : 2, text });
		free(text);
	}
	child_later(done, ctx);
}

static int on_events(int *codes, size_t n, const struct px_info *info, size_t ninfo,
		     px_op_done *done, void *ctx)
{
	(void)codes;
	(void)n;
	(void)info;
	(void)ninfo;
	(void)done;
	(void)ctx;
	return PX_DONE;
}

static int on_no_events(int *codes, size_t n, px_op_done *done, void *ctx)
{
	(void)codes;
	(void)n;
	(void)done;
	(void)ctx;
	return PX_DONE;
}

struct px_server_module upcalls = {
	.client_connected2 = on_connected,
	.client_finalized = on_finalized,
	.abort = upcall_on_abort,
	.fence = upcall_on_fence,
	.direct_modex = on_direct_modex,
	.connect = on_connect,
	.disconnect = on_disconnect,
	.register_events = on_events,
	.deregister_events = on_no_events,
	.publish = upcall_publish,
	.lookup = upcall_lookup,
	.unpublish = upcall_unpublish,
	.notify_event = upcall_event,
	.query = upcall_query,
	.log = upcall_on_log,
	.group = on_group,
};
