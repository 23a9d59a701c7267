#include "launcher/insight/facts.h"

#include "common/str.h"

bool facts_odd(const struct facts *f, uint32_t rank)
{
	bool named = false;

	for (size_t i = 0; i < f->verdict->n; i++)
		named |= rank_set_has(&f->verdict->v[i].ranks, rank);
	return named || f->rank[rank].failed;
}

void facts_findings(struct str *out, const struct facts *f, uint32_t rank)
{
	const char *comma = "";

	for (size_t i = 0; i < f->verdict->n; i++) {
		if (!rank_set_has(&f->verdict->v[i].ranks, rank))
			continue;
		str_addf(out, "%s%s", comma, f->verdict->v[i].rule);
		comma = ", ";
	}
}

struct columns facts_columns(const struct facts *f)
{
	const uint32_t n = f->record->nranks;

	return columns_of(f->record, f->wall_s,
			  n <= 512    ? COLUMNS_MOST
			  : n <= 2048 ? COLUMNS_MOST / 2
				      : COLUMNS_MOST / 4);
}
