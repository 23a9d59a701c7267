/* report_json.h - pure: --report FILE.json: the report of a job for programs.
 *
 * Later versions may add members, but do not remove any. */
#ifndef BERTH_LAUNCHER_INSIGHT_REPORT_JSON_H
#define BERTH_LAUNCHER_INSIGHT_REPORT_JSON_H

#include "launcher/insight/facts.h"

/* One object with a newline at its end, in parts. */
void report_json(const struct facts *f, facts_put *put, void *ctx);

#endif
