/* stack.h - where the Python of a rank is: its stack, in a file that this agent reads.
 *
 * Each rank gets a file without a name in BERTH_RANK_STACK, and in front of its
 * PYTHONPATH another one, a zip archive with sitecustomize.py alone.  By that Python's
 * faulthandler writes the stacks of all threads to the file when a signal comes.
 * Both are in memory: nothing of them is left, and no other user can change them.
 *
 * Nobody dies of the signal: it is sent only to a process that catches it and has the
 * file open. */
#ifndef BERTH_AGENT_RANKS_STACK_H
#define BERTH_AGENT_RANKS_STACK_H

#include <sys/types.h>

#include "agent/placement/env.h"

enum {
	STACK_SIGNAL = 59, /* a real-time signal that few others use */
	STACK_FRAMES = 10,
	STACK_BYTES = 3000 /* of them, as text, at most one frame more */
};

struct stack_hook {
	int fd;        /* if PATH is not "" */
	char path[40]; /* in PYTHONPATH; "": there is none */
};

struct rank_stack {
	int fd; /* if TEXT is not "" */
	char text[48];
	/* dump.h: the process that was asked, or 0; its state; bytes at the last look;
	 * looks without more; when it is late, by clock_ms().  If it cannot be asked:
	 * why not, and the process, until a tool has looked at it */
	pid_t asked, mute;
	const char *why;
	char wchan[64]; /* before it was asked */
	char state;
	off_t size;
	unsigned looks;
	uint64_t until_ms;
	/* of all answers before: bytes, time of a CPU; what ASKED used before */
	uint64_t taken, cpu_ms, cpu_before_ms;
};

/* Where there is no memory for it, ranks go without. */
void stack_hook_open(struct stack_hook *h);
void stack_hook_free(struct stack_hook *h); /* takes {0} */
void stack_open(struct rank_stack *s);
void stack_free(struct rank_stack *s); /* takes {0} */
/* Put both into a rank's environment. */
void stack_tell(const struct stack_hook *h, const struct rank_stack *s,
		struct env_paths *to);

/* Ask process PID in STATE.  NULL, or why it cannot be asked. */
const char *stack_ask(struct rank_stack *s, pid_t pid, char state);
/* Whether it has answered.  Each look but the first comes some time after the last. */
bool stack_look(struct rank_stack *s);
/* Append the answer, as in `dumped` of wire.def, and forget it. */
void stack_take(struct rank_stack *s, struct str *out);
/* Bytes that the rank has written for dumps; time of a CPU that it took for them. */
uint64_t stack_written(const struct rank_stack *s);
uint64_t stack_cpu_ms(const struct rank_stack *s);

/* Pure: of what faulthandler wrote, the main thread, as in `dumped`. */
void stack_pick(const char *text, struct str *out);

#endif
