/* apart.h - functions of the caller's, called in threads apart.
 *
 * One thread makes progress for all sets, in fibers (fiber.h).  A function of the
 * caller's may take long, and needs the stack of a thread.  So a fiber has it called in
 * another thread, and waits.  One such thread is there for the calls of all fibers.  If
 * a call waits for 1 ms, one more is started.  They end after 2 s without a call. */
#ifndef BERTH_LIB_APART_H
#define BERTH_LIB_APART_H

/* Calls F(CTX), and returns when it has returned; in another thread if this is a
 * fiber. */
void apart_call(void (*f)(void *ctx), void *ctx);
/* The threads end.  No call is under way. */
void apart_end(void);
/* After fork(2) in the child: it has no such threads. */
void apart_in_child(void);

#endif
