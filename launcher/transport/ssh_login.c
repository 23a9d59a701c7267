#include "launcher/transport/ssh_login.h"

#ifdef HAVE_LIBSSH

#include <errno.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/transport/child.h"
#include "launcher/transport/ssh_said.h"

extern char **environ;

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

/* The command that connects through the hosts JUMP, "[USER@]HOST[:PORT],...", as ssh
 * makes it: through the last of them, which is reached through those before it.  Not
 * libssh's: from 0.11 on libssh goes there itself, with less care for keys. */
static char *jump_command(const char *jump)
{
	const char *comma = strrchr(jump, ','), *last = comma ? comma + 1 : jump;
	const char *at = strrchr(last, '@'), *host = at ? at + 1 : last;
	const char *end = *host == '[' ? strchr(host, ']') : NULL;
	const char *colon = strchr(end ? end : host, ':');
	struct str out = { 0 };

	if (!end && colon && strchr(colon + 1, ':'))
		colon = NULL; /* a bare IPv6 address */
	str_add(&out, "ssh");
	if (at)
		str_addf(&out, " -l '%.*s'", (int)(at - last), last);
	if (colon)
		str_addf(&out, " -p '%s'", colon + 1);
	if (comma)
		str_addf(&out, " -J '%.*s'", (int)(comma - jump), jump);
	host += end != NULL;
	str_addf(&out, " -W '[%%h]:%%p' -- '%.*s'",
		 (int)(end     ? end - host
		       : colon ? colon - host
			       : (int)strlen(host)),
		 host);
	return str_take(&out);
}

/* The options of the session; false: libssh could not read ssh_config. */
static bool set_options(struct ssh_login *l, const struct ssh_config_given *given)
{
	const struct libssh *lib = l->lib;
	const int on = 1;
	bool read;

	/* the name first, for Host lines; the user again, or a line of the file wins */
	lib->ssh_options_set(l->session, SSH_OPTIONS_HOST, l->target->name);
	if (given->user)
		lib->ssh_options_set(l->session, SSH_OPTIONS_USER, given->user);
	read = lib->ssh_options_parse_config(l->session, NULL) == SSH_OK;
	if (given->user)
		lib->ssh_options_set(l->session, SSH_OPTIONS_USER, given->user);
	if (given->port)
		lib->ssh_options_set(l->session, SSH_OPTIONS_PORT, &given->port);
	/* known_hosts.h judges the host's key; libssh would read whole files, twice */
	lib->ssh_options_set(l->session, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
	lib->ssh_options_set(l->session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
	lib->ssh_options_set(l->session, SSH_OPTIONS_NODELAY, &on);
	lib->ssh_set_blocking(l->session, 0);
	return read;
}

/* Where libssh would log in, and by which proxy. */
static void get_destination(struct ssh_login *l)
{
	const struct libssh *lib = l->lib;
	const struct passwd *pw = getpwuid(getuid());
	unsigned port = 22;

	l->user = get_option(l, SSH_OPTIONS_USER);
	if (!l->user)
		l->user = xstrdup(pw ? pw->pw_name : "");
	if (!l->facts.user)
		l->facts.user = xstrdup(pw ? pw->pw_name : "");
	lib->ssh_options_get_port(l->session, &port);
	l->port = (int)port;
	l->host = get_option(l, SSH_OPTIONS_HOST);
	if (!l->host)
		l->host = xstrdup(l->target->name);
	l->proxy = get_option(l, SSH_OPTIONS_PROXYCOMMAND);
	if (l->proxy) /* ssh_login_proxy() runs it */
		lib->ssh_options_set(l->session, SSH_OPTIONS_PROXYCOMMAND, "none");
	if (l->facts.jump) {
		free(l->proxy);
		l->proxy = jump_command(l->facts.jump);
	}
	l->where = xasprintf("%s@%s:%u", l->user, l->target->name, port);
}

int ssh_login_open(struct ssh_login *l, const struct libssh *lib,
		   const struct transport_setup *setup, const struct target *t)
{
	const struct ssh_config_given given = { .user = t->user,
						.identity = setup->identity,
						.port = transport_port(setup, t) };
	bool read;

	*l = (struct ssh_login){ .lib = lib, .setup = setup, .target = t, .fd = -1 };
	l->session = lib->ssh_new();
	if (!l->session)
		return err_set(&l->err, E_SYSTEM, "libssh", "no session");
	ssh_config_ask(ssh_config_own(), t->name, &given, &l->facts);
	read = set_options(l, &given);
	get_destination(l);
	/* libssh would judge by less than ssh (--transport ssh), or it obeys a Host
	 * line that ssh does not, such as one in capitals, or it has no proxy */
	l->only_ssh = !read || l->facts.why.len || l->facts.proxy != !!l->proxy ||
		      strcasecmp(l->host, l->facts.host) != 0 ||
		      l->port != l->facts.port || strcmp(l->user, l->facts.user) != 0;
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
	ssh_config_facts_free(&l->facts);
	known_keys_free(&l->known);
	free(l->note);
	if (l->proxy_child)
		child_return(l->proxy_child);
	free(l->host);
	free(l->user);
	free(l->proxy);
	free(l->where);
	free(l->guess);
	*l = (struct ssh_login){ 0 };
}

const char *ssh_login_reason(const struct ssh_login *l)
{
	const char *why = l->lib->ssh_get_error(l->session);
	const char *none = strerror(0);

	/* libssh takes the error of the socket, and a proxy's that is closed before
	 * libssh looks at it has none */
	return *why && !strstr(why, none) ? why : "connection closed";
}

/* ---- connect ---- */

/* The proxy's command with its tokens replaced, those of ssh_config(5).  False: it has
 * another token. */
static bool expand_proxy(const struct ssh_login *l, struct str *out)
{
	for (const char *p = l->proxy; *p; p++) {
		if (*p != '%') {
			str_addn(out, p, 1);
			continue;
		}
		switch (*++p) {
		case '%':
			str_add(out, "%");
			break;
		case 'h':
			str_add(out, l->host);
			break;
		case 'n':
			str_add(out, l->target->name);
			break;
		case 'p':
			str_addf(out, "%d", l->port);
			break;
		case 'r':
			str_add(out, l->user);
			break;
		default:
			return false;
		}
	}
	return true;
}

enum login_result ssh_login_proxy(struct ssh_login *l)
{
	const char *shell = getenv("SHELL");
	struct str command = { 0 };
	struct strv env = { 0 }, argv = { 0 };
	int sock;

	str_add(&command, "exec ");
	if (!expand_proxy(l, &command)) {
		str_free(&command);
		return LOGIN_OTHER;
	}
	for (char **e = environ; *e; e++)
		strv_add(&env, *e);
	strv_env_set(&env, "SSH_ASKPASS_REQUIRE", "force"); /* not on the terminal */
	strv_env_set(&env, "SSH_ASKPASS", "/bin/false");
	strv_add(&argv, shell && *shell ? shell : "/bin/sh");
	strv_add(&argv, "-c");
	strv_take(&argv, str_take(&command));
	l->proxy_child = child_lend(argv.v[0], argv.v, env.v, &sock);
	strv_free(&env);
	strv_free(&argv);
	if (!l->proxy_child) {
		err_set(&l->err, E_SSH_CONNECT, l->where, strerror(errno));
		return LOGIN_FAILED;
	}
	ssh_login_use(l, sock);
	return LOGIN_DONE;
}

/* Looks the host up in known_hosts files.  False: only the ssh program can judge. */
static bool find_keys(struct ssh_login *l)
{
	char *name = known_name(l->host, l->port), *bare = known_name(l->host, 22);

	for (size_t i = 0; i < l->facts.known.n; i++) {
		struct known_file *f = known_file_get(l->facts.known.v[i]);

		known_file_find(f, name, false, &l->known);
		if (l->port != 22)
			known_file_find(f, bare, true, &l->known);
		known_file_drop(f);
	}
	free(name);
	free(bare);
	return !l->known.only_ssh.len;
}

static enum login_result step_keys(struct ssh_login *l)
{
	const char *own;
	char *list;

	if (l->only_ssh || !find_keys(l))
		return LOGIN_OTHER;
	own = l->facts.algorithms;
	/* a key of a known type first, unless HostKeyAlgorithms has its own order */
	if (l->known.n && (!own || *own == '+')) {
		list = known_keys_algorithms(&l->known, own ? own + 1 : "");
		l->lib->ssh_options_set(l->session, SSH_OPTIONS_HOSTKEYS, list);
		free(list);
	}
	l->phase = LOGIN_CONNECT;
	return LOGIN_DONE;
}

/* An overloaded sshd (MaxStartups) ends the connection before it sends its key. */
static bool is_cut(const char *why)
{
	return strcasestr(why, "socket error") || strcasestr(why, "connection reset") ||
	       strcasestr(why, "closed") || strcasestr(why, "disconnected");
}

/* The connection through the proxy has ended; WHY is libssh's word for that. */
static enum login_result explain_proxy(struct ssh_login *l, const char *why)
{
	char room[CHILD_LENT_SAID + 1], *text;
	const struct ssh_said s = ssh_said_read(child_lent_said(l->proxy_child, room));
	const bool again = s.id == ERR_NONE ? is_cut(why) : s.again;

	text = *s.line ? xasprintf("its proxy says '%s'", s.line) : xstrdup(why);
	err_set(&l->err, E_SSH_CONNECT, l->where, text);
	if (*s.line)
		err_hint(&l->err, "run `ssh -o BatchMode=yes %s true` by hand",
			 l->target->name);
	free(text);
	free(s.line);
	return again ? LOGIN_RETRY : LOGIN_FAILED;
}

static enum login_result step_connect(struct ssh_login *l)
{
	int rc = l->lib->ssh_connect(l->session);
	const char *why;

	if (rc == SSH_AGAIN)
		return LOGIN_WAIT;
	if (rc == SSH_OK) {
		l->phase = LOGIN_VERIFY;
		return LOGIN_DONE;
	}
	why = ssh_login_reason(l);
	if (l->proxy_child)
		return explain_proxy(l, why);
	err_set(&l->err, E_SSH_CONNECT, l->where, why);
	return is_cut(why) ? LOGIN_RETRY : LOGIN_FAILED;
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

/* The host's key in base64, and its type; NULL if libssh has none. */
static char *server_key(struct ssh_login *l, const char **type)
{
	char *text = NULL, *copy = NULL;
	ssh_key key = NULL;

	if (l->lib->ssh_get_server_publickey(l->session, &key) != SSH_OK)
		return NULL;
	*type = l->lib->ssh_key_type_to_char(l->lib->ssh_key_type(key));
	if (l->lib->ssh_pki_export_pubkey_base64(key, &text) == SSH_OK)
		copy = xstrdup(text);
	l->lib->ssh_string_free_char(text);
	l->lib->ssh_key_free(key);
	return copy;
}

/* Add the new key.  As in ssh, a file that cannot be written stops nobody. */
static void login_add_key(struct ssh_login *l, const char *type, const char *base64)
{
	char *name = known_name(l->host, l->port);
	char *ssh_dir = xasprintf("%s/.ssh", ssh_config_own()->home);

	if (known_hosts_add(l->facts.known.v[0], ssh_dir, name, type, base64,
			    l->facts.hash_names))
		l->note = xasprintf("its host key could not be added to %s: %s",
				    l->facts.known.v[0], strerror(errno));
	free(ssh_dir);
	free(name);
}

static enum login_result step_verify(struct ssh_login *l)
{
	const bool accept = l->setup->accept_new_hosts || l->facts.strict != STRICT_YES;
	const bool any = !l->setup->accept_new_hosts && l->facts.strict == STRICT_NO;
	enum known_verdict verdict = KNOWN_CHANGED;
	const char *type = "";
	char *base64 = server_key(l, &type);
	unsigned char blob[8192];
	size_t n = base64 ? known_key_decode(blob, sizeof blob, base64) : 0;

	if (n)
		verdict = known_keys_judge(&l->known, blob, n);
	if (!n || (verdict == KNOWN_NEW && !accept) ||
	    (verdict == KNOWN_CHANGED && !any)) {
		free(base64);
		return refuse_key(l, verdict == KNOWN_CHANGED);
	}
	if (verdict == KNOWN_NEW)
		login_add_key(l, type, base64);
	else if (verdict == KNOWN_CHANGED)
		l->note = xasprintf("its host key is not the one in known_hosts, and "
				    "StrictHostKeyChecking accepts it (%s)",
				    type);
	free(base64);
	if (l->guess) /* no key if it is missing or has a passphrase */
		l->lib->ssh_pki_import_privkey_file(l->guess, NULL, NULL, NULL,
						    &l->key);
	l->phase = l->key ? LOGIN_IDENTITY : LOGIN_AUTO;
	return LOGIN_DONE;
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
		takes.len ? takes.s : ssh_login_reason(l));
	str_free(&takes);
	return got;
}

static enum login_result step_auth(struct ssh_login *l)
{
	const struct libssh *lib = l->lib;
	const bool agent = getenv("SSH_AUTH_SOCK") != NULL;
	char room[CHILD_LENT_SAID + 1];
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
		/* the ssh of a proxy goes on with such a key where
		 * StrictHostKeyChecking says so */
		if (l->proxy_child && !l->note &&
		    ssh_said_changed(child_lent_said(l->proxy_child, room)))
			l->note = xstrdup(
				"the host key of its proxy is not the one in "
				"known_hosts, and StrictHostKeyChecking accepts it");
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
		if (l->phase == LOGIN_KEYS)
			got = step_keys(l);
		else if (l->phase == LOGIN_CONNECT)
			got = step_connect(l);
		else if (l->phase == LOGIN_VERIFY)
			got = step_verify(l);
		else
			got = step_auth(l);
	return got;
}

#endif
