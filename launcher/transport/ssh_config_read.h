/* ssh_config_read.h - the files of ssh_config(5) as lines: keywords, words, Include.
 *
 * What only ssh may read, and what would end ssh for any host, is a reason to leave all
 * hosts to the ssh program.  ssh_config.h says what the lines mean for one host. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_CONFIG_READ_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_CONFIG_READ_H

#include "common/str.h"

struct ssh_config_line {
	char *key;        /* lower case; "" marks the end of an included file */
	struct strv args; /* quotes removed; of a command the whole text */
	char *where;      /* "file:line" */
	const char *odd;  /* why only ssh may know what it says, or NULL */
	bool known;       /* KEY is a keyword of ssh's */
};

/* One user's configuration in reading order, included files in place.  {0} is empty. */
struct ssh_config {
	struct ssh_config_line *v;
	size_t n, files;  /* files: opened so far */
	bool final;       /* "Match final" is in it: ssh reads all of it twice */
	char *home, *etc; /* "~" and the directory of the system's files */
	char *why;        /* the reason to use the ssh program for all hosts, or NULL */
};

/* Read HOME/.ssh/config and ETC/ssh_config into C, which must be {0}.  A file that
 * cannot be read is empty. */
void ssh_config_read(struct ssh_config *c, const char *home, const char *etc);

/* The invoking user's own, read once and kept. */
struct ssh_config *ssh_config_own(void);

#endif
