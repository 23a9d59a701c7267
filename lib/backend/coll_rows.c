#include "lib/backend/coll_rows.h"

#include <string.h>

berth_result coll_rows_in_steps(const struct backend *b, void *group,
				const struct coll *c, uint64_t deadline_ns)
{
	const struct coll_rows *rows = c->rows;
	const struct coll tell = { .kind = BERTH_ALLREDUCE,
				   .type = BERTH_U64,
				   .op = BERTH_BOR,
				   .count = rows->n * rows->words,
				   .in = rows->all,
				   .out = rows->all,
				   .signature = c->signature };
	struct coll data = *c;
	berth_result rc;

	memset(rows->all, 0, tell.count * sizeof *rows->all);
	memcpy(rows->all + rows->me * rows->words, rows->mine,
	       rows->words * sizeof *rows->all);
	rc = b->run(group, &tell, deadline_ns);
	if (!rc)
		rc = rows->settle(rows->ctx, &data);
	data.signature++;
	return rc ? rc : b->run(group, &data, deadline_ns);
}

berth_result coll_run_rows(const struct backend *b, void *group, const struct coll *c,
			   uint64_t deadline_ns)
{
	return b->run_rows ? b->run_rows(group, c, deadline_ns)
			   : coll_rows_in_steps(b, group, c, deadline_ns);
}
