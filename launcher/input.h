/* input.h - runner's stdin to the ranks that read it, as fast as they take it.
 *
 * Reads only what the agents have given credit for, so that nothing piles up; never
 * reads a terminal from the background; end of file is passed on. */
#ifndef BERTH_INPUT_H
#define BERTH_INPUT_H

#include "launcher/fleet.h"

struct input;

/* TARGETS: the hosts whose ranks read; RANK the rank, or STDIN_ALL. */
struct input *input_open(struct fleet *f, struct host **targets, size_t n,
			 uint32_t epoch, uint32_t rank);
/* H's agent takes BYTES more. */
void input_credit(struct input *in, struct host *h, uint32_t bytes);
/* Try again to read (runner came back to the foreground). */
void input_wake(struct input *in);
void input_free(struct input *in);

#endif
