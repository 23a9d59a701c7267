/* input.h - runner's stdin to the ranks that read it.
 *
 * Reads only as many bytes as the agents gave credit for, so that memory does not grow.
 * Never reads a terminal from the background.  Passes on the end of file. */
#ifndef BERTH_LAUNCHER_OUTPUT_INPUT_H
#define BERTH_LAUNCHER_OUTPUT_INPUT_H

#include "launcher/hosts/agents.h"

struct input;

/* No rank reads yet.  TYPED is called with CTX for each line that was read from a
 * terminal. */
struct input *input_open(struct event_base *base, void (*typed)(void *ctx), void *ctx);
/* From now on the ranks of EPOCH on the N hosts in TARGETS read.  They do not get the
 * bytes that others read before, but they get the end of file. */
void input_aim(struct input *in, struct host *const *targets, size_t n, uint32_t epoch);
/* H's agent accepts BYTES more.  False if no rank of it reads, or if that is above the
 * limit of an agent (WIRE_INPUT_MAX in all), as its send queue would grow. */
bool input_credit(struct input *in, struct host *h, uint32_t bytes);
/* Try again to read (runner came back to the foreground). */
void input_wake(struct input *in);
void input_free(struct input *in);

#endif
