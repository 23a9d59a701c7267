/* input.h - runner's stdin to the ranks that read it, as fast as they take it.
 *
 * Reads only what the agents have given credit for, so that nothing piles up; never
 * reads a terminal from the background; end of file is passed on. */
#ifndef BERTH_LAUNCHER_OUTPUT_INPUT_H
#define BERTH_LAUNCHER_OUTPUT_INPUT_H

#include "launcher/hosts/agents.h"

struct input;

/* Nobody reads yet; RANK is who will, or STDIN_ALL. */
struct input *input_open(struct event_base *base);
/* From now on the ranks of EPOCH on the N hosts in TARGETS read.  What others read is
 * not read again; its end is. */
void input_aim(struct input *in, struct host *const *targets, size_t n, uint32_t epoch);
/* H's agent takes BYTES more.  False: more than any agent may (WIRE_INPUT_MAX in all),
 * which would pile up in its send queue here; or none of its ranks reads. */
bool input_credit(struct input *in, struct host *h, uint32_t bytes);
/* Try again to read (runner came back to the foreground). */
void input_wake(struct input *in);
void input_free(struct input *in);

#endif
