#include "launcher/transport/ssh_login.h"

#ifdef HAVE_LIBSSH

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static char *get_option(struct ssh_login *l, enum ssh_options_e which)
{
	char *value = NULL, *copy;

	if (l->lib->ssh_options_get(l->session, which, &value) != SSH_OK || !value)
		return NULL;
	copy = xstrdup(value);
	l->lib->ssh_string_free_char(value);
	return copy;
}

/* The first key file that libssh would try, if its name is known before the session
 * connects. */
static char *guess_identity(struct ssh_login *l)
{
	char *first, *path = NULL;

	if (l->setup->identity || getenv("SSH_AUTH_SOCK"))
		return NULL;
	first = get_option(l, SSH_OPTIONS_IDENTITY);
	if (first && !strncmp(first, "%d/", 3)) /* libssh's word for ~/.ssh */
		path = xasprintf("%s/.ssh/%s", ssh_config_own()->home, first + 3);
	else if (first && !strncmp(first, "~/", 2))
		path = xasprintf("%s/%s", ssh_config_own()->home, first + 2);
	else if (first && *first == '/')
		path = xstrdup(first);
	free(first);
	if (path && strchr(path, '%')) {
		free(path);
		return NULL;
	}
	return path;
}

int ssh_login_open(struct ssh_login *l, const struct libssh *lib,
		   const struct transport_setup *setup, const struct target *t)
{
	const int given = transport_port(setup, t);
	const struct passwd *pw;
	unsigned port = 22;
	const int on = 1;
	char *user;

	*l = (struct ssh_login){ .lib = lib, .setup = setup, .target = t, .fd = -1 };
	l->session = lib->ssh_new();
	if (!l->session)
		return err_set(&l->err, E_SYSTEM, "libssh", "no session");
	ssh_config_ask(ssh_config_own(), t->name, t->user, false, &l->facts);
	/* the name first, for Host lines; the user again, or a line of the file wins */
	lib->ssh_options_set(l->session, SSH_OPTIONS_HOST, t->name);
	if (t->user)
		lib->ssh_options_set(l->session, SSH_OPTIONS_USER, t->user);
	lib->ssh_options_parse_config(l->session, NULL);
	if (t->user)
		lib->ssh_options_set(l->session, SSH_OPTIONS_USER, t->user);
	if (given)
		lib->ssh_options_set(l->session, SSH_OPTIONS_PORT, &given);
	lib->ssh_options_set(l->session, SSH_OPTIONS_NODELAY, &on);
	lib->ssh_set_blocking(l->session, 0);

	user = get_option(l, SSH_OPTIONS_USER);
	pw = user ? NULL : getpwuid(getuid());
	lib->ssh_options_get_port(l->session, &port);
	l->port = (int)port;
	l->host = get_option(l, SSH_OPTIONS_HOST);
	if (!l->host)
		l->host = xstrdup(t->name);
	l->proxy = get_option(l, SSH_OPTIONS_PROXYCOMMAND);
	l->where = xasprintf("%s@%s:%u",
			     user ? user
			     : pw ? pw->pw_name
				  : "",
			     t->name, port);
	free(user);
	l->guess = guess_identity(l);
	if (!setup->identity ||
	    lib->ssh_pki_import_privkey_file(setup->identity, NULL, NULL, NULL,
					     &l->key) == SSH_OK)
		return 0;
	return err_set(&l->err, E_SSH_IDENTITY, l->where, setup->identity,
		       access(setup->identity, R_OK)
			       ? strerror(errno)
			       : "not a private key, or it has a passphrase");
}

void ssh_login_use(struct ssh_login *l, int fd)
{
	l->fd = fd;
	l->lib->ssh_options_set(l->session, SSH_OPTIONS_FD, &fd);
}

/* Until a session runs sshd keeps Nagle's algorithm on, and it writes two small packets
 * in a row.  Without this the second waits for the delayed acknowledgement (40 ms). */
void ssh_login_ack_now(const struct ssh_login *l)
{
	const int on = 1;

	setsockopt(l->lib->ssh_get_fd(l->session), IPPROTO_TCP, TCP_QUICKACK, &on,
		   sizeof on);
}

void ssh_login_close(struct ssh_login *l)
{
	if (l->session) {
		l->lib->ssh_disconnect(l->session);
		l->lib->ssh_free(l->session);
	}
	if (l->key)
		l->lib->ssh_key_free(l->key);
	str_free(&l->facts.why);
	free(l->host);
	free(l->proxy);
	free(l->where);
	free(l->guess);
	*l = (struct ssh_login){ 0 };
}

/* ---- connect ---- */

/* ProxyJump forks an ssh.  ^C must not reach it, and it must not ask on the terminal.
 */
static int connect_by_proxy(struct ssh_login *l)
{
	const char *old = getenv("SSH_ASKPASS_REQUIRE"), *ask = getenv("SSH_ASKPASS");
	char *keep_old = old ? xstrdup(old) : NULL,
	     *keep_ask = ask ? xstrdup(ask) : NULL;
	sigset_t terminal, before;
	int rc;

	sigemptyset(&terminal);
	sigaddset(&terminal, SIGINT);
	sigaddset(&terminal, SIGQUIT);
	sigaddset(&terminal, SIGTSTP);
	sigprocmask(SIG_BLOCK, &terminal, &before);
	setenv("SSH_ASKPASS_REQUIRE", "force", 1);
	setenv("SSH_ASKPASS", "/bin/false", 1);
	rc = l->lib->ssh_connect(l->session);
	l->forked = true;
	keep_old ? setenv("SSH_ASKPASS_REQUIRE", keep_old, 1)
		 : unsetenv("SSH_ASKPASS_REQUIRE");
	keep_ask ? setenv("SSH_ASKPASS", keep_ask, 1) : unsetenv("SSH_ASKPASS");
	sigprocmask(SIG_SETMASK, &before, NULL);
	free(keep_old);
	free(keep_ask);
	return rc;
}

static enum login_result step_connect(struct ssh_login *l)
{
	int rc = l->proxy && !l->forked ? connect_by_proxy(l)
					: l->lib->ssh_connect(l->session);
	const char *why;

	if (rc == SSH_AGAIN)
		return LOGIN_WAIT;
	if (rc == SSH_OK) {
		l->phase = LOGIN_VERIFY;
		return LOGIN_DONE;
	}
	why = l->lib->ssh_get_error(l->session);
	err_set(&l->err, E_SSH_CONNECT, l->where, why);
	/* an overloaded sshd (MaxStartups) ends the connection before it sends its key
	 */
	return strcasestr(why, "socket error") || strcasestr(why, "connection reset") ||
			       strcasestr(why, "closed") ||
			       strcasestr(why, "disconnected")
		       ? LOGIN_RETRY
		       : LOGIN_FAILED;
}

/* ---- the host's key ---- */

static enum login_result refuse_key(struct ssh_login *l, bool changed)
{
	const struct libssh *lib = l->lib;
	unsigned char *hash = NULL;
	char *text, *print = NULL, *host;
	ssh_key key = NULL;
	size_t n;

	if (lib->ssh_get_server_publickey(l->session, &key) == SSH_OK) {
		if (!lib->ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash,
						 &n))
			print = lib->ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256,
							      hash, n);
		text = xasprintf("%s %s", /* "ssh-ed25519 SHA256:..." */
				 lib->ssh_key_type_to_char(lib->ssh_key_type(key)),
				 print ? print : "?");
		lib->ssh_string_free_char(print);
		lib->ssh_clean_pubkey_hash(&hash);
		lib->ssh_key_free(key);
	} else {
		text = xstrdup("unknown key");
	}
	if (changed) {
		err_set(&l->err, E_SSH_HOSTKEY_CHANGED, l->where, text);
		host = l->port == 22 ? xstrdup(l->host)
				     : xasprintf("'[%s]:%d'", l->host, l->port);
		err_hint(&l->err,
			 "if the host was reinstalled, remove the old key with "
			 "`ssh-keygen -R %s`; else the connection may be intercepted",
			 host);
		free(host);
	} else {
		err_set(&l->err, E_SSH_HOSTKEY, l->where, text);
	}
	free(text);
	return LOGIN_FAILED;
}

static enum login_result step_verify(struct ssh_login *l)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const bool accept = l->setup->accept_new_hosts || l->facts.strict != STRICT_YES;
	int rc;

	if (l->guess) /* no key if it is missing or has a passphrase */
		l->lib->ssh_pki_import_privkey_file(l->guess, NULL, NULL, NULL,
						    &l->key);
	l->phase = l->key ? LOGIN_IDENTITY : LOGIN_AUTO;
	switch (l->lib->ssh_session_is_known_server(l->session)) {
	case SSH_KNOWN_HOSTS_OK:
		return LOGIN_DONE;
	case SSH_KNOWN_HOSTS_NOT_FOUND:
	case SSH_KNOWN_HOSTS_UNKNOWN:
		if (!accept)
			return refuse_key(l, false);
		pthread_mutex_lock(&lock); /* it may mkdir ~/.ssh */
		rc = l->lib->ssh_session_update_known_hosts(l->session);
		pthread_mutex_unlock(&lock);
		if (rc == SSH_OK)
			return LOGIN_DONE;
		break;
	case SSH_KNOWN_HOSTS_CHANGED:
	case SSH_KNOWN_HOSTS_OTHER: /* known by a key of another kind */
		return refuse_key(l, true);
	case SSH_KNOWN_HOSTS_ERROR:
		break;
	}
	err_set(&l->err, E_SSH_KNOWN_HOSTS, l->where,
		l->lib->ssh_get_error(l->session));
	return LOGIN_FAILED;
}

/* ---- keys ---- */

static enum login_result fail_auth(struct ssh_login *l)
{
	static const struct {
		unsigned method;
		bool only_ssh; /* libssh cannot do it */
		const char *name;
	} known[] = {
		{ SSH_AUTH_METHOD_PUBLICKEY, false, "publickey" },
		{ SSH_AUTH_METHOD_PASSWORD, false, "password" },
		{ SSH_AUTH_METHOD_HOSTBASED, true, "hostbased" },
		{ SSH_AUTH_METHOD_INTERACTIVE, true, "keyboard-interactive" },
		{ SSH_AUTH_METHOD_GSSAPI_MIC, true, "gssapi-with-mic" },
	};
	const unsigned methods = (unsigned)l->lib->ssh_userauth_list(l->session, NULL);
	enum login_result got = LOGIN_FAILED;
	struct str takes = { 0 };

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (methods & known[i].method) {
			str_addf(&takes, "%s%s", takes.len ? ", " : "sshd accepts ",
				 known[i].name);
			got = known[i].only_ssh ? LOGIN_OTHER : got;
		}
	err_set(&l->err, E_SSH_AUTH, l->where,
		takes.len ? takes.s : l->lib->ssh_get_error(l->session));
	str_free(&takes);
	return got;
}

static enum login_result step_auth(struct ssh_login *l)
{
	const struct libssh *lib = l->lib;
	const bool agent = getenv("SSH_AUTH_SOCK") != NULL;
	int rc;

	if (l->phase == LOGIN_IDENTITY)
		rc = lib->ssh_userauth_publickey(l->session, NULL, l->key);
	else if (l->phase == LOGIN_AGENT)
		rc = lib->ssh_userauth_agent(l->session, NULL);
	else if (l->phase == LOGIN_AUTO)
		rc = lib->ssh_userauth_publickey_auto(l->session, NULL, NULL);
	else /* no key was tried yet: this asks for the host's methods */
		rc = lib->ssh_userauth_none(l->session, NULL);
	if (rc == SSH_AUTH_AGAIN)
		return LOGIN_WAIT;
	if (rc == SSH_AUTH_SUCCESS) {
		l->phase = LOGIN_IN;
		return LOGIN_DONE;
	}
	if (!lib->ssh_is_connected(l->session) || l->phase == LOGIN_LIST)
		return fail_auth(l);
	if (l->phase == LOGIN_IDENTITY && l->guess)
		l->phase = LOGIN_AUTO;
	else if (l->phase == LOGIN_IDENTITY && agent)
		l->phase = LOGIN_AGENT;
	else if (lib->ssh_userauth_list(l->session, NULL))
		return fail_auth(l);
	else
		l->phase = LOGIN_LIST;
	return LOGIN_DONE;
}

enum login_result ssh_login_step(struct ssh_login *l)
{
	enum login_result got = LOGIN_DONE;

	while (got == LOGIN_DONE && l->phase != LOGIN_IN)
		if (l->phase == LOGIN_CONNECT)
			got = step_connect(l);
		else if (l->phase == LOGIN_VERIFY)
			got = step_verify(l);
		else
			got = step_auth(l);
	return got;
}

#endif
