#include "launcher/transport/ssh_config.h"

#include <ctype.h>
#include <glob.h>
#include <pwd.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/transport/known_hosts.h"
#include "launcher/transport/pattern.h"

enum { DEPTH_MAX = 16, FILES_MAX = 1000 }; /* files that include each other end */

/* ---- keywords ---- */

/* How many words stand behind a keyword. */
enum words { ONE, FLAG, TWO, MANY, TEXT }; /* FLAG: yes or no; TEXT: all of the line */

/* Those of OpenSSH 8.0 to 9.2 that each of them takes or ignores, sorted.  Each other
 * one may end ssh. */
static const struct keyword {
	const char *name;
	enum words words;
} keywords[] = {
	{ "addkeystoagent", TWO },
	{ "addressfamily", ONE },
	{ "batchmode", FLAG },
	{ "bindaddress", ONE },
	{ "bindinterface", ONE },
	{ "canonicaldomains", MANY },
	{ "canonicalizefallbacklocal", FLAG },
	{ "canonicalizehostname", ONE },
	{ "canonicalizemaxdots", ONE },
	{ "canonicalizepermittedcnames", MANY },
	{ "casignaturealgorithms", ONE },
	{ "certificatefile", ONE },
	{ "challengeresponseauthentication", FLAG },
	{ "checkhostip", FLAG },
	{ "ciphers", ONE },
	{ "clearallforwardings", FLAG },
	{ "compression", FLAG },
	{ "connectionattempts", ONE },
	{ "connecttimeout", ONE },
	{ "controlmaster", ONE },
	{ "controlpath", ONE },
	{ "controlpersist", ONE },
	{ "dynamicforward", ONE },
	{ "enablesshkeysign", FLAG },
	{ "escapechar", ONE },
	{ "exitonforwardfailure", FLAG },
	{ "fingerprinthash", ONE },
	{ "forwardagent", ONE },
	{ "forwardx11", FLAG },
	{ "forwardx11timeout", ONE },
	{ "forwardx11trusted", FLAG },
	{ "gatewayports", FLAG },
	{ "globalknownhostsfile", MANY },
	{ "gssapiauthentication", FLAG },
	{ "gssapidelegatecredentials", FLAG },
	{ "gssapikexalgorithms", ONE }, /* this and the next two: of distributions */
	{ "gssapikeyexchange", FLAG },
	{ "gssapitrustdns", ONE },
	{ "hashknownhosts", FLAG },
	{ "host", MANY },
	{ "hostbasedacceptedalgorithms", ONE },
	{ "hostbasedauthentication", FLAG },
	{ "hostbasedkeytypes", ONE },
	{ "hostkeyalgorithms", ONE },
	{ "hostkeyalias", ONE },
	{ "hostname", ONE },
	{ "identitiesonly", FLAG },
	{ "identityagent", ONE },
	{ "identityfile", ONE },
	{ "ignoreunknown", ONE },
	{ "include", MANY },
	{ "ipqos", TWO },
	{ "kbdinteractiveauthentication", FLAG },
	{ "kbdinteractivedevices", ONE },
	{ "kexalgorithms", ONE },
	{ "knownhostscommand", TEXT },
	{ "localcommand", TEXT },
	{ "localforward", TWO },
	{ "loglevel", ONE },
	{ "macs", ONE },
	{ "match", MANY },
	{ "nohostauthenticationforlocalhost", FLAG },
	{ "numberofpasswordprompts", ONE },
	{ "passwordauthentication", FLAG },
	{ "permitlocalcommand", FLAG },
	{ "permitremoteopen", MANY },
	{ "pkcs11provider", ONE },
	{ "port", ONE },
	{ "preferredauthentications", ONE },
	{ "protocol", ONE },
	{ "proxycommand", TEXT },
	{ "proxyjump", TEXT },
	{ "proxyusefdpass", FLAG },
	{ "pubkeyacceptedalgorithms", ONE },
	{ "pubkeyacceptedkeytypes", ONE },
	{ "pubkeyauthentication", ONE },
	{ "rekeylimit", TWO },
	{ "remotecommand", TEXT },
	{ "remoteforward", TWO },
	{ "requesttty", ONE },
	{ "requiredrsasize", ONE },
	{ "revokedhostkeys", ONE },
	{ "securitykeyprovider", ONE },
	{ "sendenv", MANY },
	{ "serveralivecountmax", ONE },
	{ "serveraliveinterval", ONE },
	{ "setenv", MANY },
	{ "streamlocalbindmask", ONE },
	{ "streamlocalbindunlink", FLAG },
	{ "stricthostkeychecking", ONE },
	{ "syslogfacility", ONE },
	{ "tcpkeepalive", FLAG },
	{ "tunnel", ONE },
	{ "tunneldevice", ONE },
	{ "updatehostkeys", ONE },
	{ "user", ONE },
	{ "userknownhostsfile", MANY },
	{ "verifyhostkeydns", ONE },
	{ "visualhostkey", FLAG },
	{ "xauthlocation", ONE },
};

static int by_name(const void *name, const void *keyword)
{
	return strcmp(name, ((const struct keyword *)keyword)->name);
}

static const struct keyword *find_keyword(const char *name)
{
	return bsearch(name, keywords, sizeof keywords / sizeof *keywords,
		       sizeof *keywords, by_name);
}

static bool is_yes(const char *v)
{
	return !strcasecmp(v, "yes") || !strcasecmp(v, "true");
}

static bool is_no(const char *v)
{
	return !strcasecmp(v, "no") || !strcasecmp(v, "false");
}

/* ---- reading ---- */

static void read_file(struct ssh_config *c, const char *path, const char *dir,
		      int depth);

/* The ssh program judges for all hosts.  The first reason counts. */
static void leave_all(struct ssh_config *c, char *why)
{
	if (c->why)
		free(why);
	else
		c->why = why;
}

#define ODD_WORD "a word with ' or \\ or $ or \" in it"

/* The next word of *P, quotes removed, into OUT; false at the end or at a comment.
 * *ODD is set for a word that versions of ssh read differently. */
static bool next_word(const char **p, struct str *out, const char **odd)
{
	const char *s = *p + strspn(*p, " \t\r\n");
	const bool quoted = *s == '"';
	size_t n;

	*out = (struct str){ 0 };
	if (!*s || *s == '#')
		return false;
	s += quoted;
	n = strcspn(s, quoted ? "\"" : " \t\r\n");
	str_addn(out, s, n);
	s += n;
	if (strpbrk(str_text(out), quoted ? "\\$" : "'\\$\"\f\v"))
		*odd = ODD_WORD;
	if (quoted && (*s != '"' || !n || !strchr(" \t\r\n", s[1])))
		*odd = ODD_WORD;
	*p = s + (quoted && *s);
	return true;
}

/* ssh ends at a quote without its second one, in each line, before a comment. */
static bool quotes_end(const char *s)
{
	char quote = '\0', before = ' ';

	for (; *s && (quote || *s != '#' || !strchr(" \t", before)); before = *s++)
		if (*s == '\\' && s[1] && strchr("\"'\\", s[1]))
			s++;
		else if (quote ? *s == quote : *s == '"' || *s == '\'')
			quote = quote ? '\0' : *s;
	return !quote;
}

static struct ssh_config_line *add_line(struct ssh_config *c, char *key, char *where)
{
	c->v = xreallocarray(c->v, c->n + 1, sizeof *c->v);
	c->v[c->n] = (struct ssh_config_line){ .key = key, .where = where };
	return &c->v[c->n++];
}

/* The pattern that PATH of an Include line stands for; NULL if only ssh can say. */
static char *expand(const struct ssh_config *c, const char *path, const char *dir)
{
	const bool home = !strncmp(path, "~/", 2);

	if (strchr(path, '%') || (*path == '~' && !home) ||
	    (home && !strcmp(dir, c->etc)))
		return NULL;
	if (home)
		return xasprintf("%s%s", c->home, path + 1);
	if (*path == '/')
		return xstrdup(path);
	return xasprintf("%s/%s", dir, path);
}

/* A Host line ends with its file: an empty key closes what "include" opened. */
static void include(struct ssh_config *c, const struct strv *paths, const char *where,
		    const char *dir, int depth)
{
	for (size_t k = 0; k < paths->n; k++) {
		char *pattern = expand(c, paths->v[k], dir);
		glob_t found = { 0 };

		if (!pattern)
			leave_all(c,
				  xasprintf("include '%s' (%s)", paths->v[k], where));
		else if (!glob(pattern, 0, NULL, &found))
			for (size_t i = 0; i < found.gl_pathc; i++) {
				add_line(c, xstrdup("include"), xstrdup(pattern));
				read_file(c, found.gl_pathv[i], dir, depth + 1);
				add_line(c, xstrdup(""), xstrdup(pattern));
			}
		globfree(&found);
		free(pattern);
	}
}

/* The words of LINE, or its whole text. */
static void read_words(struct ssh_config_line *line, const char *s, enum words words)
{
	struct str word;
	size_t n;

	if (words != TEXT) {
		while (next_word(&s, &word, &line->odd))
			strv_take(&line->args, str_take(&word));
		return;
	}
	s += strspn(s, " \t\r\n");
	for (n = strlen(s); n && strchr(" \t\r\n\f", s[n - 1]);)
		n--;
	if (n)
		strv_take(&line->args, xstrndup(s, n));
}

static bool has_final(const struct strv *args)
{
	for (size_t i = 0; i < args->n; i++)
		if (!strcasecmp(args->v[i] + (*args->v[i] == '!'), "final"))
			return true;
	return false;
}

/* What ends ssh in whichever block it stands, and what makes it read all twice. */
static void judge_line(struct ssh_config *c, const struct ssh_config_line *line,
		       enum words words)
{
	const size_t most = words == TWO ? 2 : words == MANY ? SIZE_MAX : 1;
	const char *v = line->args.n ? line->args.v[0] : "";
	const char *what = NULL;

	if (!line->args.n || line->args.n > most)
		what = "a line with too few words or too many";
	else if (words == FLAG && !line->odd && !is_yes(v) && !is_no(v))
		what = line->key;
	if (!strcmp(line->key, "match") && has_final(&line->args))
		c->final = true;
	if (what)
		leave_all(c, xasprintf("%s (%s)", what, line->where));
}

/* "Keyword value" and "Keyword=value" are the same. */
static void read_line(struct ssh_config *c, const char *text, const char *path,
		      int number, const char *dir, int depth)
{
	const char *s = text + strspn(text, " \t\r\n");
	const size_t n = strcspn(s, " \t\r\n=\"");
	const struct keyword *word;
	struct ssh_config_line line = { 0 };

	if (!*s || *s == '#')
		return;
	line.where = xasprintf("%s:%d", path, number);
	line.key = xstrndup(s, n);
	for (char *p = line.key; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	s += n;
	if (!n || *s == '"' || !quotes_end(s))
		leave_all(c, xasprintf("quotes that do not end, or a line that begins "
				       "with one (%s)",
				       line.where));
	s += strspn(s, " \t");
	s += *s == '=';
	word = find_keyword(line.key);
	line.known = word != NULL;
	read_words(&line, s, word ? word->words : MANY);
	if (word)
		judge_line(c, &line, word->words);
	if (!strcmp(line.key, "include") && line.odd)
		leave_all(c, xasprintf("%s (%s)", line.odd, line.where));
	if (!strcmp(line.key, "include"))
		include(c, &line.args, line.where, dir, depth);
	if (!n || !strcmp(line.key, "include")) {
		free(line.key);
		free(line.where);
		strv_free(&line.args);
		return;
	}
	*add_line(c, NULL, NULL) = line;
}

/* ssh ends if others could have written its configuration.  Of the system's file alone
 * it does not ask. */
static void check_owner(struct ssh_config *c, int fd, const char *path)
{
	struct stat st;

	if (!fstat(fd, &st) &&
	    ((st.st_uid && st.st_uid != getuid()) || (st.st_mode & 022)))
		leave_all(c, xasprintf("a configuration that others may write, '%s'",
				       path));
}

static void read_file(struct ssh_config *c, const char *path, const char *dir,
		      int depth)
{
	const bool sane = depth < DEPTH_MAX && c->files++ < FILES_MAX;
	FILE *f = sane ? fopen(path, "re") : NULL;
	char *text = NULL;
	size_t cap = 0;

	if (!sane)
		leave_all(c, xasprintf("files that include each other, '%s'", path));
	else if (!f && depth)
		leave_all(c, xasprintf("an included file that cannot be read, '%s'",
				       path));
	if (!f)
		return;
	if (depth || strcmp(dir, c->etc) != 0)
		check_owner(c, fileno(f), path);
	for (int number = 1; getline(&text, &cap, f) >= 0; number++)
		read_line(c, text, path, number, dir, depth);
	free(text);
	fclose(f);
}

void ssh_config_read(struct ssh_config *c, const char *home, const char *etc)
{
	char *dir[] = { xasprintf("%s/.ssh", home), xstrdup(etc) };
	const char *const name[] = { "config", "ssh_config" };

	c->home = xstrdup(home);
	c->etc = xstrdup(etc);
	for (int i = 0; i < 2; i++) {
		char *path = xasprintf("%s/%s", dir[i], name[i]);

		/* a Host line of the user's file counts to the end of that file */
		add_line(c, xstrdup("include"), xstrdup(path));
		read_file(c, path, dir[i], 0);
		add_line(c, xstrdup(""), xstrdup(path));
		free(path);
		free(dir[i]);
	}
}

struct ssh_config *ssh_config_own(void)
{
	static struct ssh_config own;
	struct passwd *pw;

	if (!own.home) {
		pw = getpwuid(getuid()); /* ssh and libssh ask here too, not $HOME */
		ssh_config_read(&own, pw ? pw->pw_dir : "/", "/etc/ssh");
	}
	return &own;
}

/* ---- matching ---- */

/* One walk over the lines for one host. */
struct walk {
	struct ssh_config *c;
	const char *name;
	bool final; /* the second time, for "Match final" */
	char *user; /* as far as it is known at this line, as is f->host */
	bool agent;
	bool active;
	struct strv seen; /* keys that have their value: the first value counts */
	struct strv identity;
	const char *ignored; /* IgnoreUnknown */
	const struct strv *user_known, *global_known;
	struct ssh_config_facts *f;
};

static void say_why(struct walk *w, const char *what, const char *where)
{
	if (!w->f->why.len)
		str_addf(&w->f->why, "%s (%s)", what, where);
}

/* Whether a criterion of a Match line holds. */
static bool match_word(const struct walk *w, const char *word, const char *arg)
{
	const struct passwd *pw;

	if (!strcasecmp(word, "host"))
		return pattern_list(arg, w->f->host, true);
	if (!strcasecmp(word, "user"))
		return w->user && pattern_list(arg, w->user, false);
	pw = getpwuid(getuid());
	return pw && pattern_list(arg, pw->pw_name, false);
}

/* Whether a Match line holds.  Where a command decides, or a word that ssh and libssh
 * take differently, ssh judges, unless another word says that it does not hold. */
static bool match_match_line(struct walk *w, const struct ssh_config_line *l)
{
	const struct strv *args = &l->args;
	const char *unsure = l->odd;
	size_t alone = 0; /* "all" may stand behind such words */

	for (size_t i = 0; i < args->n && !l->odd; i++) {
		const bool negated = *args->v[i] == '!';
		const char *word = args->v[i] + negated;
		const char *arg = i + 1 < args->n ? args->v[i + 1] : NULL;

		if (!strcasecmp(word, "canonical")) {
			unsure = "Match canonical";
			alone++;
			continue;
		}
		if (!strcasecmp(word, "final")) {
			if (w->final == negated)
				return false;
			alone++;
			continue;
		}
		if (!strcasecmp(word, "all") && !negated && alone == i && !arg)
			continue;
		i++; /* all that follow have a word behind them */
		if (arg && !strcasecmp(word, "exec")) {
			unsure = "Match exec";
		} else if (arg && !strcasecmp(word, "originalhost")) {
			if (pattern_list(arg, w->name, true) == negated)
				return false;
			unsure = "Match originalhost"; /* libssh misreads it */
		} else if (arg &&
			   (!strcasecmp(word, "host") || !strcasecmp(word, "user") ||
			    !strcasecmp(word, "localuser"))) {
			if (match_word(w, word, arg) == negated)
				return false;
		} else {
			unsure = "a Match word that only ssh knows";
			break;
		}
	}
	if (unsure)
		say_why(w, unsure, l->where);
	return !unsure;
}

/* ---- what the lines mean ---- */

enum test {
	IF_SET,
	IF_NOT_NO,
	IF_NOT_YES,
	IF_ODD_ALGORITHMS,
	IF_NOT_PUBLICKEY,
	IF_NOT_STRICT, /* no value that ssh takes */
	IF_NOT_PORT,
	IF_NOT_FAMILY,
	IF_AGENT,
	IF_TOKEN
};

/* What libssh ignores and this program cannot do for it; and values that ssh may not
 * take. */
static const struct {
	const char *key;
	enum test test;
} beyond[] = {
	{ "addressfamily", IF_NOT_FAMILY },
	{ "bindaddress", IF_SET },
	{ "bindinterface", IF_SET },
	{ "canonicalizehostname", IF_NOT_NO },
	{ "certificatefile", IF_SET },
	{ "checkhostip", IF_NOT_NO },
	{ "hostbasedauthentication", IF_NOT_NO },
	{ "hostkeyalias", IF_SET },
	{ "hostkeyalgorithms", IF_ODD_ALGORITHMS },
	{ "identitiesonly", IF_AGENT }, /* without an agent it changes nothing */
	{ "knownhostscommand", IF_SET },
	{ "nohostauthenticationforlocalhost", IF_NOT_NO },
	{ "pkcs11provider", IF_SET },
	{ "port", IF_NOT_PORT },
	{ "preferredauthentications", IF_NOT_PUBLICKEY },
	{ "proxyusefdpass", IF_NOT_NO },
	{ "pubkeyauthentication", IF_NOT_YES },
	{ "requiredrsasize", IF_SET },
	{ "revokedhostkeys", IF_SET },
	{ "stricthostkeychecking", IF_NOT_STRICT },
	{ "updatehostkeys", IF_NOT_NO },
	{ "user", IF_TOKEN },
	{ "verifyhostkeydns", IF_NOT_NO },
};

/* The enum ssh_strict of a value, or -1.  ssh asks nobody (BatchMode): "ask" is yes. */
static int read_strict(const char *v)
{
	static const struct {
		const char *value;
		enum ssh_strict strict;
	} values[] = {
		{ "yes", STRICT_YES },
		{ "true", STRICT_YES },
		{ "ask", STRICT_YES },
		{ "no", STRICT_NO },
		{ "false", STRICT_NO },
		{ "off", STRICT_NO },
		{ "accept-new", STRICT_ACCEPT_NEW },
	};

	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		if (!strcasecmp(v, values[i].value))
			return (int)values[i].strict;
	return -1;
}

/* Names of host key algorithms that ssh and libssh know, perhaps behind a '+'.  What a
 * '^', a '-' or a pattern makes of them depends on ssh's own list. */
static bool is_plain_algorithms(const char *v)
{
	static const char *const known[] = { "ssh-ed25519",
					     "ecdsa-sha2-nistp256",
					     "ecdsa-sha2-nistp384",
					     "ecdsa-sha2-nistp521",
					     "rsa-sha2-512",
					     "rsa-sha2-256",
					     "ssh-rsa" };
	bool more = true, found = true;

	for (v += *v == '+'; more && found; v++) {
		const size_t n = strcspn(v, ",");

		found = false;
		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			found |= strlen(known[i]) == n && !strncmp(v, known[i], n);
		v += n;
		more = *v == ',';
	}
	return found;
}

static int read_family(const char *v)
{
	return !strcasecmp(v, "inet")    ? AF_INET
	       : !strcasecmp(v, "inet6") ? AF_INET6
	       : !strcasecmp(v, "any")   ? AF_UNSPEC
					 : -1;
}

static bool fails(enum test test, const char *v, bool agent)
{
	long port;

	switch (test) {
	case IF_SET:
		return strcasecmp(v, "none") != 0;
	case IF_NOT_NO:
		return !is_no(v);
	case IF_NOT_YES:
		return !is_yes(v);
	case IF_ODD_ALGORITHMS:
		return !is_plain_algorithms(v);
	case IF_NOT_STRICT:
		return read_strict(v) < 0;
	case IF_NOT_PUBLICKEY:
		return strncmp(v, "publickey", 9) != 0;
	case IF_NOT_PORT:
		return str_to_long(&port, v, 1, 65535, NULL) != 0;
	case IF_NOT_FAMILY:
		return read_family(v) < 0;
	case IF_AGENT:
		return agent && !is_no(v);
	case IF_TOKEN:
		return strchr(v, '%') != NULL;
	}
	return true;
}

static bool is_beyond(const char *key, const char *v, bool agent)
{
	for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
		if (!strcmp(key, beyond[i].key))
			return fails(beyond[i].test, v, agent);
	return false;
}

/* HostName's value with its tokens replaced; NULL if it has others than %h and %%. */
static char *expand_host(const char *v, const char *host)
{
	struct str out = { 0 };

	for (; *v; v++) {
		if (*v != '%') {
			str_addn(&out, v, 1);
		} else if (*++v == 'h') {
			str_add(&out, host);
		} else if (*v == '%') {
			str_add(&out, "%");
		} else {
			str_free(&out);
			return NULL;
		}
	}
	return str_take(&out);
}

/* The proxy that is in force: of ProxyCommand and ProxyJump the first. */
static void read_proxy(struct walk *w, const struct ssh_config_line *l, const char *v)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		"0123456789._-@:,[]";

	if (!strcasecmp(v, "none"))
		return;
	w->f->proxy = true;
	if (strcmp(l->key, "proxyjump") != 0)
		return;
	if (v[strspn(v, plain)] || strchr("-,", *v) || strstr(v, ",,") ||
	    strstr(v, ",-") || v[strlen(v) - 1] == ',')
		say_why(w, l->key, l->where);
	else
		w->f->jump = xstrdup(v);
}

/* The lines about known_hosts; ENUM values are checked already. */
static void read_known_setting(struct walk *w, const struct ssh_config_line *l,
			       const char *v)
{
	if (!strcmp(l->key, "stricthostkeychecking"))
		w->f->strict = read_strict(v) < 0 ? STRICT_YES
						  : (enum ssh_strict)read_strict(v);
	else if (!strcmp(l->key, "userknownhostsfile"))
		w->user_known = &l->args;
	else if (!strcmp(l->key, "globalknownhostsfile"))
		w->global_known = &l->args;
	else if (!strcmp(l->key, "hashknownhosts"))
		w->f->hash_names = is_yes(v);
	else if (!strcmp(l->key, "hostkeyalgorithms"))
		w->f->algorithms = xstrdup(v);
}

/* Whether KEY had a value before; then that one counts. */
static bool is_seen(struct walk *w, const char *key)
{
	if (!strcmp(key, "proxyjump"))
		key = "proxycommand"; /* they exclude each other */
	for (size_t i = 0; i < w->seen.n; i++)
		if (!strcmp(w->seen.v[i], key))
			return true;
	strv_add(&w->seen, key);
	return false;
}

/* Apply a line that holds.  The first value of a key counts. */
static void read_setting(struct walk *w, const struct ssh_config_line *l)
{
	const char *v = l->args.n ? l->args.v[0] : "";
	const bool identity = !strcmp(l->key, "identityfile"); /* each one is tried */
	char *host;
	long port;

	if (identity)
		strv_add(&w->identity, v);
	if (is_seen(w, l->key) && !identity)
		return;
	if (l->odd)
		say_why(w, l->odd, l->where);
	if (is_beyond(l->key, v, w->agent))
		say_why(w, l->key, l->where);
	if (!strcmp(l->key, "hostname")) {
		host = expand_host(v, w->f->host);
		if (!host) {
			say_why(w, l->key, l->where);
			return;
		}
		free(w->f->host);
		w->f->host = host;
	} else if (!strcmp(l->key, "port") && !w->f->port) {
		w->f->port = str_to_long(&port, v, 1, 65535, NULL) ? 22 : (int)port;
	} else if (!strcmp(l->key, "user") && !w->user) {
		w->user = xstrdup(v);
	} else if (!strcmp(l->key, "addressfamily")) {
		w->f->family = read_family(v) < 0 ? AF_UNSPEC : read_family(v);
	} else if (!strcmp(l->key, "proxyjump") || !strcmp(l->key, "proxycommand")) {
		read_proxy(w, l, v);
	} else if (!strcmp(l->key, "ignoreunknown")) {
		w->ignored = v;
	} else {
		read_known_setting(w, l, v);
	}
}

/* Whether a Host line is about the name: as typed, the second time as it is known by
 * then.  A comma does not part patterns. */
static bool match_host_line(const struct walk *w, const struct strv *args)
{
	const char *name = w->final ? w->f->host : w->name;
	bool hit = false;

	for (size_t i = 0; i < args->n; i++) {
		const bool negated = *args->v[i] == '!';
		const char *pattern = args->v[i] + negated;

		if (!pattern_match(pattern, strlen(pattern), name, false))
			continue;
		if (negated)
			return false;
		hit = true;
	}
	return hit;
}

/* Lines I..end of this file; returns the index after its end. */
static size_t walk_file(struct walk *w, size_t i)
{
	const bool active = w->active;

	for (; i < w->c->n && *w->c->v[i].key; i++) {
		const struct ssh_config_line *l = &w->c->v[i];

		if (!strcmp(l->key, "include")) {
			i = walk_file(w, i + 1) - 1;
		} else if (!strcmp(l->key, "host")) {
			if (active && l->odd)
				say_why(w, l->odd, l->where);
			w->active = active && match_host_line(w, &l->args);
		} else if (!strcmp(l->key, "match")) {
			w->active = active && match_match_line(w, l);
		} else if (!l->known) { /* in whichever block: ssh ends */
			if (!w->ignored || !pattern_list(w->ignored, l->key, true))
				say_why(w, l->key, l->where);
		} else if (w->active) {
			read_setting(w, l);
		}
	}
	w->active = active;
	return i + 1;
}

/* ---- files that the lines name ---- */

/* The path that VALUE names, or NULL if only ssh can say (tokens, other homes). */
static char *plain_path(const struct walk *w, const char *value)
{
	const bool home = !strncmp(value, "~/", 2) || !strncmp(value, "%d/", 3);
	const char *rest = home ? strchr(value, '/') : value;

	if (*rest != '/' || strpbrk(rest, "%$"))
		return NULL;
	return home ? xasprintf("%s%s", w->c->home, rest) : xstrdup(rest);
}

/* The known_hosts files: those of the line, else the two usual ones in DIR. */
static void add_known(struct walk *w, const struct strv *named, const char *key,
		      const char *dir, const char *name)
{
	for (size_t i = 0; named && i < named->n; i++) {
		char *path = plain_path(w, named->v[i]);

		if (path)
			strv_take(&w->f->known, path);
		else if (!w->f->why.len)
			str_addf(&w->f->why, "%s '%s'", key, named->v[i]);
	}
	if (named && !named->n && !w->f->why.len)
		str_addf(&w->f->why, "%s without a file", key);
	if (named)
		return;
	strv_take(&w->f->known, xasprintf("%s/%s", dir, name));
	strv_take(&w->f->known, xasprintf("%s/%s2", dir, name));
}

/* Marked lines of the files are for ssh alone. */
static void check_marks(struct ssh_config_facts *f)
{
	char *name[] = { known_name(f->host, f->port), known_name(f->host, 22) };

	for (size_t i = 0; i < f->known.n && !f->why.len; i++) {
		struct known_file *file = known_file_get(f->known.v[i]);

		for (int k = 0; k < (f->port == 22 ? 1 : 2); k++)
			known_file_marks(file, name[k], &f->why);
		known_file_drop(file);
	}
	free(name[0]);
	free(name[1]);
}

/* ssh ignores a private key of its user that others may read. */
static void check_private(struct walk *w, const char *path)
{
	struct stat st;

	if (!w->f->why.len && !stat(path, &st) && st.st_uid == getuid() &&
	    (st.st_mode & 077))
		str_addf(&w->f->why, "a private key that others may read, '%s'", path);
}

static void check_identities(struct walk *w, const char *given)
{
	static const char *const usual[] = { "id_rsa", "id_ecdsa", "id_ed25519" };
	char *path;

	if (given) {
		check_private(w, given);
		return;
	}
	for (size_t i = 0; i < w->identity.n; i++) {
		path = plain_path(w, w->identity.v[i]);
		if (path)
			check_private(w, path);
		else if (!w->f->why.len)
			str_addf(&w->f->why, "identityfile '%s'", w->identity.v[i]);
		free(path);
	}
	for (size_t i = 0; !w->identity.n && i < sizeof usual / sizeof *usual; i++) {
		path = xasprintf("%s/.ssh/%s", w->c->home, usual[i]);
		check_private(w, path);
		free(path);
	}
}

void ssh_config_ask(struct ssh_config *c, const char *name,
		    const struct ssh_config_given *given, struct ssh_config_facts *f)
{
	struct walk w = {
		.c = c, .name = name, .agent = given->agent, .active = true, .f = f
	};
	char *dir = xasprintf("%s/.ssh", c->home);

	*f = (struct ssh_config_facts){ .strict = STRICT_YES,
					.family = AF_UNSPEC,
					.port = given->port,
					.host = xstrdup(name) };
	w.user = given->user ? xstrdup(given->user) : NULL;
	if (c->why)
		str_add(&f->why, c->why);
	for (int turn = 0; turn < (c->final ? 2 : 1); turn++) {
		w.final = turn;
		if (turn) /* as ssh does before it reads again */
			for (char *p = f->host; *p; p++)
				*p = (char)tolower((unsigned char)*p);
		for (size_t i = 0; i < c->n;)
			i = walk_file(&w, i);
	}
	if (!f->port)
		f->port = 22;
	add_known(&w, w.user_known, "userknownhostsfile", dir, "known_hosts");
	add_known(&w, w.global_known, "globalknownhostsfile", c->etc,
		  "ssh_known_hosts");
	check_identities(&w, given->identity);
	check_marks(f);
	free(dir);
	f->user = w.user;
	strv_free(&w.identity);
	strv_free(&w.seen);
}

void ssh_config_facts_free(struct ssh_config_facts *f)
{
	free(f->host);
	free(f->user);
	free(f->algorithms);
	free(f->jump);
	strv_free(&f->known);
	str_free(&f->why);
	*f = (struct ssh_config_facts){ 0 };
}
