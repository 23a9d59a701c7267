/* install_scripts.h - the scripts that agent_install.h runs on a host.  They say what
 * they find in lines that begin with ":berth: ". */
#ifndef BERTH_LAUNCHER_TRANSPORT_INSTALL_SCRIPTS_H
#define BERTH_LAUNCHER_TRANSPORT_INSTALL_SCRIPTS_H

/* The script of the direct try: for any shell, with the arguments -ldn or -ldnL, and a
 * path. */
extern const char install_direct[];
/* The script of the search, which also takes the agent that is sent: for /bin/sh, below
 * a line that sets p, m, n, s, k and c.  Its argument is the path of the direct try, or
 * none. */
extern const char install_search[];

#endif
