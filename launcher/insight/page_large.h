/* page_large.h - pure: large operations by kind and size, as a table. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAGE_LARGE_H
#define BERTH_LAUNCHER_INSIGHT_PAGE_LARGE_H

#include "launcher/insight/record.h"

struct str;

/* Nothing if there were none. */
void page_large(struct str *out, const struct record *r);

#endif
