/* option.h - what an option is, and one value on its way into the request. */
#ifndef BERTH_LAUNCHER_CLI_OPTION_H
#define BERTH_LAUNCHER_CLI_OPTION_H

#include "launcher/request.h"

/* X(name, heading) in the order of --help all and of the man page.  The last two have
 * no options, but rows of advice.h. */
#define TOPICS(X)                                                                      \
	X(ranks, "How many ranks, and on which host")                                  \
	X(hosts, "Hosts, and how to reach them")                                       \
	X(environment, "Environment of the ranks")                                     \
	X(ending, "Time limits and failures")                                          \
	X(output, "Output and input")                                                  \
	X(binding, "CPUs of a rank")                                                   \
	X(gpus, "GPUs of a rank")                                                      \
	X(plan, "Plan and test without a start")                                       \
	X(other, "Configuration and help")                                             \
	X(slow, "If a job is slow")                                                    \
	X(hang, "If a job hangs")

enum topic {
#define X(name, heading) TOPIC_##name,
	TOPICS(X)
#undef X
		TOPIC_COUNT
};

enum option_flag {
	OPTION_COMMON = 1,    /* in plain --help */
	OPTION_APP = 2,       /* belongs to one app of a ":"-separated job */
	OPTION_SWITCH = 4,    /* yes or no: --x also gives --no-x, --no-x also --x */
	OPTION_GLUE = 8,      /* -np16 */
	OPTION_MANY = 16,     /* values add up; the variable has spaces between them */
	OPTION_OPTIONAL = 32, /* a value only as --x=value */
	OPTION_HIDDEN = 64,   /* not in help, man page or completion */
	OPTION_FILE = 128,    /* the value is a file name, for completion */
	OPTION_DIR = 256,     /* the value is a directory, for completion */
	OPTION_PRINTS = 512,  /* answered before all others: --help, --version */
	OPTION_LATER = 1024   /* of the job; a later app may have its own */
};

/* Where a value comes from; a later source overrides an earlier one. */
enum source { FROM_DEFAULT, FROM_SITE, FROM_USER, FROM_FILE, FROM_ENV, FROM_LINE };

struct option;

/* One value on its way into the request. */
struct setting {
	struct request *r;
	struct app *app; /* of -np, -x and --wdir; of -H and -ppn behind a ':' */
	const struct option *option;
	const char *typed; /* the name as the user wrote it: "-np", "BERTH_NP", "np" */
	const char *from;  /* the same with its file: "np in /etc/berth/berth.conf:3" */
	enum source source;
	enum source *hosts; /* source of the hosts so far */
	struct strv *notes; /* lines for the user about ignored options */
};

struct option {
	const char *names; /* separated by spaces, canonical one first; "-" and "--" are
			      alike */
	const char *arg;   /* the value's name in help; NULL: takes no value */
	enum topic topic;
	unsigned flags;
	const char *key, *env; /* config key and variable, or NULL: command line only */

	/* Put VALUE (NULL: none given) into the request: 0, or -1 with E. */
	int (*set)(const struct setting *s, const char *value, struct err *e);
	/* The field that set() fills: of struct app if OPTION_APP, else of struct
	 * request. */
	size_t at;
	long min, max;              /* limits of a number */
	const char *const *choices; /* names of an enum in its order, NULL-terminated */

	const char *help; /* one line, at most 53 characters */
	/* Sentences for the man page and --help --x.  The first one says what the
	 * option does; limits and defaults follow. */
	const char *text;
};

#endif
