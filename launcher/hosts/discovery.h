/* discovery.h - the hosts that the user's script names, each time it is run.
 *
 * The script prints a line for each host, as in a host file: "host" or "host:slots".
 * Source: horovodrun's --host-discovery-script. */
#ifndef BERTH_LAUNCHER_HOSTS_DISCOVERY_H
#define BERTH_LAUNCHER_HOSTS_DISCOVERY_H

#include "launcher/hosts.h"

struct event_base;
struct discovery;

enum { DISCOVERY_EVERY_MS = 1000 };

/* Takes HOSTS, which may be none; or E says why the script told nothing. */
typedef void discovery_found(void *ctx, struct hosts *hosts, const struct err *e);

/* SCRIPT, a command line for /bin/sh, must outlive it.  A host without a number has
 * SLOTS. */
struct discovery *discovery_open(struct event_base *base, const char *script, int slots,
				 discovery_found *found, void *ctx);
/* Run the script, unless it still runs: FOUND is called once. */
void discovery_ask(struct discovery *d);
/* The script is killed if it runs; NULL is left alone. */
void discovery_close(struct discovery *d);

/* Run SCRIPT, and wait for its end: its hosts to HOSTS, which must be {0}.  0, or -1
 * with E. */
int discovery_once(struct hosts *hosts, const char *script, int slots, struct err *e);

#endif
