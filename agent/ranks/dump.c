#include "agent/ranks/dump.h"

#include <event2/event.h>

#include "agent/ranks/hung.h"
#include "common/file.h"
#include "common/loop.h"

enum { LOOK_MS = 10, DUMP_LOOKS = 50 };

static void say_dumped(const struct ranks *r, const struct rank *one, pid_t pid,
		       char state, const char *stack, const char *why)
{
	char path[64], wchan[64] = "";

	snprintf(path, sizeof path, "/proc/%d/wchan", (int)pid);
	file_start(path, wchan, sizeof wchan);
	wire_pack_dumped(r->out, &(struct wire_dumped){
					 .epoch = r->job->epoch,
					 .rank = one->rank,
					 .pid = (uint32_t)pid,
					 .state = (unsigned char)state,
					 .wchan = strcmp(wchan, "0") != 0 ? wchan : "",
					 .stack = stack,
					 .why = why });
}

static void dump_on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct ranks *r = ctx;
	struct str stack = { 0 };
	bool waits = false;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < r->n; i++) {
		struct rank *one = &r->v[i];
		const pid_t pid = one->stack.asked;

		if (!pid)
			continue;
		if (!stack_look(&one->stack) && one->stack.left-- &&
		    one->state == RANK_RUNNING) {
			waits = true;
			continue;
		}
		stack.len = 0;
		stack_take(&one->stack, &stack);
		say_dumped(r, one, pid, one->stack.state,
			   stack.len ? str_text(&stack) : "",
			   stack.len ? "" : "it does not answer");
	}
	str_free(&stack);
	if (waits)
		loop_after_ms(r->dump, LOOK_MS);
}

void dump_begin(struct ranks *r)
{
	struct hung_use *use = xcalloc(r->n + 1, sizeof *use);

	hung_look(r, use);
	for (size_t i = 0; i < r->n; i++) {
		struct rank *one = &r->v[i];
		const char *why;

		if (one->state != RANK_RUNNING || one->stack.asked)
			continue; /* an answer is on its way */
		why = stack_ask(&one->stack, use[i].pid, use[i].state);
		one->stack.left = DUMP_LOOKS;
		if (why)
			say_dumped(r, one, use[i].pid, use[i].state, "", why);
	}
	free(use);
	if (!r->dump)
		r->dump = event_new(r->io.base, -1, 0, dump_on_timer, r);
	loop_after_ms(r->dump, LOOK_MS);
}
