#include "lib/backend/coll_rows.h"

#include <string.h>

/* Rows travel in an allreduce, each beside zeros: a small one takes no more than the
 * agreement does. */
static berth_result tell_rows(const struct backend *back, void *group,
			      const struct coll *c, unsigned n, unsigned me,
			      uint64_t deadline_ns)
{
	const struct coll_rows *r = c->rows;
	struct coll rows = { .kind = BERTH_ALLREDUCE,
			     .type = BERTH_U64,
			     .op = BERTH_BOR,
			     .in = r->all,
			     .out = r->all,
			     .count = n * r->words,
			     .signature = c->signature };

	memset(r->all, 0, n * r->words * sizeof *r->all);
	memcpy(r->all + me * r->words, r->mine, r->words * sizeof *r->all);
	return back->run(group, &rows, deadline_ns);
}

berth_result coll_run_rows(const struct backend *back, void *group,
			   const struct coll *c, unsigned n, unsigned me,
			   uint64_t deadline_ns)
{
	struct coll known = *c;
	berth_result rc = tell_rows(back, group, c, n, me, deadline_ns);

	known.rows = NULL;
	known.signature++;
	if (!rc)
		rc = c->rows->settle(c->rows->ctx, &known);
	return rc ? rc : back->run(group, &known, deadline_ns);
}
