/* option_table.h - every option of runner, one row each: the one table.
 *
 * From a row come the parser (options.c), --help, the man page's OPTIONS and
 * ENVIRONMENT and the shell completion (help.c), the variable BERTH_* and the key of a
 * config file (config.c). Options that exist only for commands copied from other
 * launchers are in foreign.c. Idea: git's struct option, curl's one file per option. */
#ifndef BERTH_LAUNCHER_CLI_OPTION_TABLE_H
#define BERTH_LAUNCHER_CLI_OPTION_TABLE_H

#include "launcher/request.h"

/* X(name, heading) in the order of --help all and of the man page. */
#define TOPICS(X)                                                                      \
	X(ranks, "How many ranks, and on which host")                                  \
	X(hosts, "Hosts, and how they are reached")                                    \
	X(environment, "What the ranks find in their environment")                     \
	X(ending, "Time limits and failures")                                          \
	X(output, "Output and input")                                                  \
	X(binding, "CPUs of a rank")                                                   \
	X(gpus, "GPUs of a rank")                                                      \
	X(plan, "Look before you start")                                               \
	X(other, "Configuration and help")

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
	OPTION_MANY = 16,     /* values add up; blanks part them in the variable */
	OPTION_OPTIONAL = 32, /* a value only as --x=value */
	OPTION_HIDDEN = 64,   /* not in help, man page or completion */
	OPTION_FILE = 128,    /* the value is a file name, for completion */
	OPTION_DIR = 256,     /* the value is a folder name */
	OPTION_PRINTS = 512   /* answered before all others: --help, --version */
};

/* Where a value stands; a later source goes before an earlier one. */
enum source { FROM_DEFAULT, FROM_SITE, FROM_USER, FROM_FILE, FROM_ENV, FROM_LINE };

struct option;

/* One value on its way into the request. */
struct setting {
	struct request *r;
	struct app *app; /* of -np, -x and --wdir */
	const struct option *option;
	const char *typed; /* as the user spelled it: "-np", "BERTH_NP", "np" */
	const char *from;  /* the same with its file: "np in /etc/berth/berth.conf:3" */
	enum source source;
	enum source *hosts; /* source of the hosts so far */
	struct strv *notes; /* lines for the user about what was ignored */
};

struct option {
	const char *names; /* blank-separated, canonical one first; "-" and "--" are
			      alike */
	const char *arg;   /* what the value is called, or NULL where none is needed */
	enum topic topic;
	unsigned flags;
	const char *key, *env; /* config key and variable, or NULL: command line only */

	/* Put VALUE (NULL: none given) into the request: 0, or -1 with E. */
	int (*set)(const struct setting *s, const char *value, struct err *e);
	size_t at;                  /* field of struct request that set() fills */
	long min, max;              /* limits of a number */
	const char *const *choices; /* names of an enum in its order, NULL-terminated */

	const char *help; /* one line, at most 50 characters */
	const char *text; /* sentences for the man page and --help --x */
};

extern const struct option option_table[];
extern const size_t option_count;

/* The row whose option is NAME (dashes in front or not, '_' like '-'), or NULL.  *NO:
 * it was the opposite of a switch, --no-x. */
const struct option *option_find(const char *name, bool *no);

/* The row of "-np16" and where its value begins in WORD, or NULL. */
const struct option *option_find_glued(const char *word, const char **value);

/* The row of a config key ('_' like '-'), or NULL. */
const struct option *option_find_key(const char *key);

/* Whether LIST, blank-separated names, holds NAME in the sense of option_find(). */
bool option_named(const char *list, const char *name);

/* The next name of a blank-separated list as a view: its length, 0 at the end. */
size_t option_next_name(const char **list, const char **name);

/* The BERTH_* variables that options read; ranks don't get them. */
const char *const *options_env_names(size_t *n);

#endif
