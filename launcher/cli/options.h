/* options.h - command line, environment and config files to a request.
 *
 * A later source overrides an earlier one: default, /etc/berth/berth.conf,
 * $XDG_CONFIG_HOME/berth/config (~/.config/berth/config), --config-file, BERTH_*
 * variable, option.  The program begins with the first word that is not an option, or
 * behind "--".  ":" begins the next app.  "-" is the same as "--", and inside a name
 * the same as "_": -bind-to, --bind_to.  Reads config files; prints nothing. */
#ifndef BERTH_LAUNCHER_CLI_OPTIONS_H
#define BERTH_LAUNCHER_CLI_OPTIONS_H

#include "launcher/request.h"

#define OPTIONS_SITE_FILE "/etc/berth/berth.conf"

enum options_do {
	OPTIONS_RUN,      /* run the job of R */
	OPTIONS_PRINTED,  /* write PRINT to stdout and exit with 0 */
	OPTIONS_LINT,     /* check the files that the first app of R names */
	OPTIONS_DUMP,     /* ask a job, the one that it names or the only one */
	OPTIONS_NCCL_LOG, /* read the logs that it names */
	OPTIONS_TRACE,    /* make the first of those files of the others */
	OPTIONS_FAILED    /* E has the error */
};

/* Read the config file SITE (NULL: none), ARGV and ENV into R.  R has valid values even
 * after an error.  NOTES gets one line, without a full stop, for each ignored option.
 * The caller frees R, NOTES and PRINT. */
enum options_do options_read(struct request *r, struct strv *notes, struct str *print,
			     const char *site, int argc, char **argv, char *const *env,
			     struct err *e);

void options_free(struct request *r);

#endif
