/* stack_tool.h - the stack of a process that does not tell it (stack.h): py-spy of a
 * Python, else eu-stack, if they are there.
 *
 * A tool is looked for in the PATH with which the process was started, and only where
 * no other user could change it.  It is never run on a process of another user.  It
 * prints to a file without a name, 1 MiB at most, and dies with this process. */
#ifndef BERTH_AGENT_RANKS_STACK_TOOL_H
#define BERTH_AGENT_RANKS_STACK_TOOL_H

#include <sys/types.h>

#include "common/str.h"

struct stack_tool {
	pid_t pid; /* of the tool, or 0 */
	pid_t of;  /* the process that it looks at, if PID */
	int fd;    /* what it prints, if PID */
	bool is_py_spy;
};

/* False: there is no tool for process OF. */
bool stack_tool_start(struct stack_tool *t, pid_t of);
bool stack_tool_ended(struct stack_tool *t);
/* Append what it has printed, as in `dumped` of wire.def.  It ends, if it runs yet. */
void stack_tool_take(struct stack_tool *t, struct str *out); /* takes {0} */

/* Pure: of what a tool printed, the main thread, as in `dumped`. */
void stack_tool_pick(const char *text, bool is_py_spy, struct str *out);

#endif
