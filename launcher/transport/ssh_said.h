/* ssh_said.h - pure: what the ssh program prints when it fails, and what that means. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_SAID_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_SAID_H

#include <stdbool.h>

#include "common/err.h"

struct ssh_said {
	enum err_id id; /* ERR_NONE: no reason that is known */
	bool again;     /* a later try may succeed */
	bool private;   /* others may read the private key */
	char *line;     /* that says it, printable; or the last one.  Free it */
};

/* The reason in SAID, all that an ssh program has printed. */
struct ssh_said ssh_said_read(const char *said);

/* Whether ssh has said in SAID that a host's key is not the known one, or revoked. */
bool ssh_said_changed(const char *said);
bool ssh_said_revoked(const char *said);

#endif
