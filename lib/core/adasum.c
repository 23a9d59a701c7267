#include "lib/core/adasum.h"

#include "lib/base/kern.h"
#include "lib/core/comm.h"

/* One Adasum: this rank has part ME of all ranks' arrays, side by side. */
struct adasum {
	struct comm *c;
	const struct coll *whole;
	uint64_t deadline_ns;
	uint64_t *parts, *got;  /* elements of each part; the same for all of ours */
	double *dots, *sums;    /* three of each pair */
	unsigned char *arrived; /* elements */
	unsigned char *share;   /* accumulators */
	berth_type type;        /* of those */
	uint64_t n;             /* elements of our part */
};

static void *array_of(const struct adasum *a, unsigned rank)
{
	return a->share + rank * a->n * kern_size(a->type);
}

static size_t adasum_padded(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

static berth_result adasum_make_room(struct adasum *a)
{
	const unsigned n = a->c->members->n;
	const size_t counts = adasum_padded(n * sizeof *a->parts),
		     dots = adasum_padded(3 * n * sizeof *a->dots),
		     elements = adasum_padded(n * a->n * kern_size(a->whole->type)),
		     shares = n * a->n * kern_size(a->type);
	unsigned char *at =
		comm_scratch(a->c, 2 * counts + 2 * dots + elements + shares + 64);

	if (!at)
		return BERTH_MEMORY;
	a->parts = (void *)at;
	a->got = (void *)(at + counts);
	a->dots = (void *)(at + 2 * counts);
	a->sums = (void *)(at + 2 * counts + dots);
	a->arrived = at + 2 * counts + 2 * dots;
	a->share = a->arrived + elements;
	for (unsigned i = 0; i < n; i++) {
		a->parts[i] = coll_part(a->whole, n, i);
		a->got[i] = a->n;
	}
	return BERTH_OK;
}

static berth_result adasum_scatter(struct adasum *a)
{
	struct coll coll = { .kind = BERTH_ALLTOALL,
			     .type = a->whole->type,
			     .in = a->whole->in,
			     .out = a->arrived,
			     .count = a->whole->count,
			     .in_counts = a->parts,
			     .out_counts = a->got,
			     .largest = a->parts[0],
			     .signature = a->whole->signature };
	struct kern k;
	berth_result rc = comm_step(a->c, &coll, a->deadline_ns);

	if (rc)
		return rc;
	coll_kern(&k, a->whole, KERN_ELEMENTS, KERN_PARTIAL);
	kern_reduce(&k, &(void *){ a->share }, 1, &(const void *){ a->arrived }, 1,
		    a->c->members->n * a->n, false);
	return BERTH_OK;
}

static double adasum_weight(double own, double both)
{
	return own > 0 ? 1 - both / (2 * own) : 1;
}

/* The arrays of the ranks 0, STEP, 2 STEP, ..., N of them, each with that of the rank
 * APART further on. */
static berth_result adasum_combine(struct adasum *a, unsigned step, unsigned n,
				   unsigned apart)
{
	struct coll sum = { .kind = BERTH_ALLREDUCE,
			    .type = BERTH_F64,
			    .op = BERTH_SUM,
			    .in = a->dots,
			    .out = a->sums,
			    .count = 3 * (uint64_t)n,
			    .signature = a->whole->signature + apart };
	berth_result rc;

	for (unsigned i = 0; i < n; i++)
		kern_dots(&a->dots[3 * i], a->type, array_of(a, i * step),
			  array_of(a, i * step + apart), a->n);
	rc = comm_step(a->c, &sum, a->deadline_ns);
	for (unsigned i = 0; !rc && i < n; i++) {
		const double *dot = &a->sums[3 * i];
		void *to = array_of(a, i * step);

		kern_combine(to, a->type, to, adasum_weight(dot[0], dot[2]),
			     array_of(a, i * step + apart),
			     adasum_weight(dot[1], dot[2]), a->n);
	}
	return rc;
}

static berth_result adasum_gather(struct adasum *a)
{
	const struct coll *whole = a->whole;
	unsigned char *own = (unsigned char *)whole->out +
			     coll_part_at(whole, a->c->members->n, a->c->members->me) *
				     kern_size(whole->type);
	struct coll coll = { .kind = BERTH_ALLGATHER,
			     .type = whole->type,
			     .in = own,
			     .out = whole->out,
			     .count = a->n,
			     .out_counts = a->parts,
			     .signature = whole->signature };
	struct kern k;

	coll_kern(&k, whole, KERN_PARTIAL, KERN_ELEMENTS);
	kern_reduce(&k, &(void *){ own }, 1, &(const void *){ a->share }, 1, a->n,
		    false);
	return comm_step(a->c, &coll, a->deadline_ns);
}

berth_result adasum_run(struct comm *c, const struct coll *whole, uint64_t deadline_ns)
{
	struct adasum a = { .c = c,
			    .whole = whole,
			    .deadline_ns = deadline_ns,
			    .type = kern_accumulator(whole->type),
			    .n = coll_part(whole, c->members->n, c->members->me) };
	unsigned power = 1;
	berth_result rc = adasum_make_room(&a);

	while (power * 2 <= c->members->n)
		power *= 2;
	if (!rc)
		rc = adasum_scatter(&a);
	if (!rc && power < c->members->n)
		rc = adasum_combine(&a, 1, c->members->n - power, power);
	for (unsigned apart = 1; !rc && apart < power; apart *= 2)
		rc = adasum_combine(&a, 2 * apart, power / (2 * apart), apart);
	return rc ? rc : adasum_gather(&a);
}
