/* alive.h - the agent of this host sees that this process dies before the kernel has
 * freed its memory.
 *
 * A thread holds a robust mutex (boot.def) in a memory of the agent's, and sleeps.  It
 * ends with the process, by a call of exec, or in alive_let_go().  A child of fork(2)
 * holds nothing.  The caller excludes that two calls run at once. */
#ifndef BERTH_LIB_ALIVE_H
#define BERTH_LIB_ALIVE_H

#include <stdbool.h>

/* FD: of BOOT_ALIVE_BYTES, all zero; it is closed.  The mutex is held from now on.  If
 * that is not possible, or FD is -1, nothing is. */
void alive_hold(int fd);
bool alive_is_held(void);
void alive_let_go(void);
void alive_in_child(void);

#endif
