/* ssh_config_value.h - pure: what the value of one keyword of ssh_config(5) is, and
 * whether only the ssh program may read it. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_CONFIG_VALUE_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_CONFIG_VALUE_H

#include <stdbool.h>

enum ssh_strict { STRICT_YES, STRICT_NO, STRICT_ACCEPT_NEW };

bool ssh_config_yes(const char *v);
bool ssh_config_no(const char *v);

/* The enum ssh_strict of a value, or -1.  ssh asks nobody (BatchMode): "ask" is yes. */
int ssh_config_strict(const char *v);

/* AF_INET, AF_INET6, AF_UNSPEC for any, or -1. */
int ssh_config_family(const char *v);

/* Whether only ssh may read the value V of KEY: libssh ignores it and runner cannot
 * obey it, or ssh may not take it.  AGENT: a key agent is there. */
bool ssh_config_beyond(const char *key, const char *v, bool agent);

#endif
