/* sets.h - process sets of a random program: made in each way that there is,
 * with the members that the program itself finds. */
#ifndef BERTH_TESTS_PROGRAM_SETS_H
#define BERTH_TESTS_PROGRAM_SETS_H

#include "tests/helpers/programs/operation.h"

/* A call that makes or removes a set, for messages. */
struct place_in_program {
	unsigned program, step;
};

__attribute__((format(printf, 3, 4))) static void
expect(bool fine, struct place_in_program at, const char *fmt, ...)
{
	va_list ap;
	char text[256];

	if (fine)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fprintf(stderr, "seed %lu program %u step %u rank %d: %s; last error: %s\n",
		program_seed, at.program, at.step, rank, text,
		berth_last_error()->text);
	_exit(1);
}

static struct group *new_group(uint64_t id)
{
	struct group *g = calloc(1, sizeof *g);

	if (!g)
		abort();
	g->id = id;
	g->me = -1;
	return g;
}

static void add_member(struct group *g, int member)
{
	if (member == rank)
		g->me = g->n;
	g->host[g->n] = host_of[member];
	g->member[g->n++] = member;
}

/* What the library says of it. */
static void check_group(const struct group *g, struct place_in_program at)
{
	expect(berth_set_size(g->set) == g->n, at, "size of a set: %d, not %d",
	       berth_set_size(g->set), g->n);
	expect(berth_set_rank(g->set) == g->me, at, "rank in a set: %d, not %d",
	       berth_set_rank(g->set), g->me);
	for (int i = 0; i < g->n; i++)
		expect(berth_set_member(g->set, i) == g->member[i], at,
		       "member %d of a set: %d, not %d", i, berth_set_member(g->set, i),
		       g->member[i]);
}

static struct group *world_group(uint64_t id)
{
	struct group *g = new_group(id);

	for (int r = 0; r < size; r++)
		add_member(g, r);
	return g;
}

/* 0, 1, or -1: in no set. */
static int color_of(uint64_t id, int member, bool all)
{
	static const int colors[] = { 0, 0, 1, 1, -1 };

	return all ? 0 : colors[choose(id, 100 + (unsigned)member, 5)];
}

/* By a color and a key of each; ALL: of one color. */
static struct group *split_group(const struct group *parent, uint64_t id, bool all,
				 struct place_in_program at)
{
	struct group *g;
	const int mine = color_of(id, rank, all);
	int key[REFERENCE_RANKS];

	for (int i = 0; i < parent->n; i++)
		key[i] = (int)choose(id, 200 + (unsigned)parent->member[i], 4) - 1;
	g = new_group(part_of(id, (uint64_t)(unsigned)mine));
	for (int k = -1; mine >= 0 && k < 3; k++) /* of one key: as in PARENT */
		for (int i = 0; i < parent->n; i++)
			if (key[i] == k && color_of(id, parent->member[i], all) == mine)
				add_member(g, parent->member[i]);
	expect(!berth_set_split(parent->set, mine, key[parent->me], &g->set), at,
	       "berth_set_split");
	expect(!g->set == (mine < 0), at, "color %d", mine);
	if (g->set)
		check_group(g, at);
	return g;
}

/* Some ranks of the job, given in descending order. */
static struct group *added_group(uint64_t id, struct place_in_program at)
{
	struct group *g = new_group(id);
	const int least = (int)choose(id, 1, (unsigned)size);
	int given[REFERENCE_RANKS];
	size_t n = 0;

	for (int r = 0; r < size; r++)
		if (r == least || choose(id, 100 + (unsigned)r, 3))
			add_member(g, r);
	for (int i = g->n; i-- > 0;)
		given[n++] = g->member[i];
	expect(!berth_set_add(given, n, &g->set), at, "berth_set_add");
	check_group(g, at);
	return g;
}

/* ---- by a bootstrap ---- */

struct maker {
	const struct group *parent, *made;
};

/* The bootstrap's ranks are in another order than those of the set that it uses. */
static int gather_for_set(void *ctx, const void *in, void *out, size_t bytes)
{
	const struct maker *m = ctx;
	const int n = m->parent->n;
	unsigned char *all = malloc(bytes * (size_t)n + 1);
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLGATHER, .type = BERTH_U8,
			   .set = m->parent->set, .in = in, .out = all, .count = bytes);
	int rc = (int)berth_run(&d, -1, NULL);

	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			if (m->made->member[i] == m->parent->member[k])
				memcpy((unsigned char *)out + (size_t)i * bytes,
				       all + (size_t)k * bytes, bytes);
	free(all);
	return rc;
}

/* All of PARENT, beginning at one of them, maybe in reverse. */
static struct group *made_group(const struct group *parent, uint64_t id,
				struct place_in_program at)
{
	struct group *g = new_group(id);
	struct maker m = { parent, g };
	struct berth_bootstrap b = { .size = sizeof b,
				     .allgather = gather_for_set,
				     .ctx = &m };
	const int n = parent->n, first = (int)choose(id, 1, (unsigned)n);

	for (int i = 0; i < n; i++)
		add_member(g, parent->member[choose(id, 2, 2) ? (first + i) % n
							      : (first + n - i) % n]);
	b.rank = g->me;
	b.ranks = n;
	expect(!berth_set_make(&b, &g->set), at, "berth_set_make");
	check_group(g, at);
	return g;
}

static void remove_group(struct group *g, struct place_in_program at)
{
	if (g->set)
		expect(!berth_set_remove(g->set), at, "berth_set_remove");
	free(g);
}

#endif
