/* page_boxes.h - pure: the placement on one host, as boxes of its CPUs and GPUs. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAGE_BOXES_H
#define BERTH_LAUNCHER_INSIGHT_PAGE_BOXES_H

#include "launcher/insight/facts.h"

/* A box for each range of CPUs that the same ranks may use, and one for each GPU.
 * RANK[0..n): the ranks on host HOST of F. */
void page_boxes(struct str *out, const struct facts *f, uint32_t host,
		const uint32_t *rank, size_t n);

#endif
