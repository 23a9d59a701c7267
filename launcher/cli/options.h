/* options.h - command line, environment and config files to a request.
 *
 * A value counts in this order, the last one wins: built in, /etc/berth/berth.conf,
 * $XDG_CONFIG_HOME/berth/config (~/.config/berth/config), --config-file, BERTH_*,
 * option. The first word that is no option begins the program, "--" does so too; ":"
 * begins the next app.  "-" and "--", "-" and "_" inside a name are alike: -bind-to,
 * --bind_to. Reads config files; prints nothing. */
#ifndef BERTH_LAUNCHER_CLI_OPTIONS_H
#define BERTH_LAUNCHER_CLI_OPTIONS_H

#include "launcher/request.h"

#define OPTIONS_SITE_FILE "/etc/berth/berth.conf"

enum options_do {
	OPTIONS_RUN,     /* R says what */
	OPTIONS_PRINTED, /* write PRINT to stdout and exit 0 */
	OPTIONS_FAILED   /* E says why */
};

/* Read ARGV and ENV into R, which holds sane values afterwards whatever the result is.
 * NOTES gets one line, without a full stop, for each option that was ignored.
 * The caller frees R, NOTES and PRINT. */
enum options_do options_read(struct request *r, struct strv *notes, struct str *print,
			     int argc, char **argv, char *const *env, struct err *e);

/* The same with another site file; NULL for none. */
enum options_do options_read_site(struct request *r, struct strv *notes,
				  struct str *print, const char *site, int argc,
				  char **argv, char *const *env, struct err *e);

void options_free(struct request *r);

#endif
