/* loop.h - libevent, dying as our programs do.
 *
 * The loop has no errors to return: memory that is out, or a descriptor that the kernel
 * can't watch any more, end the program (str.h). */
#ifndef BERTH_LOOP_H
#define BERTH_LOOP_H

#include <stdint.h>

struct event;
struct event_base;

/* What libevent would print is for nobody. */
struct event_base *loop_open(void);

/* Watch E until it has come (EV_PERSIST: until it is deleted), for events of a
 * descriptor or a signal: epoll_ctl(2) may find no memory, or the user's share of
 * watches used up. */
void loop_watch(struct event *e);

/* Call the timer E in MS milliseconds, and not at the time it was set to before. */
void loop_after_ms(struct event *e, uint64_t ms);

#endif
