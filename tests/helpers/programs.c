/* programs.c - random programs of libberth, of which a plain reference knows each
 * result:
 *
 *     runner -np 4 build/helpers/programs SEED COUNT [FIRST [STEPS]]
 *     build/helpers/programs -np 4 [-hosts 2] [-devices 1] SEED COUNT [FIRST [STEPS]]
 *
 * With devices, half of the operations are on the memory of a stand-in of one GPU in
 * each rank (tests/standin), some of them on that of every other rank alone.
 * -devices 2: all of these go by the host, in small steps.
 *
 * The second form starts the ranks itself, as if they were on several hosts.  All ranks
 * make the same programs of SEED, COUNT of them from number FIRST (0) on, with at most
 * STEPS steps; each rank chooses its own ways, orders and delays.  A third of the
 * programs have two or three worlds, in which the processes have other ranks, on other
 * hosts; what is in flight then, and what was not freed, stays behind.  Rank 0 prints
 * "programs: N checks"; what is wrong is printed with the seed, the program and the
 * step, and the rank exits with 1.  PROGRAMS_TRACE in the environment: each operation
 * is printed when it begins.  PROGRAMS_KNOWN: see programs/operation.h. */
#include <pthread.h>

#include "lib/berth.h"
#include "lib/core/staged_step.h"
#pragma GCC diagnostic ignored "-Wunused-function" /* of what helpers share */
#include "tests/helpers/programs/worlds.h"
#include "tests/standin/checked.h"

enum {
	SLOTS = 3,
	THREADS_MOST = 3,
	BATCH_MOST = 6,
	STEPS_LEAST = 4,
	STEPS_MORE = 9,
	ROUNDS_MOST = 4, /* of ranks that join one after another */
	MESSAGES_MOST = 6,
	STEP_BYTES = 4096, /* of operations on devices that go by the host */
	BEGIN_AGAIN = 20,  /* programs after which the library is begun anew */
	WORLDS_MOST = 3,
	WORLD = 1 << 30 /* between the numbers of the same program in two worlds */
};

static unsigned steps_most = 1000;

/* One thread with its sets.  Slot 0 is there from the beginning to the end. */
struct thread {
	struct worker w;
	struct group *slot[SLOTS];
	bool may_add; /* it alone makes sets of all ranks */
	pthread_t thread;
};

static struct place_in_program place_of(const struct worker *w)
{
	return (struct place_in_program){ w->program, w->step };
}

/* ---- steps: operations ---- */

/* A set in which this rank is not. */
static void not_a_member(const struct thread *t, const struct group *g)
{
	struct berth_desc d = BERTH_DESC(.kind = BERTH_BARRIER, .set = g->set);

	if (g->set)
		expect(berth_run(&d, -1, NULL) == BERTH_INVALID, place_of(&t->w),
		       "an operation of a set without this rank");
}

static struct request *random_request(struct thread *t, const struct group *g,
				      uint64_t id)
{
	const size_t n = choose(id, 2, 3) ? 1 : 2 + choose(id, 3, GROUP_MOST - 1);
	struct request *r = new_request(&t->w, id, n);

	for (size_t i = 0; i < n; i++) {
		r->op[i].group = g;
		choose_operation(&r->op[i], 0);
	}
	choose_way(r);
	return r;
}

static void batch(struct thread *t, uint64_t id)
{
	const struct group *g = t->slot[choose(id, 1, SLOTS)];
	struct request *r[BATCH_MOST];
	size_t n = 1 + choose(id, 2, 2) * choose(id, 3, BATCH_MOST);
	const unsigned names = t->w.names;

	g = g ? g : t->slot[0];
	if (g->me < 0) {
		not_a_member(t, g);
		t->w.names = names + BATCH_MOST * GROUP_MOST;
		return;
	}
	for (size_t i = 0; i < n; i++)
		r[i] = random_request(t, g, part_of(id ^ g->id, i));
	begin_all(&t->w, r, n, id);
	t->w.names = names + BATCH_MOST * GROUP_MOST;
}

/* ---- steps: messages ---- */

/* What this rank does for message I: a send, a receive, or both. */
static size_t begin_message(struct thread *t, const struct group *g, uint64_t id,
			    unsigned i, struct request **to)
{
	const uint64_t mid = part_of(id, i);
	const int from = (int)choose(mid, 1, (unsigned)g->n);
	const int dest = (int)choose(mid, 2, (unsigned)g->n);
	size_t n = 0;

	for (int side = 0; side < 2; side++) {
		struct request *r;
		struct operation *o;

		if (g->me != (side ? dest : from))
			continue;
		r = to[n++] = new_request(&t->w, part_of(mid, 77 + (unsigned)side), 1);
		r->has_name = false;
		o = r->op;
		o->group = g;
		o->has_name = false;
		o->id = mid;
		o->type = (berth_type)choose(mid, 3, TYPE_COUNT);
		o->kind = side ? BERTH_RECV : BERTH_SEND;
		o->prescale = o->postscale = 1;
		o->count = random_count(mid, 20, o->type);
		o->root = side ? from : dest;
		o->is_any = choose(mid, 4, 2);
		/* what any may send is this message alone: a peer may be steps ahead */
		o->tag = o->is_any ? mid : 7;
	}
	return n;
}

/* They are submitted in one order: the order of those with one tag counts. */
static void begin_messages(struct thread *t, uint64_t id)
{
	const struct group *g = t->slot[choose(id, 1, SLOTS)];
	const unsigned n = 1 + choose(id, 2, MESSAGES_MOST);
	struct request *r[2 * MESSAGES_MOST];
	size_t mine = 0;

	g = g ? g : t->slot[0];
	if (g->me < 0 || t->w.only_names)
		return;
	for (unsigned i = 0; i < n; i++)
		mine += begin_message(t, g, id ^ g->id, i, r + mine);
	for (size_t i = 0; i < mine; i++)
		begin(&t->w, r[i], false);
}

static void messages(struct thread *t, uint64_t id)
{
	end_all(&t->w);
	begin_messages(t, id);
	end_all(&t->w);
}

/* Can the library send?  All ranks get the same answer.  A library that cannot, and
 * does not say so, writes no FROM; so that it does no harm, both have both arrays. */
static void look_for_messages(void)
{
	int x[64] = { 7 }, y[64] = { 0 }, z[64] = { 0 }, from = -2;
	berth_request *r;
	struct berth_desc d[2] = {
		BERTH_DESC(.kind = BERTH_SEND, .type = BERTH_I32, .root = rank, .in = x,
			   .out = z, .count = 1),
		BERTH_DESC(.kind = BERTH_RECV, .type = BERTH_I32, .root = rank, .in = z,
			   .out = y, .count = 1, .room = 1, .from = &from)
	};
	berth_result rc = berth_submit(d, 2, &r);

	rc = rc ? rc : berth_wait(r, -1);
	has_messages = !rc && from == rank;
	expect(rc == BERTH_UNSUPPORTED || !rc, (struct place_in_program){ 0, 0 },
	       "a message to oneself");
	expect(!has_messages || *y == 7, (struct place_in_program){ 0, 0 },
	       "a message to oneself: %d", *y);
}

/* ---- steps: sets ---- */

static struct group *make_set(struct thread *t, uint64_t id)
{
	const struct group *parent = t->slot[choose(id, 1, SLOTS)];
	const unsigned way = choose(id, 2, t->may_add ? 4 : 3);

	if (way == 3)
		return added_group(id, place_of(&t->w));
	parent = parent ? parent : t->slot[0];
	if (parent->me < 0)
		return new_group(id);
	if (way == 2)
		return made_group(parent, id ^ parent->id, place_of(&t->w));
	return split_group(parent, id ^ parent->id, way, place_of(&t->w));
}

/* The requests of the set have to end: who leaves it ends them. */
static void change_set(struct thread *t, uint64_t id)
{
	struct group **slot = &t->slot[1 + choose(id, 10, SLOTS - 1)];

	if (!*slot) {
		*slot = make_set(t, id);
		return;
	}
	end_pending(&t->w, 0);
	remove_group(*slot, place_of(&t->w));
	*slot = NULL;
}

/* ---- ranks that join ---- */

static void beside_joined(struct thread *t, uint64_t id, uint64_t joined)
{
	static const berth_kind kinds[] = { BERTH_ALLREDUCE, BERTH_ALLREDUCE,
					    BERTH_ALLREDUCE, BERTH_BARRIER };
	const bool refused = joined && !choose(id, 5, 6);
	const size_t n = refused || choose(id, 2, 3) ? 1 : 2 + choose(id, 3, 3);
	struct request *r = new_request(&t->w, id, n);

	for (size_t i = 0; i < n; i++) {
		struct operation *o = &r->op[i];

		o->group = t->slot[0];
		o->joined = joined;
		choose_operation(o, refused ? BERTH_BROADCAST
					    : kinds[choose(o->id, 40, 4)]);
		if (joined && !with_known && is_narrow(o->type) && !is_sum(o->op))
			o->prescale = 1;
	}
	choose_way(r);
	r->wants = refused ? BERTH_STATE : BERTH_OK;
	begin(&t->w, r, true);
}

static void check_last(const struct thread *t, const int *turns, int last)
{
	const struct group *g = t->slot[0];
	int all[REFERENCE_RANKS], most = 0;
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLGATHER, .type = BERTH_I32, .set = g->set,
			   .in = &last, .out = all, .count = 1);

	expect(!berth_run(&d, -1, NULL), place_of(&t->w), "allgather after the join");
	for (int i = 0; i < g->n; i++) {
		expect(all[i] == last, place_of(&t->w), "last: %d, but %d on rank %d",
		       last, all[i], g->member[i]);
		most = turns[i] > most ? turns[i] : most;
	}
	for (int i = 0; i < g->n; i++)
		if (g->member[i] == last)
			expect(turns[i] == most, place_of(&t->w),
			       "last: %d, after %d turns of %d", last, turns[i], most);
}

/* Each rank does some of the turns, then joins. */
static void join_one_by_one(struct thread *t, uint64_t id)
{
	const struct group *g = t->slot[0];
	int turns[REFERENCE_RANKS], last = -1;

	end_all(&t->w);
	for (int i = 0; i < g->n; i++)
		turns[i] = (int)choose(id, 100 + (unsigned)i, ROUNDS_MOST);
	for (int turn = 0; turn < turns[g->me]; turn++) {
		uint64_t joined = 0;

		for (int i = 0; i < g->n; i++)
			joined |= (uint64_t)(turns[i] <= turn) << i;
		t->w.step = 100 + (unsigned)turn;
		for (unsigned k = 0; k < 1 + choose(id, 200 + (unsigned)turn, 3); k++)
			beside_joined(t, part_of(id, (unsigned)turn * 8 + k), joined);
	}
	end_all(&t->w);
	delay(id, 5);
	expect(!berth_join(g->set, &last), place_of(&t->w), "berth_join");
	check_last(t, turns, last);
}

/* ---- a program ---- */

static void *run_steps(void *arg)
{
	struct thread *t = arg;
	struct worker *w = &t->w;

	begin_device();

	for (w->step = 0; w->step < w->steps; w->step++) {
		const uint64_t id = part_of(w->id, w->step);
		const unsigned what = choose(id, 4, 12);

		if (what < 3 && !w->only_names)
			change_set(t, id);
		else if (what == 3 && has_messages)
			messages(t, id);
		else
			batch(t, id);
		if (choose(id, 5, 3))
			end_pending(w, own(id, 6, PENDING_MOST));
		else
			end_all(w);
	}
	end_all(w);
	end_device();
	return NULL;
}

/* Slot 0: all ranks, or a set that all have made. */
static void begin_thread(struct thread *t, unsigned program, unsigned number,
			 uint64_t id, const struct group *shared)
{
	*t = (struct thread){ .w = { .program = program, .number = number } };
	t->w.id = id;
	t->w.steps = STEPS_LEAST + choose(t->w.id, 1, STEPS_MORE);
	t->w.steps = t->w.steps < steps_most ? t->w.steps : steps_most;
	t->w.only_names = shared != NULL;
	t->may_add = !number && !shared;
	t->slot[0] = world_group(t->w.id);
	if (shared) {
		*t->slot[0] = *shared;
	} else if (number || choose(t->w.id, 2, 2)) {
		struct group *world = t->slot[0];

		t->slot[0] = split_group(world, t->w.id, true, place_of(&t->w));
		free(world);
	}
}

static void end_thread(struct thread *t, bool owns)
{
	for (int i = SLOTS; i-- > 0;)
		if (t->slot[i] && (i || owns))
			remove_group(t->slot[i], place_of(&t->w));
		else
			free(t->slot[i]);
}

/* An operation to which one rank does not come. */
static void begin_in_vain(struct thread *leaver, uint64_t id)
{
	const struct group *g = leaver->slot[0];
	struct request *r;

	if (g->n < 2 || g->me == (int)choose(id, 1, (unsigned)g->n))
		return;
	r = new_request(&leaver->w, id, 1);
	r->op[0].group = g;
	choose_operation(&r->op[0], 0);
	r->op[0].has_name = true; /* one without would be taken for another */
	r->wants = BERTH_ABORTED;
	begin(&leaver->w, r, false);
}

/* T's sets stay as they are.  What LEAVER begins in them is not awaited.  All ranks
 * have ended what was begun before: who leaves ends what slower ranks still do. */
static void leave_thread(struct thread *t, struct thread *leaver, bool owns)
{
	const uint64_t id = part_of(t->w.id, 999);

	memcpy(leaver->slot, t->slot, sizeof t->slot);
	leaver->w.step = 200 + t->w.number;
	leaver->w.names = 200 * t->w.number;
	if (own_ranks) {
		batch(leaver, id);
		if (has_messages && choose(id, 1, 2))
			begin_messages(leaver, part_of(id, 1));
		/* each rank has other messages */
		leaver->w.names = 200 * t->w.number + 100;
		if (choose(id, 2, 2))
			begin_in_vain(leaver, part_of(id, 2));
	}
	for (int i = SLOTS; i-- > 0;)
		if (t->slot[i]) {
			if (t->slot[i]->set && (i || owns) && !own(id, 4, 5))
				berth_set_remove(t->slot[i]->set);
			leave_group(t->slot[i], place_of(&t->w));
		}
}

/* NULL: each thread has a set of its own. */
static struct group *shared_set(unsigned program, uint64_t id, unsigned threads)
{
	struct group *world = world_group(id), *g = world;

	if (threads == 1 || choose(id, 20, 3)) {
		free(world);
		return NULL;
	}
	if (choose(id, 21, 2)) {
		g = split_group(world, id, true,
				(struct place_in_program){ program, 0 });
		free(world);
	}
	return g;
}

static uint64_t id_of(unsigned program, unsigned world)
{
	return part_of(2, program + world * WORLD);
}

/* LEAVER: NULL, or what it begins is left behind when the world changes. */
static void run_world(unsigned program, unsigned world, struct thread *leaver,
		      struct blocked *blocked)
{
	const uint64_t id = id_of(program, world);
	const unsigned n = choose(id, 1, 2) ? 1 : 1 + choose(id, 2, THREADS_MOST);
	struct group *shared = shared_set(program, id, n);
	struct thread t[THREADS_MOST];
	const struct place_in_program end = { program, 999 };

	for (unsigned i = 0; i < n; i++)
		begin_thread(&t[i], program, i,
			     part_of(part_of(1, program + world * WORLD), i), shared);
	for (unsigned i = 1; i < n; i++)
		expect(!pthread_create(&t[i].thread, NULL, run_steps, &t[i]), end,
		       "pthread_create");
	run_steps(&t[0]);
	for (unsigned i = 1; i < n; i++)
		pthread_join(t[i].thread, NULL);
	t[0].w.only_names = false;
	if (!choose(id, 3, 3))
		join_one_by_one(&t[0], part_of(id, 5));
	end_device();
	for (unsigned i = 0; leaver && i < n; i++)
		leave_thread(&t[i], leaver, !shared);
	if (leaver) {
		begin_blocked(blocked, t[0].slot[0], id, end);
		if (shared)
			leave_group(shared, end);
		return;
	}
	for (unsigned i = n; i-- > 0;)
		end_thread(&t[i], !shared);
	if (shared)
		remove_group(shared, end);
}

/* ---- a program of several worlds ---- */

static void run_program(unsigned program)
{
	const uint64_t id = id_of(program, 0);
	const unsigned worlds =
		choose(id, 30, 3) ? 1 : 2 + choose(id, 31, WORLDS_MOST - 1);
	struct thread leaver = { .w = { .program = program, .number = 9, .id = id } };
	struct blocked blocked;
	const struct place_in_program end = { program, 1000 };

	leaver.w.leaves = true;
	for (unsigned k = 0; k < worlds; k++) {
		const uint64_t of_world = id_of(program, k);

		run_world(program, k, worlds > 1 ? &leaver : NULL, &blocked);
		if (worlds == 1)
			return;
		change_blocks(of_world, end);
		delay(of_world, 40);
		change_world(of_world, k + 1 == worlds, end);
		end_blocked(&blocked, end);
		check_left_sets(end);
		check_blocks(end);
		use_block(of_world, end);
		end_pending(&leaver.w, own(of_world, 42, PENDING_MOST));
	}
	end_all(&leaver.w);
	end_device();
	check_left_sets(end);
	forget_groups();
	check_blocks(end);
}

static int run_rank(unsigned first, unsigned count)
{
	const char *spoiled = getenv("PROGRAMS_SPOIL"); /* the number of a program */

	if (with_devices)
		standin_register();
	if (with_devices == BY_HOST) {
		staged_step_bytes = STEP_BYTES;
		setenv("BERTH_DEVICE", "host", 1);
	}
	begin_library();
	make_values();
	look_for_messages();
	for (unsigned i = 0; i < count; i++) {
		if (i % BEGIN_AGAIN == BEGIN_AGAIN - 1) {
			free_blocks(); /* they end with the library */
			berth_shutdown();
			begin_library();
		}
		spoil = spoiled && rank == 1 && i + 1 == (unsigned)atoi(spoiled);
		run_program(first + i);
	}
	if (rank == 0)
		printf("programs: %lu checks, %lu changes of the world%s\n", checks,
		       changes, has_messages ? "" : ", without messages");
	berth_shutdown();
	return 0;
}

struct layout {
	int hosts;
	unsigned first, count;
};

static int run_own_rank(int number, void *ctx)
{
	const struct layout *l = ctx;

	own_number = rank = number;
	home_hosts = l->hosts;
	home_in_turn = l->first % 2 == 0;
	name_host(home_hosts, home_in_turn);
	return run_rank(l->first, l->count);
}

int main(int argc, char **argv)
{
	int hosts = 1, at = 1;
	unsigned number[4] = { 1, 1, 0, 1000 };

	for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
		if (!strcmp(argv[at], "-np"))
			size = atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "-hosts"))
			hosts = atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "-devices"))
			with_devices = atoi(argv[at + 1]);
		else
			return 2;
	}
	for (int i = 0; i < 4 && at + i < argc; i++)
		number[i] = (unsigned)strtoul(argv[at + i], NULL, 10);
	if (size < 0 || size > REFERENCE_RANKS || hosts < 1)
		return 2;
	seed = program_seed = number[0];
	with_known = getenv("PROGRAMS_KNOWN");
	steps_most = number[3];
	if (!size)
		return run_rank(number[2], number[1]);
	return own_ranks_run(size, run_own_rank,
			     &(struct layout){ hosts, number[2], number[1] });
}
