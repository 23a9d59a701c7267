/* ssh_login.h - an authenticated libssh session, step by step and without waiting.
 *
 * ssh_login_open() reads ssh_config and finds out where to go.  The caller connects a
 * socket there, or to the command of ProxyJump or ProxyCommand.  It then calls
 * ssh_login_step() whenever the session's socket is ready, until it is logged in.  The
 * host's key is always checked, and nothing ever asks the user.  Keys are tried in this
 * order: -i; those of the key agent; without -i also those of ssh_config and the
 * default ones.
 *
 * Without a key agent the first key signs at once.  libssh would first ask the host
 * whether it takes the key, and sshd answers such a question late, like a failure (5 to
 * 9 ms; `true` on 2 hosts takes 29 ms instead of 38). */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_LOGIN_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_LOGIN_H

#include "common/str.h"
#include "launcher/transport/known_hosts.h"
#include "launcher/transport/libssh.h"
#include "launcher/transport/ssh_config.h"
#include "launcher/transport/transport.h"

#ifdef HAVE_LIBSSH

enum login_result {
	LOGIN_WAIT,
	LOGIN_DONE,
	LOGIN_RETRY,  /* refused or cut, see err; a new try may succeed */
	LOGIN_FAILED, /* err says why */
	LOGIN_OTHER   /* for the ssh program: its judgement, or a log-in of its own */
};

enum login_phase {
	LOGIN_KEYS, /* of the host, in known_hosts */
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
	struct known_keys known; /* the host's, as known_hosts files say */
	char *note;              /* for the user once an agent is up, or NULL */
	char *host;              /* where to go: HostName, or the name as typed */
	char *proxy;             /* command that connects, or NULL */
	struct child *proxy_child;
	char *user;  /* the one there */
	char *where; /* "user@name:port" */
	int port;
	bool only_ssh; /* what ssh_config says is for the ssh program */
	int fd;        /* what ssh_login_use() was given, or -1 */
	ssh_key key;   /* of -i, or of the first default one */
	char *guess;   /* path of the first default one; NULL with -i or a key agent */
	struct err err;
};

/* A session for T into L, which must be {0}.  0, or -1 with l->err. */
int ssh_login_open(struct ssh_login *l, const struct libssh *lib,
		   const struct transport_setup *setup, const struct target *t);

/* Run the proxy's command and use its socket.  LOGIN_DONE; LOGIN_OTHER: only the ssh
 * program knows the command; LOGIN_FAILED with l->err.  The environment of runner stays
 * as it is: threads may read it. */
enum login_result ssh_login_proxy(struct ssh_login *l);

/* Use the connected socket FD, which becomes the session's. */
void ssh_login_use(struct ssh_login *l, int fd);

enum login_result ssh_login_step(struct ssh_login *l);

/* Acknowledge at once what comes next on the socket.  Call it before each step, until a
 * command runs. */
void ssh_login_ack_now(const struct ssh_login *l);

/* Why libssh's last call failed, the session's. */
const char *ssh_login_reason(const struct ssh_login *l);

/* {0} again; the session is cut. */
void ssh_login_close(struct ssh_login *l);

#endif
#endif
