/* nccl_report.h - what NCCL's log says of the pairs of ranks: a table, and warnings.
 *
 * Pure.  A warning is given only if the log shows that a better way exists: another
 * pair, host or device has it.  A row of the table has at most 100 columns. */
#ifndef BERTH_LAUNCHER_OUTPUT_NCCL_REPORT_H
#define BERTH_LAUNCHER_OUTPUT_NCCL_REPORT_H

#include "launcher/output/nccl_pairs.h"

/* Each of P's rows is settled.  Append the table to OUT, without a '\n' at its end. */
void nccl_report_table(struct str *out, const struct nccl_pairs *p);
/* Append the table and the warnings to OUT, as a JSON object. */
void nccl_report_json(struct str *out, const struct nccl_pairs *p);
/* One text for each warning, and its hint at the same place, or "". */
void nccl_report_warnings(struct strv *texts, struct strv *hints,
			  const struct nccl_pairs *p);

#endif
