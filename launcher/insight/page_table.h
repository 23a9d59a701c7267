/* page_table.h - pure: least, mean and most of what all ranks used. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAGE_TABLE_H
#define BERTH_LAUNCHER_INSIGHT_PAGE_TABLE_H

#include "launcher/insight/record.h"

struct str;

void page_table(struct str *out, const struct record *r);

#endif
