/* fault.h - what is wrong with a connection (net_fault()), in words. */
#ifndef BERTH_LIB_FAULT_H
#define BERTH_LIB_FAULT_H

#include "lib/core/set.h"

/* TEXT becomes WORDS, and what F says; NULL: another rank has seen it.  WHY->missing
 * becomes the rank at the other end. */
void fault_say(const struct comm *c, const struct net_fault *f, struct failure *why,
	       const char *words);
/* Behind "rank 1 has ended": with it the connection, if F says so.  Else TEXT is "". */
void fault_say_cut(const struct comm *c, const struct net_fault *f, unsigned rank,
		   char *text, size_t bytes);

#endif
