/* sleep.h - threads of this process sleep on a word, and others of it wake them.  For
 * memory that ranks share: wait.h. */
#ifndef BERTH_LIB_SLEEP_H
#define BERTH_LIB_SLEEP_H

#include <stdatomic.h>
#include <stdint.h>

/* Until WORD is not VALUE any more, woken, or after NS (0: never). */
void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
/* Wake all who sleep on WORD. */
void sleep_wake(_Atomic uint32_t *word);

#endif
