#include "launcher/transport/ssh_login.h"

#ifdef HAVE_LIBSSH

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- options ---- */

static char *get_option(struct ssh_login *l, enum ssh_options_e which)
{
	char *value = NULL, *copy;

	if (l->lib->ssh_options_get(l->session, which, &value) != SSH_OK || !value)
		return NULL;
	copy = xstrdup(value);
	l->lib->ssh_string_free_char(value);
	return copy;
}

static void set_options(struct ssh_login *l)
{
	const struct libssh *lib = l->lib;
	const struct target *t = l->target;
	const int on = 1;

	/* the name first, for Host lines; ours again afterwards, for a config line wins
	 * else */
	lib->ssh_options_set(l->session, SSH_OPTIONS_HOST, t->name);
	if (t->user)
		lib->ssh_options_set(l->session, SSH_OPTIONS_USER, t->user);
	lib->ssh_options_parse_config(l->session, NULL);
	if (t->user)
		lib->ssh_options_set(l->session, SSH_OPTIONS_USER, t->user);
	if (l->setup->ssh_port)
		lib->ssh_options_set(l->session, SSH_OPTIONS_PORT, &l->setup->ssh_port);
	lib->ssh_options_set(l->session, SSH_OPTIONS_NODELAY, &on);
	lib->ssh_set_blocking(l->session, 0);
}

static void describe(struct ssh_login *l)
{
	char *user = get_option(l, SSH_OPTIONS_USER);
	const struct passwd *pw = user ? NULL : getpwuid(getuid());
	unsigned port = 22;

	l->lib->ssh_options_get_port(l->session, &port);
	l->port = (int)port;
	l->host = get_option(l, SSH_OPTIONS_HOST);
	if (!l->host)
		l->host = xstrdup(l->target->name);
	l->proxy = get_option(l, SSH_OPTIONS_PROXYCOMMAND);
	l->where = xasprintf("%s@%s:%u",
			     user ? user
			     : pw ? pw->pw_name
				  : "",
			     l->target->name, port);
	free(user);
}

static int read_identity(struct ssh_login *l)
{
	const char *path = l->setup->identity;

	if (!path || l->lib->ssh_pki_import_privkey_file(path, NULL, NULL, NULL,
							 &l->key) == SSH_OK)
		return 0;
	return err_set(&l->err, E_SSH_IDENTITY, l->where, path,
		       access(path, R_OK)
			       ? strerror(errno)
			       : "not a private key, or it has a passphrase");
}

/* The first file that libssh would try, if it can be named before the session knows
 * more. */
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
	*l = (struct ssh_login){ .lib = lib, .setup = setup, .target = t, .fd = -1 };
	l->session = lib->ssh_new();
	if (!l->session)
		return err_set(&l->err, E_SYSTEM, "libssh", "no session");
	ssh_config_ask(ssh_config_own(), t->name, t->user, false, &l->facts);
	set_options(l);
	describe(l);
	l->guess = guess_identity(l);
	return read_identity(l);
}

void ssh_login_use(struct ssh_login *l, int fd)
{
	l->fd = fd;
	l->lib->ssh_options_set(l->session, SSH_OPTIONS_FD, &fd);
}

/* sshd keeps Nagle's algorithm on until a session runs and writes two small packets in
 * a row: acknowledge at once, or lose 40 ms to the delayed acknowledgement. */
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

/* ProxyJump forks an ssh.  ^C must not reach it, and it must not ask on the terminal. */
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

/* A cut before the host's key was seen is what an overloaded sshd does (MaxStartups).
 */
static bool was_cut(const char *why)
{
	return strcasestr(why, "socket error") || strcasestr(why, "connection reset") ||
	       strcasestr(why, "closed") || strcasestr(why, "disconnected");
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
	return was_cut(why) ? LOGIN_RETRY : LOGIN_FAILED;
}

/* ---- the host's key ---- */

/* "ssh-ed25519 SHA256:..." */
static char *name_key(struct ssh_login *l)
{
	const struct libssh *lib = l->lib;
	unsigned char *hash = NULL;
	char *print = NULL, *out;
	ssh_key key = NULL;
	size_t n;

	if (lib->ssh_get_server_publickey(l->session, &key) != SSH_OK)
		return xstrdup("unknown key");
	if (lib->ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &n) == 0)
		print = lib->ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash,
						      n);
	out = xasprintf("%s %s", lib->ssh_key_type_to_char(lib->ssh_key_type(key)),
			print ? print : "?");
	lib->ssh_string_free_char(print);
	lib->ssh_clean_pubkey_hash(&hash);
	lib->ssh_key_free(key);
	return out;
}

static enum login_result refuse_key(struct ssh_login *l, bool changed)
{
	char *key = name_key(l);
	struct str name = { 0 };

	if (changed) {
		err_set(&l->err, E_SSH_HOSTKEY_CHANGED, l->where, key);
		l->port == 22 ? str_add(&name, l->host)
			      : str_addf(&name, "'[%s]:%d'", l->host, l->port);
		err_hint(&l->err,
			 "if the host was reinstalled, remove the old key with "
			 "`ssh-keygen "
			 "-R %s`; else someone is in the middle",
			 str_text(&name));
		str_free(&name);
	} else {
		err_set(&l->err, E_SSH_HOSTKEY, l->where, key);
	}
	free(key);
	return LOGIN_FAILED;
}

static enum login_result accept_key(struct ssh_login *l)
{
	static pthread_mutex_t lock =
		PTHREAD_MUTEX_INITIALIZER; /* it may mkdir ~/.ssh */
	int rc;

	pthread_mutex_lock(&lock);
	rc = l->lib->ssh_session_update_known_hosts(l->session);
	pthread_mutex_unlock(&lock);
	if (rc == SSH_OK)
		return LOGIN_DONE;
	err_set(&l->err, E_SSH_KNOWN_HOSTS, l->where,
		l->lib->ssh_get_error(l->session));
	return LOGIN_FAILED;
}

static enum login_result step_verify(struct ssh_login *l)
{
	const bool accept = l->setup->accept_new_hosts || l->facts.strict != STRICT_YES;

	if (l->guess) /* no key where it is missing or has a passphrase */
		l->lib->ssh_pki_import_privkey_file(l->guess, NULL, NULL, NULL,
						    &l->key);
	l->phase = l->key ? LOGIN_IDENTITY : LOGIN_AUTO;
	switch (l->lib->ssh_session_is_known_server(l->session)) {
	case SSH_KNOWN_HOSTS_OK:
		return LOGIN_DONE;
	case SSH_KNOWN_HOSTS_NOT_FOUND:
	case SSH_KNOWN_HOSTS_UNKNOWN:
		return accept ? accept_key(l) : refuse_key(l, false);
	case SSH_KNOWN_HOSTS_CHANGED:
	case SSH_KNOWN_HOSTS_OTHER: /* known by a key of another kind: no new host
				       either */
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
	const int methods = l->lib->ssh_userauth_list(l->session, NULL);
	const int beyond = SSH_AUTH_METHOD_HOSTBASED | SSH_AUTH_METHOD_INTERACTIVE |
			   SSH_AUTH_METHOD_GSSAPI_MIC;
	struct str takes = { 0 };

	if (methods & (int)SSH_AUTH_METHOD_PUBLICKEY)
		str_add(&takes, " publickey");
	if (methods & (int)SSH_AUTH_METHOD_PASSWORD)
		str_add(&takes, " password");
	if (methods & (int)SSH_AUTH_METHOD_HOSTBASED)
		str_add(&takes, " hostbased");
	if (methods & (int)SSH_AUTH_METHOD_INTERACTIVE)
		str_add(&takes, " keyboard-interactive");
	if (methods & (int)SSH_AUTH_METHOD_GSSAPI_MIC)
		str_add(&takes, " gssapi-with-mic");
	if (takes.len)
		str_add(&takes, " is what it takes");
	err_set(&l->err, E_SSH_AUTH, l->where,
		takes.len ? takes.s + 1 : l->lib->ssh_get_error(l->session));
	str_free(&takes);
	return methods & beyond ? LOGIN_OTHER : LOGIN_FAILED;
}

static int try_keys(struct ssh_login *l)
{
	switch (l->phase) {
	case LOGIN_IDENTITY:
		return l->lib->ssh_userauth_publickey(l->session, NULL, l->key);
	case LOGIN_AGENT:
		return l->lib->ssh_userauth_agent(l->session, NULL);
	case LOGIN_AUTO:
		return l->lib->ssh_userauth_publickey_auto(l->session, NULL, NULL);
	default: /* no key at all was tried: this tells what the host would take */
		return l->lib->ssh_userauth_none(l->session, NULL);
	}
}

static enum login_result step_auth(struct ssh_login *l)
{
	const bool agent = getenv("SSH_AUTH_SOCK") != NULL;
	const int rc = try_keys(l);

	if (rc == SSH_AUTH_AGAIN)
		return LOGIN_WAIT;
	if (rc == SSH_AUTH_SUCCESS) {
		l->phase = LOGIN_IN;
		return LOGIN_DONE;
	}
	if (!l->lib->ssh_is_connected(l->session) || l->phase == LOGIN_LIST)
		return fail_auth(l);
	if (l->phase == LOGIN_IDENTITY && l->guess)
		l->phase = LOGIN_AUTO;
	else if (l->phase == LOGIN_IDENTITY && agent)
		l->phase = LOGIN_AGENT;
	else if (l->lib->ssh_userauth_list(l->session, NULL))
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
