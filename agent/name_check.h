/* name_check.h - whether the names of other hosts have addresses here, for --check.
 *
 * getaddrinfo() blocks and cannot be cancelled, and an agent has one thread.  So a
 * child of the agent calls it, name after name, and says each result on a pipe.  The
 * child ends by itself after the deadline, and it is gone with all other children if
 * the agent ends before. */
#ifndef BERTH_AGENT_NAME_CHECK_H
#define BERTH_AGENT_NAME_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct name_check;

/* Called once, in the loop.  GOOD: each name has an address.  TEXT says how many there
 * are, or which have none, and why. */
typedef void name_check_done(void *ctx, bool good, const char *text);

/* Look up NAMES[0..N), copied, for at most TIMEOUT_MS.  NULL with errno if there can be
 * no child. */
struct name_check *name_check_start(struct event_base *base, const char *const *names,
				    size_t n, uint32_t timeout_ms,
				    name_check_done *done, void *ctx);
/* NULL is left alone. */
void name_check_free(struct name_check *c);

#endif
