#include "agent/ranks/dump.h"

#include <event2/event.h>

#include "agent/ranks/hung.h"
#include "common/file.h"
#include "common/loop.h"

enum {
	LOOK_MS = 10,
	ANSWER_MS = 1000, /* runner waits for 1,500 */
	TOOLS_MOST = 8
};

static void say_dumped(const struct ranks *r, const struct rank *one, pid_t pid,
		       char state, const char *stack, const char *why)
{
	wire_pack_dumped(r->out, &(struct wire_dumped){ .epoch = r->job->epoch,
							.rank = one->rank,
							.pid = (uint32_t)pid,
							.state = (unsigned char)state,
							.wchan = one->stack.wchan,
							.stack = stack,
							.why = why });
}

/* It cannot be asked, and a tool is to look at it.  False: that goes on. */
static bool look_by_tool(const struct ranks *r, struct rank *one, struct str *stack)
{
	struct rank_stack *s = &one->stack;
	const bool in_time = clock_ms() < s->until_ms && one->state == RANK_RUNNING;
	size_t running = 0;

	for (size_t i = 0; i < r->n; i++)
		running += r->v[i].tool.pid != 0;
	if (in_time && !one->tool.pid) {
		if (running >= TOOLS_MOST || stack_tool_start(&one->tool, s->mute))
			return false;
	} else if (in_time && !stack_tool_ended(&one->tool)) {
		return false;
	}
	stack_tool_take(&one->tool, stack);
	say_dumped(r, one, s->mute, s->state, stack->len ? str_text(stack) : "",
		   stack->len ? "" : s->why);
	s->mute = 0;
	return true;
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

		stack.len = 0;
		if (!pid) {
			waits |= one->stack.mute && !look_by_tool(r, one, &stack);
			continue;
		}
		if (!stack_look(&one->stack) && clock_ms() < one->stack.until_ms &&
		    one->state == RANK_RUNNING) {
			waits = true;
			continue;
		}
		stack_take(&one->stack, &stack);
		say_dumped(r, one, pid, one->stack.state,
			   stack.len ? str_text(&stack) : "",
			   stack.len ? "" : "it does not answer");
	}
	str_free(&stack);
	if (waits)
		loop_after_ms(r->dump, LOOK_MS);
}

static void begin_one(const struct ranks *r, struct rank *one,
		      const struct hung_use *use)
{
	struct rank_stack *s = &one->stack;
	char path[64];

	if (one->state != RANK_RUNNING || s->asked || s->mute)
		return; /* an answer is on its way */
	/* before it is asked, which wakes it */
	snprintf(path, sizeof path, "/proc/%d/wchan", (int)use->pid);
	if (file_start(path, s->wchan, sizeof s->wchan) < 0 || !strcmp(s->wchan, "0"))
		*s->wchan = '\0';
	s->why = stack_ask(s, use->pid, use->state);
	s->until_ms = clock_ms() + ANSWER_MS;
	if (!s->why)
		return;
	if (use->state != 'S' && use->state != 'R' && use->state != 'I') {
		say_dumped(r, one, use->pid, use->state, "", s->why);
		return;
	}
	s->mute = use->pid;
	s->state = use->state;
}

void dump_begin(struct ranks *r)
{
	struct hung_use *use = xcalloc(r->n + 1, sizeof *use);

	hung_look(r, use);
	for (size_t i = 0; i < r->n; i++)
		begin_one(r, &r->v[i], &use[i]);
	free(use);
	if (!r->dump)
		r->dump = event_new(r->io.base, -1, 0, dump_on_timer, r);
	dump_on_timer(-1, 0, r);
}
