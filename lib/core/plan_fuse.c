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

uint32_t plan_fuse(struct plan_fusion *f, const struct plan_unit *unit,
		   uint32_t segment, uint64_t fusion_bytes)
{
	size_t i = 0;

	if (!unit->fuse_key || !fusion_bytes)
		return f->nbuckets++;
	while (i < f->nopen &&
	       (f->open[i].fuse_key != unit->fuse_key || f->open[i].segment != segment))
		i++;
	if (i == PLAN_OPEN_MOST) { /* the oldest makes room */
		i = --f->nopen;
		memmove(&f->open[0], &f->open[1], i * sizeof f->open[0]);
	}
	if (i < f->nopen && f->open[i].bytes + unit->bytes <= fusion_bytes) {
		f->open[i].bytes += unit->bytes;
	} else {
		f->nopen += i == f->nopen;
		f->open[i].fuse_key = unit->fuse_key;
		f->open[i].segment = segment;
		f->open[i].bytes = unit->bytes;
		f->open[i].bucket = f->nbuckets++;
	}
	return f->open[i].bucket;
}
