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

enum ssh_strict { STRICT_YES, STRICT_NO, STRICT_ACCEPT_NEW };

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

/* What the command line of runner says. */
struct ssh_config_given {
	const char *user;     /* or NULL */
	const char *identity; /* -i, or NULL */
	int port;             /* 0: not given */
	bool agent;           /* a key agent is there */
};

/* What holds for one host. */
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

/* Read HOME/.ssh/config and ETC/ssh_config into C, which must be {0}.  A file that
 * cannot be read is empty. */
void ssh_config_read(struct ssh_config *c, const char *home, const char *etc);

/* The invoking user's own, read once and kept. */
struct ssh_config *ssh_config_own(void);

/* What C and the known_hosts files it names say of host NAME as typed.  Free F. */
void ssh_config_ask(struct ssh_config *c, const char *name,
		    const struct ssh_config_given *given, struct ssh_config_facts *f);
void ssh_config_facts_free(struct ssh_config_facts *f);

#endif
