/* trace_json.h - a merged timeline as JSON of Chrome's trace format.
 *
 * Its times count from ten minutes before the first event, since viewers keep them as
 * doubles; "otherData" says what that is. */
#ifndef BERTH_LAUNCHER_TRACE_JSON_H
#define BERTH_LAUNCHER_TRACE_JSON_H

#include "launcher/trace/trace_put.h"

extern const struct trace_form trace_json;

#endif
