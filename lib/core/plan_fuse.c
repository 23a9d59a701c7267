/* plan_fuse.c - which units go together. */
#include <string.h>

#include "lib/core/plan.h"

uint64_t plan_fuse_key(const struct op *op)
{
	const struct kern_scale *s = &op->coll.scale;
	const uint64_t what[2] = { (uint64_t)op_is_device(op) << 16 |
					   (uint64_t)op->coll.type << 8 |
					   (uint64_t)op->coll.op,
				   s->divide };
	const double scale[2] = { s->has_prescale ? s->prescale : 1,
				  s->has_postscale ? s->postscale : 1 };

	if (op->coll.kind != BERTH_ALLREDUCE || op->adasum)
		return 0;
	return op_hash(scale, sizeof scale, op_hash(what, sizeof what, 1)) | 1;
}

/* The oldest makes room. */
static size_t open_bucket(struct plan_fusion *f, uint64_t fuse_key, uint32_t segment)
{
	for (size_t i = 0; i < f->nopen; i++)
		if (f->open[i].fuse_key == fuse_key && f->open[i].segment == segment)
			return i;
	if (f->nopen == PLAN_OPEN_MOST)
		memmove(&f->open[0], &f->open[1], --f->nopen * sizeof f->open[0]);
	f->open[f->nopen].fuse_key = 0;
	return f->nopen++;
}

uint32_t plan_fuse(struct plan_fusion *f, const struct plan_unit *unit,
		   uint32_t segment, uint64_t fusion_bytes)
{
	size_t i;

	if (!unit->fuse_key || !fusion_bytes)
		return f->nbuckets++;
	i = open_bucket(f, unit->fuse_key, segment);
	if (f->open[i].fuse_key && f->open[i].bytes + unit->bytes <= fusion_bytes) {
		f->open[i].bytes += unit->bytes;
	} else {
		f->open[i].fuse_key = unit->fuse_key;
		f->open[i].segment = segment;
		f->open[i].bytes = unit->bytes;
		f->open[i].bucket = f->nbuckets++;
	}
	return f->open[i].bucket;
}
