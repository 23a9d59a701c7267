/* api.c - what berth.h declares: locks, arguments, the thread's last error. */
#include <stdlib.h>
#include <string.h>

#include "lib/call.h"
#include "lib/engine.h"
#include "lib/join.h"
#include "lib/log.h"
#include "lib/set.h"
#include "lib/trace.h"

static struct world world;
static unsigned times_begun;
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;

static berth_result wrong(berth_result rc, const char *text)
{
	return log_error(rc, "", NULL, 0, "%s", text);
}

static berth_result tell(berth_result rc, const struct failure *why)
{
	if (rc)
		log_error(rc, why->tensor, why->missing, why->nmissing, "%s",
			  *why->text ? why->text : berth_result_text(rc));
	return rc;
}

/* ---- the beginning and the end ---- */

/* A child is no rank: what it called for would be taken for its parent's. */
static void in_child(void)
{
	world.all = NULL;
	times_begun = 0;
	pthread_mutex_init(&beginning, NULL);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

berth_result berth_init(const struct berth_config *config)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	berth_result rc = BERTH_OK;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&beginning);
	if (!times_begun)
		rc = world_begin(&world, config);
	times_begun += !rc;
	pthread_mutex_unlock(&beginning);
	return rc;
}

berth_result berth_shutdown(void)
{
	berth_result rc = BERTH_OK;

	pthread_mutex_lock(&beginning);
	if (!times_begun)
		rc = wrong(BERTH_STATE, "berth_shutdown() without berth_init()");
	else if (!--times_begun)
		world_end(&world);
	pthread_mutex_unlock(&beginning);
	return rc;
}

static int of_world(unsigned x)
{
	return world.all ? (int)x : -1;
}

int berth_rank(void)
{
	return of_world(world.who.rank);
}

int berth_size(void)
{
	return of_world(world.who.size);
}

int berth_local_rank(void)
{
	return of_world(world.who.local_rank);
}

int berth_local_size(void)
{
	return of_world(world.who.local_size);
}

int berth_cross_rank(void)
{
	return of_world(world.who.cross_rank);
}

int berth_cross_size(void)
{
	return of_world(world.who.cross_size);
}

const char *berth_version(void)
{
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
	return TEXT(BERTH_VERSION_MAJOR) "." TEXT(BERTH_VERSION_MINOR) "." TEXT(
		BERTH_VERSION_PATCH);
}

/* ---- sets ---- */

static berth_result find_set(struct berth_set *given, struct berth_set **set)
{
	*set = given ? given : world.all;
	if (!*set)
		return wrong(BERTH_STATE,
			     "not between berth_init() and berth_shutdown()");
	if ((*set)->me < 0)
		return wrong(BERTH_INVALID, "this rank is not in the set");
	return BERTH_OK;
}

/* That of D, which may be of another version: what is in it is looked at after its
 * size. */
static berth_result set_of(const struct berth_desc *d, struct berth_set **set)
{
	if (d && d->size < offsetof(struct berth_desc, type))
		return wrong(BERTH_INVALID,
			     "size is not that of struct berth_desc, as BERTH_DESC() "
			     "sets it");
	return find_set(d ? d->set : NULL, set);
}

static berth_result check_ranks(const int *ranks, size_t n)
{
	if (!n || !ranks)
		return wrong(BERTH_INVALID, "a set needs ranks");
	for (size_t i = 0; i < n; i++) {
		if (ranks[i] < 0 || ranks[i] >= berth_size())
			return log_error(BERTH_INVALID, "", NULL, 0,
					 "there is no rank %d in a job of %d", ranks[i],
					 berth_size());
		for (size_t k = 0; k < i; k++)
			if (ranks[k] == ranks[i])
				return log_error(BERTH_INVALID, "", NULL, 0,
						 "rank %d stands twice in a set",
						 ranks[i]);
	}
	return BERTH_OK;
}

berth_result berth_set_add(const int *ranks, size_t n, berth_set **set)
{
	unsigned *sorted;
	char name[64];
	struct berth_set *all;
	size_t count = 0;
	int at;
	bool in = false;
	berth_result rc = find_set(NULL, &all);

	if (rc)
		return rc;
	rc = set ? check_ranks(ranks, n) : wrong(BERTH_INVALID, "set is NULL");
	if (rc)
		return rc;
	sorted = calloc(n, sizeof *sorted);
	if (!sorted)
		return wrong(BERTH_MEMORY, "out of memory");
	for (unsigned r = 0; r < all->n; r++)
		for (size_t i = 0; i < n; i++)
			if (ranks[i] == (int)r) {
				sorted[count++] = r;
				in |= r == world.who.rank;
			}
	/* the number tells lists apart of which no more than the beginning fits */
	at = snprintf(name, sizeof name, "berth_set_add %08x of ranks ",
		      (unsigned)op_hash(sorted, n * sizeof *sorted, n));
	world_fold(name + at, sizeof name - (size_t)at, sorted, n);
	free(sorted);
	return set_split(all, name, in ? 0 : -1, 0, 0, set);
}

berth_result berth_set_split(berth_set *parent, int color, int key, berth_set **set)
{
	struct berth_set *from;
	berth_result rc = find_set(parent, &from);

	if (rc)
		return rc;
	if (color < -1 || !set)
		return wrong(BERTH_INVALID,
			     set ? "a color is -1 or more" : "set is NULL");
	return set_split(from, "berth_set_split", color, key, color, set);
}

berth_result berth_set_remove(berth_set *set)
{
	if (!world.all)
		return wrong(BERTH_STATE,
			     "not between berth_init() and berth_shutdown()");
	if (!set || set == world.all)
		return wrong(BERTH_INVALID, "the set of all ranks can't be removed");
	return set_remove(set);
}

int berth_set_rank(const berth_set *set)
{
	return set ? set->me : berth_rank();
}

int berth_set_size(const berth_set *set)
{
	return set ? (int)set->n : berth_size();
}

int berth_set_member(const berth_set *set, int i)
{
	const struct berth_set *s = set ? set : world.all;

	return s && i >= 0 && (unsigned)i < s->n ? (int)s->rank[i] : -1;
}

/* ---- blocking operations ---- */

/* TEXT: what op_make() has against D. */
static berth_result refuse(enum berth_kind kind, const struct berth_desc *d,
			   const char *text)
{
	const char *name = d->size > offsetof(struct berth_desc, set) ? d->name : NULL;

	return log_error(BERTH_INVALID, name, NULL, 0,
			 name ? "%s \"%.70s\": %s" : "%s%s: %s", op_kind_name(kind),
			 name ? name : "", text);
}

static berth_result call(enum berth_kind kind, const struct berth_desc *d)
{
	struct berth_set *set;
	struct failure why;
	struct op op;
	const char *text;
	berth_result rc = set_of(d, &set);

	if (rc)
		return rc;
	if (!d)
		return wrong(BERTH_INVALID, "d is NULL");
	text = op_make(&op, kind, d, set->n, (unsigned)set->me);
	if (text)
		return refuse(kind, d, text);
	set_lock(set);
	rc = channel_run(&set->now, &op, &why);
	pthread_mutex_unlock(&set->lock);
	return rc ? tell(rc, &why) : BERTH_OK;
}

berth_result berth_allreduce(const struct berth_desc *d)
{
	return call(BERTH_ALLREDUCE, d);
}

berth_result berth_reduce(const struct berth_desc *d)
{
	return call(BERTH_REDUCE, d);
}

berth_result berth_reducescatter(const struct berth_desc *d)
{
	return call(BERTH_REDUCESCATTER, d);
}

berth_result berth_allgather(const struct berth_desc *d)
{
	return call(BERTH_ALLGATHER, d);
}

berth_result berth_broadcast(const struct berth_desc *d)
{
	return call(BERTH_BROADCAST, d);
}

berth_result berth_alltoall(const struct berth_desc *d)
{
	return call(BERTH_ALLTOALL, d);
}

berth_result berth_barrier(berth_set *set)
{
	struct berth_desc d = BERTH_DESC(.set = set);

	return call(BERTH_BARRIER, &d);
}

/* ---- asynchronous operations ---- */

static struct engine *engine_of(struct berth_set *set)
{
	struct engine *e = atomic_load(&set->engine);

	if (e)
		return e;
	pthread_mutex_lock(&beginning);
	if (!set->engine)
		set->engine = engine_make(set);
	e = set->engine;
	pthread_mutex_unlock(&beginning);
	if (!e)
		wrong(BERTH_MEMORY,
		      "no memory, or no thread, for asynchronous operations");
	return e;
}

berth_result berth_join(int *last)
{
	struct berth_set *set;
	struct failure why;
	unsigned place = 0;
	berth_result rc = find_set(NULL, &set);

	if (rc)
		return rc;
	if (!engine_of(set))
		return BERTH_MEMORY;
	set_lock(set);
	rc = join_begin(set, &place, &why);
	pthread_mutex_unlock(&set->lock);
	if (!rc && last)
		*last = (int)set->rank[place];
	return tell(rc, &why);
}

/* D's structs are as large as the first says, which is how large the caller's are. */
static berth_result make_all(struct op *op, enum berth_kind kind,
			     const struct berth_desc *d, size_t n,
			     const struct berth_set *set)
{
	size_t size = d->size;
	const struct berth_set *first = d->set;

	for (size_t i = 0; i < n; i++) {
		const char *text =
			d->size != size ? "operations submitted together differ in size"
			: d->set != first
				? "operations submitted together are of one set"
				: op_make(&op[i], kind, d, set->n, (unsigned)set->me);

		if (text)
			return refuse(kind, d, text);
		d = (const void *)((const char *)d + size);
	}
	return BERTH_OK;
}

berth_result berth_submit(enum berth_kind kind, const struct berth_desc *d, size_t n,
			  berth_request **request)
{
	struct berth_set *set;
	struct failure why;
	struct op one, *op = &one;
	struct engine *e;
	berth_result rc;

	if (kind >= BERTH_KINDS)
		return wrong(BERTH_INVALID, "no such kind");
	if (!n || !d)
		return wrong(BERTH_INVALID, n ? "d is NULL" : "n is 0");
	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	rc = set_of(d, &set);
	if (rc)
		return rc;
	e = engine_of(set);
	if (!e)
		return BERTH_MEMORY;
	if (n > 1)
		op = calloc(n, sizeof *op);
	if (!op)
		return wrong(BERTH_MEMORY, "out of memory");
	rc = make_all(op, kind, d, n, set);
	if (!rc)
		rc = tell(engine_submit(e, op, n, request, &why), &why);
	if (n > 1)
		free(op);
	return rc;
}

berth_result berth_poll(berth_request *request)
{
	struct failure why;
	berth_result rc;

	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	rc = engine_poll(request, &why);
	return rc == BERTH_BUSY ? rc : tell(rc, &why);
}

berth_result berth_wait(berth_request *request, int64_t timeout_ms)
{
	struct failure why;
	berth_result rc;

	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	rc = engine_wait(request, timeout_ms, &why);
	return rc == BERTH_BUSY ? rc : tell(rc, &why);
}

berth_result berth_wait_stream(berth_request *request, void *stream)
{
	(void)request;
	(void)stream;
	return wrong(BERTH_UNSUPPORTED, "no GPU back end in this library");
}

/* ---- memory ---- */

void *berth_alloc(size_t bytes)
{
	struct berth_set *set;
	void *p;

	if (find_set(NULL, &set))
		return NULL;
	p = memory_alloc(&world.memory, bytes);
	if (!p)
		wrong(BERTH_MEMORY,
		      world.memory.heap
			      ? "the heap that ranks of this host share is full"
			      : "the heap that ranks of this host share can't be "
				"mapped");
	return p;
}

void berth_free(void *p)
{
	if (p && world.all)
		memory_free(&world.memory, p);
}

berth_result berth_register(void *p, size_t bytes)
{
	struct berth_set *set;

	(void)bytes;
	return p ? find_set(NULL, &set) : wrong(BERTH_INVALID, "p is NULL");
}

berth_result berth_deregister(void *p)
{
	return berth_register(p, 0);
}

/* ---- looking ---- */

const struct berth_error *berth_last_error(void)
{
	return log_last();
}

const char *berth_result_text(berth_result result)
{
	static const char *const text[] = {
		[BERTH_OK] = "done",
		[BERTH_BUSY] = "not done yet",
		[BERTH_INVALID] = "an argument is wrong",
		[BERTH_STATE] = "called at the wrong time",
		[BERTH_NO_PEERS] = "no way to the other ranks",
		[BERTH_MISMATCH] = "the ranks called for different things",
		[BERTH_PEER_LOST] = "a rank has ended",
		[BERTH_TIMEOUT] = "a rank did not come in time",
		[BERTH_ABORTED] = "the set was removed, or shut down, meanwhile",
		[BERTH_MEMORY] = "out of memory",
		[BERTH_AUTH] = "who connected does not have the job's key",
		[BERTH_UNSUPPORTED] = "not supported here",
		[BERTH_SYSTEM] = "a system call failed",
	};

	return (size_t)result < sizeof text / sizeof *text && text[result]
		       ? text[result]
		       : "no such result";
}

berth_result berth_metrics(struct berth_metrics *m)
{
	struct berth_metrics sum;
	struct berth_set *set;
	size_t size = m ? m->size : 0;
	berth_result rc = find_set(NULL, &set);

	if (rc)
		return rc;
	if (size < sizeof size)
		return wrong(BERTH_INVALID, "size is not that of struct berth_metrics");
	set_count_all(&world, &sum);
	sum.size = size;
	memset(m, 0, size); /* a later version's has more */
	memcpy(m, &sum, size < sizeof sum ? size : sizeof sum);
	return BERTH_OK;
}

size_t berth_ways(char *text, size_t bytes)
{
	struct berth_set *set;
	size_t n = 0;

	if (bytes)
		*text = '\0';
	if (find_set(NULL, &set))
		return 0;
	set_lock(set);
	if (set->n > 1)
		n = set->now.back->ways(set->now.group, text, bytes);
	pthread_mutex_unlock(&set->lock);
	return n;
}

berth_result berth_timeline_start(const char *path)
{
	char why[256];
	struct berth_set *set;
	berth_result rc = find_set(NULL, &set);

	if (rc)
		return rc;
	if (!path || !*path)
		return wrong(BERTH_INVALID, "no path for the timeline");
	rc = timeline_start(path, world.who.rank, world.who.clock_offset_ns, why,
			    sizeof why);
	return rc ? log_error(rc, "", NULL, 0, "%s", why) : BERTH_OK;
}

berth_result berth_timeline_stop(void)
{
	char why[256];
	berth_result rc = timeline_stop(why, sizeof why);

	return rc ? wrong(rc, why) : BERTH_OK;
}
