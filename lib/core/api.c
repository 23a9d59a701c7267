/* api.c - what berth.h declares: locks, arguments, the thread's last error. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/base/rank_text.h"
#include "lib/core/engine.h"
#include "lib/core/join.h"
#include "lib/core/op_run.h"
#include "lib/core/set.h"
#include "lib/core/trace.h"

static struct world world;
static unsigned times_begun;
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
/* Calls that look at the world and its sets: berth_shutdown() frees neither before they
 * have returned. */
static _Atomic unsigned inside;

static berth_result wrong(berth_result rc, const char *text)
{
	return log_error(rc, "", NULL, 0, "%s", text);
}

/* ---- the beginning and the end ---- */

static void count_inside(unsigned by)
{
	if (one_thread())
		atomic_store_explicit(&inside, inside + by, memory_order_relaxed);
	else
		atomic_fetch_add(&inside, by);
}

static void leave(void)
{
	count_inside(-1u);
}

/* A call begins: GIVEN, or the set of all ranks.  Where it returns BERTH_OK, leave()
 * ends it; until then the world and its sets stay. */
static berth_result enter(struct berth_set *given, struct berth_set **set)
{
	struct berth_set *all;

	count_inside(1);
	all = world.all; /* after the count; end() does it in the other order */
	*set = given ? given : all;
	if (all && (*set)->me >= 0)
		return BERTH_OK;
	leave();
	return all ? wrong(BERTH_INVALID, "this rank is not in the set")
		   : wrong(BERTH_STATE,
			   "not between berth_init() and berth_shutdown()");
}

/* A child is no rank: what it called for would be taken for its parent's. */
static void in_child(void)
{
	world.all = NULL;
	times_begun = 0;
	inside = 0;
	pthread_mutex_init(&beginning, NULL);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* Calls that begin now come too late; those that wait return. */
static void end(void)
{
	world.all = NULL;
	set_stop_all(&world);
	while (atomic_load(&inside))
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	set_free_all(&world);
	world_end(&world);
}

static berth_result begin(const struct berth_config *config)
{
	struct berth_set *all = NULL;
	berth_result rc = world_begin(&world, config);

	if (rc)
		return rc;
	rc = set_of_all(&world, &all);
	world.all = all;
	if (rc)
		end();
	return rc;
}

berth_result berth_init(const struct berth_config *config)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	berth_result rc = BERTH_OK;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&beginning);
	if (!times_begun)
		rc = begin(config);
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
		end();
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

/* enter() for the set of D.  D may be of another version, so its size is checked
 * first. */
static berth_result enter_for(const struct berth_desc *d, struct berth_set **set)
{
	if (d && d->size < offsetof(struct berth_desc, type))
		return wrong(BERTH_INVALID,
			     "size is not that of struct berth_desc, as BERTH_DESC() "
			     "sets it");
	return enter(d ? d->set : NULL, set);
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

static berth_result add_set(struct berth_set *all, const int *ranks, size_t n,
			    berth_set **set)
{
	unsigned *sorted = calloc(n, sizeof *sorted);
	char name[64];
	size_t count = 0;
	int at;
	bool in = false;

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
	rank_text(name + at, sizeof name - (size_t)at, sorted, n);
	free(sorted);
	return set_split(all, name, in ? 0 : -1, 0, 0, set);
}

berth_result berth_set_add(const int *ranks, size_t n, berth_set **set)
{
	struct berth_set *all;
	berth_result rc = enter(NULL, &all);

	if (rc)
		return rc;
	rc = set ? check_ranks(ranks, n) : wrong(BERTH_INVALID, "set is NULL");
	if (!rc)
		rc = add_set(all, ranks, n, set);
	leave();
	return rc;
}

berth_result berth_set_split(berth_set *parent, int color, int key, berth_set **set)
{
	struct berth_set *from;
	berth_result rc = enter(parent, &from);

	if (rc)
		return rc;
	if (color < -1 || !set)
		rc = wrong(BERTH_INVALID,
			   set ? "a color is -1 or more" : "set is NULL");
	else
		rc = set_split(from, "berth_set_split", color, key, color, set);
	leave();
	return rc;
}

berth_result berth_set_remove(berth_set *set)
{
	struct berth_set *all;
	berth_result rc = enter(NULL, &all);

	if (rc)
		return rc;
	if (!set || set == all)
		rc = wrong(BERTH_INVALID, "the set of all ranks can't be removed");
	else
		rc = set_remove(set);
	leave();
	return rc;
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
	struct berth_set *all;
	const struct berth_set *s;
	int rank;

	if (enter(NULL, &all))
		return -1;
	s = set ? set : all;
	rank = i >= 0 && (unsigned)i < s->n ? (int)s->rank[i] : -1;
	leave();
	return rank;
}

/* ---- blocking operations ---- */

static berth_result call(enum berth_kind kind, const struct berth_desc *d)
{
	struct berth_set *set;
	berth_result rc = enter_for(d, &set);

	if (rc)
		return rc;
	rc = set_run(set, kind, d);
	leave();
	return rc;
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

static berth_result join_in(struct berth_set *set, int *last)
{
	struct failure why;
	struct engine *e;
	unsigned place = 0;
	berth_result rc = set_engine(set, &e);

	if (rc)
		return rc;
	set_lock(set);
	rc = join_begin(set, &place, &why);
	pthread_mutex_unlock(&set->lock);
	if (!rc && last)
		*last = (int)set->rank[place];
	return set_tell(rc, &why);
}

berth_result berth_join(int *last)
{
	struct berth_set *set;
	berth_result rc = enter(NULL, &set);

	if (rc)
		return rc;
	rc = join_in(set, last);
	leave();
	return rc;
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
			return set_refuse(kind, d, text);
		d = (const void *)((const char *)d + size);
	}
	return BERTH_OK;
}

static berth_result submit_in(struct berth_set *set, enum berth_kind kind,
			      const struct berth_desc *d, size_t n,
			      berth_request **request)
{
	struct failure why;
	struct op one, *op = &one;
	struct engine *e;
	berth_result rc = set_engine(set, &e);

	if (rc)
		return rc;
	if (n > 1)
		op = calloc(n, sizeof *op);
	if (!op)
		return wrong(BERTH_MEMORY, "out of memory");
	rc = make_all(op, kind, d, n, set);
	if (!rc)
		rc = set_tell(engine_submit(e, op, n, request, &why), &why);
	if (n > 1)
		free(op);
	return rc;
}

berth_result berth_submit(enum berth_kind kind, const struct berth_desc *d, size_t n,
			  berth_request **request)
{
	struct berth_set *set;
	berth_result rc;

	if (kind >= BERTH_KINDS)
		return wrong(BERTH_INVALID, "no such kind");
	if (!n || !d)
		return wrong(BERTH_INVALID, n ? "d is NULL" : "n is 0");
	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	rc = enter_for(d, &set);
	if (rc)
		return rc;
	rc = submit_in(set, kind, d, n, request);
	leave();
	return rc;
}

berth_result berth_poll(berth_request *request)
{
	struct failure why;
	berth_result rc;

	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	rc = engine_poll(request, &why);
	return rc == BERTH_BUSY ? rc : set_tell(rc, &why);
}

berth_result berth_wait(berth_request *request, int64_t timeout_ms)
{
	struct failure why;
	berth_result rc;

	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	rc = engine_wait(request, timeout_ms, &why);
	return rc == BERTH_BUSY ? rc : set_tell(rc, &why);
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

	if (enter(NULL, &set))
		return NULL;
	p = memory_alloc(&world.memory, bytes);
	if (!p)
		wrong(BERTH_MEMORY,
		      world.memory.heap
			      ? "the heap that ranks of this host share is full"
			      : "the heap that ranks of this host share can't be "
				"mapped");
	leave();
	return p;
}

void berth_free(void *p)
{
	struct berth_set *set;

	if (!p || enter(NULL, &set))
		return;
	memory_free(&world.memory, p);
	leave();
}

berth_result berth_register(void *p, size_t bytes)
{
	struct berth_set *set;
	berth_result rc = p ? enter(NULL, &set) : wrong(BERTH_INVALID, "p is NULL");

	(void)bytes;
	if (!rc)
		leave();
	return rc;
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

berth_result berth_metrics(struct berth_metrics *m)
{
	struct berth_metrics sum;
	struct berth_set *set;
	size_t size = m ? m->size : 0;
	berth_result rc = enter(NULL, &set);

	if (rc)
		return rc;
	if (size >= sizeof size)
		set_count_all(&world, &sum);
	leave();
	if (size < sizeof size)
		return wrong(BERTH_INVALID, "size is not that of struct berth_metrics");
	sum.size = size;
	memset(m, 0, size); /* a later version's has more */
	memcpy(m, &sum, size < sizeof sum ? size : sizeof sum);
	return BERTH_OK;
}

size_t berth_algorithms(char *text, size_t bytes)
{
	struct berth_set *set;
	size_t n = 0;

	if (bytes)
		*text = '\0';
	if (enter(NULL, &set))
		return 0;
	set_lock(set);
	if (set->n > 1)
		n = set->now.back->algorithms(set->now.group, text, bytes);
	pthread_mutex_unlock(&set->lock);
	leave();
	return n;
}

berth_result berth_timeline_start(const char *path)
{
	char why[256];
	struct berth_set *set;
	berth_result rc;

	if (!path || !*path)
		return wrong(BERTH_INVALID, "no path for the timeline");
	rc = enter(NULL, &set);
	if (rc)
		return rc;
	rc = timeline_start(path, world.who.rank, world.who.clock_offset_ns, why,
			    sizeof why);
	leave();
	return rc ? log_error(rc, "", NULL, 0, "%s", why) : BERTH_OK;
}

berth_result berth_timeline_stop(void)
{
	char why[256];
	berth_result rc = timeline_stop(why, sizeof why);

	return rc ? wrong(rc, why) : BERTH_OK;
}
