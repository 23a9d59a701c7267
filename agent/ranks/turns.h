/* turns.h - how the kernel's scheduler treats the agent. */
#ifndef BERTH_AGENT_RANKS_TURNS_H
#define BERTH_AGENT_RANKS_TURNS_H

/* Ask for short turns: who takes little at a time need not wait until others have had
 * theirs (Linux 6.12; before that nothing changes).  When ranks fail because of one
 * another, the first of them is known to who looks at once.  Processes started from
 * here are not concerned. */
void turns_short(void);

#endif
