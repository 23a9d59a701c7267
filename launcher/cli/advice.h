/* advice.h - what helps if a job is slow or hangs: --help slow, --help hang, and the
 * section of runner(1).
 *
 * Data only. */
#ifndef BERTH_LAUNCHER_CLI_ADVICE_H
#define BERTH_LAUNCHER_CLI_ADVICE_H

#include "launcher/cli/option_table.h"

struct advice {
	enum topic topic; /* TOPIC_slow or TOPIC_hang */
	const char *what; /* an option, a variable, a key or a command */
	const char *text; /* sentences */
};

/* The rows of one topic stand together. */
extern const struct advice advice_table[];
extern const size_t advice_count;

#endif
