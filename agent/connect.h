/* connect.h - berth-agent --connect=HOW: an agent that Slurm started calls runner.
 *
 * The launcher's `call` comes on stdin (call.h).  It names the launcher's addresses.
 * The agent connects to all of them at once, and takes the first that proves to have
 * the key (common/key.h).  It tries again for the time that the call allows.  If one
 * address refuses for 3 s and no other is silent, the launcher is gone.  After the
 * proof, a copy for this start removes itself. */
#ifndef BERTH_AGENT_CONNECT_H
#define BERTH_AGENT_CONNECT_H

#include "agent/call.h"

/* Connect: SIDE is sealed, `called` is sent, and stdin and stdout are the connection.
 * 0, or -1 with E.  If this program is of another version than the launcher, a line on
 * stdout asks for another one, and E says so. */
int connect_launcher(const struct call_how *how, struct key_side *side, struct err *e);

/* The address of our end of that connection, as a number; "" if the kernel does not
 * say. */
void connect_own_address(char *text, size_t n);

/* srun gives only a part of its own environment: set what a log-in sets, HOME, USER,
 * LOGNAME and SHELL, if it is not set. */
void connect_environment(void);

#endif
