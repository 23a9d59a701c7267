/* loop.h - libevent that ends the program on errors.
 *
 * The program ends (die() of str.h) if there is no memory, or if the kernel cannot
 * watch another descriptor. */
#ifndef BERTH_LOOP_H
#define BERTH_LOOP_H

#include <stdint.h>

struct buf;
struct event;
struct event_base;

/* A new event base.  libevent itself prints nothing. */
struct event_base *loop_open(void);

/* Add E, an event of a descriptor or a signal, without a timeout.  The program ends if
 * epoll_ctl(2) fails: there is no memory, or the user has too many watches. */
void loop_watch(struct event *e);

/* Call the timer E in MS milliseconds, and not at the time it was set to before; with
 * EV_PERSIST again and again. */
void loop_after_ms(struct event *e, uint64_t ms);
/* Send on socket FD what can be sent of OUT now.  If something is left, WRITABLE, its
 * event, is watched.  If the connection is broken, all is dropped: its reader hears of
 * that. */
void loop_send(struct buf *out, int fd, struct event *writable);

#endif
