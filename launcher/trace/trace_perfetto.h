/* trace_perfetto.h - a merged timeline as Perfetto's protobuf.
 *
 * All names are interned; the table of them begins anew when it is full.
 *
 * Source: protos/perfetto/trace/trace_packet.proto and track_event/ of Perfetto. */
#ifndef BERTH_LAUNCHER_TRACE_PERFETTO_H
#define BERTH_LAUNCHER_TRACE_PERFETTO_H

#include "launcher/trace/trace_put.h"

extern const struct trace_form trace_perfetto;

#endif
