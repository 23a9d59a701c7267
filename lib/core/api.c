/* api.c - what berth.h declares, but for operations (api_run.c): locks, arguments, the
 * thread's last error. */
#include "lib/core/api.h"

#include <stdlib.h>
#include <string.h>

#include "lib/backend/devices.h"
#include "lib/base/callback.h"
#include "lib/base/descriptor.h"
#include "lib/base/log.h"
#include "lib/base/rank_text.h"
#include "lib/boot/alive.h"
#include "lib/boot/retired.h"
#include "lib/core/handle.h"
#include "lib/core/op.h"
#include "lib/core/request.h"
#include "lib/core/set_make.h"
#include "lib/core/trace.h"
#include "lib/core/world_make.h"

struct world api_world;
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER; /* of these: */
static unsigned times_begun;
static struct world_kept kept;
/* Its world, by a berth_change() that has joined no other, or not yet. */
static _Atomic bool has_left;
static _Atomic bool is_child; /* of a process that had called berth_init() */

/* The numbers that berth_world() returns; -1 without a world.  They are kept apart from
 * the world, since another thread may end it and a child reads them. */
enum { RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE, NUMBERS };
static _Atomic int number[NUMBERS] = { -1, -1, -1, -1, -1, -1 };
static _Atomic uint64_t epoch;

static const char without_world[] =
	"this process has left its world, and berth_change() has joined no other";

berth_result api_wrong(berth_result rc, const char *text)
{
	return log_error(rc, "", NULL, 0, "%s", text);
}

/* ---- the beginning and the end of a call ---- */

berth_result api_too_late(const berth_set *given)
{
	if (is_child && number[RANK] >= 0)
		return api_wrong(BERTH_STATE,
				 "this process is a child of a rank, and none itself");
	if (given)
		return api_wrong(BERTH_STATE,
				 "the process set was removed, or the library shut "
				 "down or changed its world, since it was made");
	return api_wrong(BERTH_STATE,
			 has_left ? without_world
				  : "not between berth_init() and berth_shutdown()");
}

bool api_has_left(void)
{
	return has_left;
}

void api_leave(struct berth_set *set)
{
	handle_leave(set->slot);
}

berth_result api_refuse(struct berth_set *set, const berth_set *given)
{
	if (!set)
		return api_too_late(given);
	api_leave(set);
	return api_wrong(BERTH_INVALID, "this rank is not in the set");
}

berth_result api_enter(const berth_set *given, struct berth_set **set)
{
	*set = handle_enter(given);
	return api_can_begin(*set) ? BERTH_OK : api_refuse(*set, given);
}

berth_result api_may_wait(void)
{
	return callback_runs() ? api_wrong(BERTH_STATE, "a callback may not wait")
			       : BERTH_OK;
}

static berth_result enter_to_wait(const berth_set *given, struct berth_set **set)
{
	berth_result rc = api_may_wait();

	return rc ? rc : api_enter(given, set);
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
	request_in_child();
	retired_in_child();
	alive_in_child();
	timeline_in_child();
	pthread_mutex_init(&beginning, NULL);
	times_begun = 0;
	has_left = false;
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
	epoch = who->epoch;
}

/* Calls that begin now come too late; those that wait return.  CHANGES: another world
 * follows. */
static void api_end(bool changes)
{
	handle_close_all();
	set_stop_all(&api_world);
	handle_wait_all();
	for (int i = 0; i < NUMBERS; i++)
		number[i] = -1;
	set_free_all(&api_world);
	world_end(&api_world, &kept, changes);
}

static berth_result api_begin(const struct berth_config *config, bool changes)
{
	struct berth_set *all;
	berth_result rc = world_begin(&api_world, config, &kept, changes);

	if (rc)
		return rc;
	rc = set_of_all(&api_world, &all);
	if (rc) {
		api_end(changes);
		return rc;
	}
	device_look();
	is_child = false;
	has_left = false;
	kept.epoch = api_world.who.epoch;
	if (kept.is_elastic)
		world_say_elastic(&api_world, true);
	all->slot = &handle_of_all;
	set_numbers(&api_world.who);
	handle_open_all(all);
	return BERTH_OK;
}

/* A rank that is lost before the world begins is left out of the next one, too.  With
 * a bootstrap of the caller's there is one attempt, since all ranks make equally many
 * calls. */
static berth_result api_begin_without_lost(const struct berth_config *config,
					   bool changes)
{
	berth_result rc;

	do
		rc = api_begin(config, changes);
	while (rc == BERTH_PEER_LOST && !world_bootstrap(config));
	return rc;
}

berth_result berth_init(const struct berth_config *config)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	berth_result rc = BERTH_OK;

	if (api_may_wait())
		return BERTH_STATE;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&beginning);
	if (!times_begun)
		rc = api_begin_without_lost(config, false);
	else if (has_left)
		rc = api_wrong(BERTH_STATE, without_world);
	times_begun += !rc;
	pthread_mutex_unlock(&beginning);
	return rc;
}

berth_result berth_change(const struct berth_config *config)
{
	berth_result rc = api_may_wait();

	if (rc)
		return rc;
	pthread_mutex_lock(&beginning);
	rc = times_begun ? world_can_follow(config)
			 : api_wrong(BERTH_STATE, "berth_change() before berth_init()");
	if (!rc && !atomic_exchange(&has_left, true))
		api_end(true);
	if (!rc)
		rc = api_begin_without_lost(config, true);
	pthread_mutex_unlock(&beginning);
	return rc;
}

berth_result berth_elastic(int can)
{
	berth_result rc = api_may_wait();

	if (!rc && can != 0 && can != 1)
		rc = api_wrong(BERTH_INVALID, "berth_elastic() takes 0 or 1");
	if (rc)
		return rc;
	pthread_mutex_lock(&beginning);
	if (!times_begun)
		rc = api_too_late(NULL);
	else
		kept.is_elastic = can;
	if (!rc && !has_left)
		world_say_elastic(&api_world, can);
	pthread_mutex_unlock(&beginning);
	return rc;
}

berth_result berth_shutdown(void)
{
	berth_result rc = api_may_wait();

	if (rc)
		return rc;
	pthread_mutex_lock(&beginning);
	if (!times_begun) {
		rc = api_wrong(BERTH_STATE, "berth_shutdown() without berth_init()");
	} else if (!--times_begun) {
		if (kept.is_elastic && !has_left)
			world_say_elastic(&api_world, false);
		kept.is_elastic = false;
		api_end(false);
		has_left = false;
		/* memory of earlier worlds, which berth_free() knows no more */
		retired_forget();
		alive_let_go();
	}
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

void api_give(void *to, size_t size, const void *from, size_t known)
{
	memset(to, 0, size);
	memcpy(to, from, size < known ? size : known);
	memcpy(to, &size, sizeof size);
}

berth_result berth_world(struct berth_world *w)
{
	/* While ALL is held, the world stays, but where this is a child of a rank. */
	struct berth_set *all = handle_enter(NULL);
	const struct berth_world now = {
		.epoch = epoch,
		.rank = number[RANK],
		.ranks = number[SIZE],
		.local_rank = number[LOCAL_RANK],
		.local_size = number[LOCAL_SIZE],
		.cross_rank = number[CROSS_RANK],
		.cross_size = number[CROSS_SIZE],
		.changed = all ? world_changed(all->world) : 0,
	};
	const bool known = all || (is_child && now.rank >= 0);

	if (all)
		api_leave(all);
	if (!w || w->size < sizeof w->size)
		return api_wrong(BERTH_INVALID,
				 "size is not that of struct berth_world");
	if (!known)
		return api_too_late(NULL);
	api_give(w, w->size, &now, sizeof now);
	return BERTH_OK;
}

const char *berth_version(void)
{
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
	return TEXT(BERTH_VERSION_MAJOR) "." TEXT(BERTH_VERSION_MINOR) "." TEXT(
		BERTH_VERSION_PATCH);
}

const struct berth_error *berth_last_error(void)
{
	return log_last();
}

/* ---- sets ---- */

/* The caller gets SET, which may be NULL. */
static berth_result api_give_handle(struct berth_set *set, berth_set **handle)
{
	berth_result rc = BERTH_OK;

	*handle = NULL;
	if (set)
		rc = handle_make(set, &set->slot, handle);
	if (rc)
		api_wrong(rc, rc == BERTH_MEMORY
				      ? "out of memory, or too many process sets"
				      : COMM_ENDED);
	return rc;
}

static berth_result check_ranks(const int *ranks, size_t n, unsigned size)
{
	if (!n || !ranks)
		return api_wrong(BERTH_INVALID, "a set needs ranks");
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
		return api_wrong(BERTH_MEMORY, "out of memory");
	for (unsigned r = 0; r < all->members.n; r++)
		for (size_t i = 0; i < n; i++)
			if (ranks[i] == (int)r) {
				sorted[count++] = r;
				in |= r == api_world.who.rank;
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
	berth_result rc = enter_to_wait(NULL, &all);

	if (rc)
		return rc;
	rc = set ? check_ranks(ranks, n, all->members.n)
		 : api_wrong(BERTH_INVALID, "set is NULL");
	if (!rc)
		rc = add_set(all, ranks, n, &made);
	if (!rc)
		rc = api_give_handle(made, set);
	api_leave(all);
	return rc;
}

berth_result berth_set_split(berth_set *parent, int color, int key, berth_set **set)
{
	struct berth_set *from, *made = NULL;
	berth_result rc = enter_to_wait(parent, &from);

	if (rc)
		return rc;
	if (color < -1 || !set)
		rc = api_wrong(BERTH_INVALID,
			       set ? "a color is -1 or more" : "set is NULL");
	else
		rc = set_split(from, "berth_set_split", color, key, color, &made);
	if (!rc)
		rc = api_give_handle(made, set);
	api_leave(from);
	return rc;
}

berth_result berth_set_make(const struct berth_bootstrap *bootstrap, berth_set **set)
{
	struct berth_set *all, *made = NULL;
	berth_result rc = enter_to_wait(NULL, &all);

	if (rc)
		return rc;
	if (!bootstrap || !set)
		rc = api_wrong(BERTH_INVALID,
			       set ? "bootstrap is NULL" : "set is NULL");
	else
		rc = set_make(&api_world, bootstrap, &made);
	if (!rc)
		rc = api_give_handle(made, set);
	api_leave(all);
	return rc;
}

berth_result berth_set_abort(berth_set *set, const char *why)
{
	struct berth_set *s;
	berth_result rc = api_enter(set, &s);

	if (rc)
		return rc;
	set_abort(s, why);
	api_leave(s);
	return BERTH_OK;
}

berth_result berth_set_remove(berth_set *set)
{
	struct berth_set *all, *s;
	berth_result rc = enter_to_wait(NULL, &all);

	if (rc)
		return rc;
	s = set ? handle_take(set) : NULL;
	if (s)
		set_remove(s);
	else
		rc = set ? api_too_late(set)
			 : api_wrong(BERTH_INVALID,
				     "the set of all ranks can't be removed");
	api_leave(all);
	return rc;
}

int berth_set_rank(const berth_set *set)
{
	struct berth_set *s = set ? handle_enter(set) : NULL;
	int rank;

	if (!s)
		return set ? -1 : berth_rank();
	rank = s->members.me == MEMBERS_NONE ? -1 : (int)s->members.me;
	api_leave(s);
	return rank;
}

int berth_set_size(const berth_set *set)
{
	struct berth_set *s = set ? handle_enter(set) : NULL;
	unsigned n;

	if (!s)
		return set ? -1 : berth_size();
	n = s->members.n;
	api_leave(s);
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
	if (i >= 0 && (unsigned)i < s->members.n)
		rank = (int)s->members.rank[i];
	api_leave(s);
	return rank;
}
