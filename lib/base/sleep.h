/* sleep.h - threads of this process sleep on a word, and others of its threads wake
 * them.  For memory that ranks share: wait.h. */
#ifndef BERTH_LIB_SLEEP_H
#define BERTH_LIB_SLEEP_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while WORD is VALUE, until it is woken, or for NS (0: without limit). */
void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
/* Wakes all threads that sleep on WORD. */
void sleep_wake(_Atomic uint32_t *word);

#endif
