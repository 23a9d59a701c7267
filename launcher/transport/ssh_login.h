/* login.h - an authenticated libssh session, step by step and without waiting.
 *
 * ssh_login_open() reads ssh_config and knows where to go; the caller connects a socket
 * there (or leaves it to ProxyJump and ProxyCommand) and then calls ssh_login_step()
 * whenever the session's socket is ready, until it is logged in.  The host's key is
 * always checked, and nothing ever asks the user.  Keys: -i first; then the key
 * agent's; without -i also those of ssh_config and the default ones.
 *
 * Where there is no key agent the first of these signs at once.  libssh would ask first
 * whether the host would take it, and sshd answers such a question, like a failure, 5
 * to 9 ms late: 38 ms for `true` on 2 hosts instead of 29. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_LOGIN_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_LOGIN_H

#include "common/str.h"
#include "launcher/transport/libssh.h"
#include "launcher/transport/ssh_config.h"
#include "launcher/transport/transport.h"

#ifdef HAVE_LIBSSH

enum login_result {
	LOGIN_WAIT,
	LOGIN_DONE,
	LOGIN_RETRY,  /* the connection was refused or cut: err says how; a new try may
			 do */
	LOGIN_FAILED, /* err says why */
	LOGIN_OTHER   /* failed, but the host takes what only the ssh program can do */
};

enum login_phase {
	LOGIN_CONNECT,
	LOGIN_VERIFY,
	LOGIN_IDENTITY,
	LOGIN_AGENT,
	LOGIN_AUTO,
	LOGIN_LIST,
	LOGIN_IN
};

struct ssh_login {
	const struct libssh *lib;
	const struct transport_setup *setup;
	const struct target *target;
	ssh_session session;
	enum login_phase phase;
	struct ssh_config_facts facts;
	char *host;  /* where to go: HostName, or the name as typed */
	char *proxy; /* command that connects, or NULL */
	char *where; /* "user@name:port" */
	int port;
	bool forked; /* the proxy runs */
	int fd;      /* what ssh_login_use() was given, or -1 */
	ssh_key key; /* of -i, or of the first default one */
	char *guess; /* path of that one; NULL with -i or a key agent */
	struct err err;
};

/* A session for T into L, which must be {0}.  0, or -1 with l->err. */
int ssh_login_open(struct ssh_login *l, const struct libssh *lib,
		   const struct transport_setup *setup, const struct target *t);

/* Use the connected socket FD, which becomes the session's. */
void ssh_login_use(struct ssh_login *l, int fd);

enum login_result ssh_login_step(struct ssh_login *l);

/* Acknowledge at once what comes next on the socket, before each step and until a
 * command runs. */
void ssh_login_ack_now(const struct ssh_login *l);

/* {0} again; the session is cut. */
void ssh_login_close(struct ssh_login *l);

#endif
#endif
