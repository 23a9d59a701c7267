/* ssh_config.h - what ssh_config and known_hosts say and libssh ignores.
 *
 * libssh reads ssh_config itself (host name, port, user, keys, proxies) and ignores a
 * part of it.  Here are the few keys of that part that runner obeys itself, and the
 * reason to use the ssh program for the others.  That is also the answer to all that is
 * not read with certainty: single quotes, backslashes, variables, unknown keywords,
 * values that ssh may not take, what a command decides.  Only plain
 * files are read; no command runs, and no name is looked up.  Source: ssh_config(5) and
 * sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT", of OpenSSH 9. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_CONFIG_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_CONFIG_H

#include "common/str.h"
#include "launcher/transport/ssh_config_read.h"
#include "launcher/transport/ssh_config_value.h"

/* The facts on runner's command line. */
struct ssh_config_given {
	const char *user;     /* or NULL */
	const char *identity; /* -i, or NULL */
	int port;             /* 0: not given */
	bool agent;           /* a key agent is there */
};

/* The facts that hold for one host. */
struct ssh_config_facts {
	enum ssh_strict strict;
	int family; /* AF_UNSPEC, AF_INET, AF_INET6 */
	char *host; /* HostName, or the name as typed */
	int port;
	char *user;        /* or NULL */
	char *algorithms;  /* HostKeyAlgorithms, or NULL */
	bool proxy;        /* ProxyCommand or ProxyJump is in force */
	char *jump;        /* ProxyJump, if that is the one; or NULL */
	bool hash_names;   /* HashKnownHosts */
	struct strv known; /* known_hosts files; a new key goes to the first */
	struct str why;    /* the reason to use the ssh program, "" for none */
};

/* Asks C, and the known_hosts files that it names, for host NAME as typed.  Free F. */
void ssh_config_ask(struct ssh_config *c, const char *name,
		    const struct ssh_config_given *given, struct ssh_config_facts *f);
void ssh_config_facts_free(struct ssh_config_facts *f);

#endif
