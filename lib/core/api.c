/* api.c - what berth.h declares: locks, arguments, the thread's last error. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/descriptor.h"
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
static _Atomic bool is_child; /* of a process that had called berth_init() */

/* What berth_rank() and its like say: -1 without a world.  Apart from the world, which
 * another thread may end, and of use to a child. */
enum { RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE, NUMBERS };
static _Atomic int number[NUMBERS] = { -1, -1, -1, -1, -1, -1 };

static berth_result wrong(berth_result rc, const char *text)
{
	return log_error(rc, "", NULL, 0, "%s", text);
}

/* ---- the beginning and the end ---- */

/* Why a call cannot begin in the set GIVEN, or in none. */
static berth_result too_late(const berth_set *given)
{
	if (is_child && number[RANK] >= 0)
		return wrong(BERTH_STATE, "this process is a child of a rank, and none "
					  "itself");
	return wrong(BERTH_STATE,
		     given ? "the process set was removed, or the library shut down, "
			     "since it was made"
			   : "not between berth_init() and berth_shutdown()");
}

static void leave(struct berth_set *set)
{
	handle_leave(set->slot);
}

/* Of a call that can't begin in SET, which is what handle_enter(GIVEN) returned. */
static berth_result refuse(struct berth_set *set, const berth_set *given)
{
	if (!set)
		return too_late(given);
	leave(set);
	return wrong(BERTH_INVALID, "this rank is not in the set");
}

static bool can_begin(const struct berth_set *set)
{
	return set && set->me >= 0;
}

/* A call begins in the set GIVEN, or of all ranks.  Where it returns BERTH_OK, leave()
 * ends it; until then the world and its sets stay. */
static berth_result enter(const berth_set *given, struct berth_set **set)
{
	*set = handle_enter(given);
	return can_begin(*set) ? BERTH_OK : refuse(*set, given);
}

/* ---- fork ---- */

/* A child is no rank: what it called for would be taken for its parent's.  It has none
 * of its parent's threads, which may have held any lock. */
static void in_child(void)
{
	descriptor_in_child();
	log_in_child();
	handle_in_child();
	set_in_child();
	engine_in_child();
	timeline_in_child();
	pthread_mutex_init(&beginning, NULL);
	times_begun = 0;
	is_child = true;
}

static void watch_forks(void)
{
	pthread_atfork(descriptor_lock, descriptor_unlock, in_child);
}

/* ---- one world ---- */

static void set_numbers(const struct boot_world *who)
{
	const unsigned of[NUMBERS] = {
		[RANK] = who->rank,
		[SIZE] = who->size,
		[LOCAL_RANK] = who->local_rank,
		[LOCAL_SIZE] = who->local_size,
		[CROSS_RANK] = who->cross_rank,
		[CROSS_SIZE] = who->cross_size,
	};

	for (int i = 0; i < NUMBERS; i++)
		number[i] = (int)of[i];
}

/* Calls that begin now come too late; those that wait return. */
static void end(void)
{
	for (int i = 0; i < NUMBERS; i++)
		number[i] = -1;
	handle_close_all();
	set_stop_all(&world);
	handle_wait_all();
	set_free_all(&world);
	world_end(&world);
}

static berth_result begin(const struct berth_config *config)
{
	struct berth_set *all;
	berth_result rc = world_begin(&world, config);

	if (rc)
		return rc;
	rc = set_of_all(&world, &all);
	if (rc) {
		end();
		return rc;
	}
	is_child = false;
	all->slot = &handle_of_all;
	set_numbers(&world.who);
	handle_open_all(all);
	return BERTH_OK;
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

int berth_rank(void)
{
	return number[RANK];
}

int berth_size(void)
{
	return number[SIZE];
}

int berth_local_rank(void)
{
	return number[LOCAL_RANK];
}

int berth_local_size(void)
{
	return number[LOCAL_SIZE];
}

int berth_cross_rank(void)
{
	return number[CROSS_RANK];
}

int berth_cross_size(void)
{
	return number[CROSS_SIZE];
}

const char *berth_version(void)
{
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
	return TEXT(BERTH_VERSION_MAJOR) "." TEXT(BERTH_VERSION_MINOR) "." TEXT(
		BERTH_VERSION_PATCH);
}

/* ---- sets ---- */

/* The caller gets SET, which may be NULL. */
static berth_result give(struct berth_set *set, berth_set **handle)
{
	berth_result rc = BERTH_OK;

	*handle = NULL;
	if (set)
		rc = handle_make(set, &set->slot, handle);
	if (rc)
		wrong(rc, rc == BERTH_MEMORY ? "out of memory, or too many process sets"
					     : COMM_ENDED);
	return rc;
}

/* D may be of another version: it has a set, and no more fields than any will have. */
static bool has_wrong_size(const struct berth_desc *d)
{
	enum { SIZE_MOST = 4096 };

	return d &&
	       (d->size < offsetof(struct berth_desc, type) || d->size > SIZE_MOST);
}

static berth_result wrong_size(void)
{
	return wrong(BERTH_INVALID,
		     "size is not that of struct berth_desc, as BERTH_DESC() sets it");
}

static berth_result check_ranks(const int *ranks, size_t n, unsigned size)
{
	if (!n || !ranks)
		return wrong(BERTH_INVALID, "a set needs ranks");
	for (size_t i = 0; i < n; i++) {
		if (ranks[i] < 0 || (unsigned)ranks[i] >= size)
			return log_error(BERTH_INVALID, "", NULL, 0,
					 "there is no rank %d in a job of %u", ranks[i],
					 size);
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
	struct berth_set *all, *made = NULL;
	berth_result rc = enter(NULL, &all);

	if (rc)
		return rc;
	rc = set ? check_ranks(ranks, n, all->n) : wrong(BERTH_INVALID, "set is NULL");
	if (!rc)
		rc = add_set(all, ranks, n, &made);
	if (!rc)
		rc = give(made, set);
	leave(all);
	return rc;
}

berth_result berth_set_split(berth_set *parent, int color, int key, berth_set **set)
{
	struct berth_set *from, *made = NULL;
	berth_result rc = enter(parent, &from);

	if (rc)
		return rc;
	if (color < -1 || !set)
		rc = wrong(BERTH_INVALID,
			   set ? "a color is -1 or more" : "set is NULL");
	else
		rc = set_split(from, "berth_set_split", color, key, color, &made);
	if (!rc)
		rc = give(made, set);
	leave(from);
	return rc;
}

berth_result berth_set_remove(berth_set *set)
{
	struct berth_set *all, *s;
	berth_result rc = enter(NULL, &all);

	if (rc)
		return rc;
	s = set ? handle_take(set) : NULL;
	if (s)
		rc = set_remove(s);
	else
		rc = set ? too_late(set)
			 : wrong(BERTH_INVALID,
				 "the set of all ranks can't be removed");
	leave(all);
	return rc;
}

int berth_set_rank(const berth_set *set)
{
	struct berth_set *s = set ? handle_enter(set) : NULL;
	int rank;

	if (!s)
		return set ? -1 : berth_rank();
	rank = s->me;
	leave(s);
	return rank;
}

int berth_set_size(const berth_set *set)
{
	struct berth_set *s = set ? handle_enter(set) : NULL;
	unsigned n;

	if (!s)
		return set ? -1 : berth_size();
	n = s->n;
	leave(s);
	return (int)n;
}

int berth_set_member(const berth_set *set, int i)
{
	struct berth_set *s = set ? handle_enter(set) : NULL;
	int rank = -1;

	if (!set)
		return i >= 0 && i < berth_size() ? i : -1;
	if (!s)
		return -1;
	if (i >= 0 && (unsigned)i < s->n)
		rank = (int)s->rank[i];
	leave(s);
	return rank;
}

/* ---- blocking operations ---- */

static berth_result call(enum berth_kind kind, const struct berth_desc *d)
{
	const berth_set *given;
	struct berth_set *set;
	berth_result rc;

	if (has_wrong_size(d))
		return wrong_size();
	given = d ? d->set : NULL;
	set = handle_enter(given); /* as enter(), but SET stays in a register: 2 ns */
	if (!can_begin(set))
		return refuse(set, given);
	rc = set_run(set, kind, d);
	leave(set);
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
	pthread_mutex_lock(&set->lock);
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
	leave(set);
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

	if (kind >= KIND_COUNT)
		return wrong(BERTH_INVALID, "no such kind");
	if (!n || !d)
		return wrong(BERTH_INVALID, n ? "d is NULL" : "n is 0");
	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	rc = has_wrong_size(d) ? wrong_size() : enter(d->set, &set);
	if (rc)
		return rc;
	rc = submit_in(set, kind, d, n, request);
	leave(set);
	return rc;
}

berth_result berth_poll(berth_request *request)
{
	struct failure why;
	berth_result rc;

	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	if (!engine_has(request))
		return too_late(NULL);
	rc = engine_poll(request, &why);
	return rc == BERTH_BUSY ? rc : set_tell(rc, &why);
}

berth_result berth_wait(berth_request *request, int64_t timeout_ms)
{
	struct failure why;
	berth_result rc;

	if (!request)
		return wrong(BERTH_INVALID, "request is NULL");
	if (!engine_has(request))
		return too_late(NULL);
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
	leave(set);
	return p;
}

void berth_free(void *p)
{
	struct berth_set *set;

	if (!p || enter(NULL, &set))
		return;
	memory_free(&world.memory, p);
	leave(set);
}

berth_result berth_register(void *p, size_t bytes)
{
	struct berth_set *set;
	berth_result rc = p ? enter(NULL, &set) : wrong(BERTH_INVALID, "p is NULL");

	(void)bytes;
	if (!rc)
		leave(set);
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
	leave(set);
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
	pthread_mutex_lock(&set->lock);
	if (set->n > 1)
		n = set->now.back->algorithms(set->now.group, text, bytes);
	pthread_mutex_unlock(&set->lock);
	leave(set);
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
	leave(set);
	return rc ? log_error(rc, "", NULL, 0, "%s", why) : BERTH_OK;
}

berth_result berth_timeline_stop(void)
{
	char why[256];
	berth_result rc = timeline_stop(why, sizeof why);

	return rc ? wrong(rc, why) : BERTH_OK;
}
