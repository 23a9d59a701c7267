#include "agent/start.h"

/* clang-format off */
static const struct start_step steps[START_COUNT][START_EVENTS] = {
	[START_NONE] = {
		[START_EV_PLACED]  = { START_PLACED,  START_ACT_ANSWER },
		[START_EV_OPENING] = { START_OPENING, START_ACT_NONE },
	},
	[START_OPENING] = {
		[START_EV_ABSENT]  = { START_PLACED,  START_ACT_ANSWER_WITHOUT },
		[START_EV_OPEN]    = { START_PLACED,  START_ACT_ANSWER },
		[START_EV_FAILED]  = { START_PLACED,  START_ACT_ANSWER_WITHOUT },
	},
	[START_PLACED] = {
		[START_EV_START]   = { START_OVER,    START_ACT_RANKS },
		[START_EV_PMIX]    = { START_WAITING, START_ACT_NONE },
		[START_EV_CHECK]   = { START_OVER,    START_ACT_NONE },
	},
	[START_WAITING] = {
		[START_EV_ABSENT]  = { START_NONE,    START_ACT_OPEN_SERVER },
		[START_EV_OPEN]    = { START_NONE,    START_ACT_START_SERVER },
		[START_EV_READY]   = { START_OVER,    START_ACT_RANKS },
		[START_EV_FAILED]  = { START_OVER,    START_ACT_RANKS_WITHOUT },
	},
	[START_OVER] = {
		[START_EV_LOST]    = { START_LOST,    START_ACT_SAY_LOST },
	},
};
/* clang-format on */

struct start_step start_step(enum start_state at, enum start_event ev)
{
	return steps[at][ev];
}

enum start_event start_due(enum start_state at, const struct start_facts *f)
{
	/* the launcher awaits its answer also of a job that it has told to stop */
	if (!f->ranks_run && at != START_OPENING)
		return START_NOTHING;
	switch (f->pmix) {
	case SERVER_PMIX_NONE:
		return f->has_room ? START_EV_ABSENT : START_EV_FAILED;
	case SERVER_PMIX_OPEN:
		return START_EV_OPEN;
	case SERVER_PMIX_READY:
		return START_EV_READY;
	case SERVER_PMIX_FAILED:
		return START_EV_FAILED;
	case SERVER_PMIX_LOST:
		return f->pmix_in_use && at == START_OVER ? START_EV_LOST
							  : START_EV_FAILED;
	default:
		return START_NOTHING;
	}
}
