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

/* ---- reading ---- */

static void read_file(struct ssh_config *c, const char *path, const char *dir,
		      int depth);

/* The next word of *P, quotes removed, into OUT; false at the end or at a comment. */
static bool next_word(const char **p, struct str *out)
{
	const char *s = *p + strspn(*p, " \t\r\n");
	bool quoted = false;

	*out = (struct str){ 0 };
	if (!*s || *s == '#')
		return false;
	for (; *s && (quoted || !strchr(" \t\r\n", *s)); s++)
		if (*s == '"')
			quoted = !quoted;
		else
			str_addn(out, s, 1);
	*p = s;
	return true;
}

static struct ssh_config_line *add_line(struct ssh_config *c, char *key, char *where)
{
	c->v = xreallocarray(c->v, c->n + 1, sizeof *c->v);
	c->v[c->n] = (struct ssh_config_line){ .key = key, .where = where };
	return &c->v[c->n++];
}

static char *expand(const struct ssh_config *c, const char *path, const char *dir)
{
	if (!strncmp(path, "~/", 2))
		return xasprintf("%s%s", c->home, path + 1);
	if (!strncmp(path, "%d/", 3))
		return xasprintf("%s%s", c->home, path + 2);
	if (*path == '/')
		return xstrdup(path);
	return xasprintf("%s/%s", dir, path);
}

/* A Host line ends with its file: an empty key closes what "include" opened. */
static void include(struct ssh_config *c, const char *rest, const char *dir, int depth)
{
	struct str word;

	while (next_word(&rest, &word)) {
		char *pattern = expand(c, str_text(&word), dir);
		glob_t found = { 0 };

		if (!glob(pattern, 0, NULL, &found))
			for (size_t i = 0; i < found.gl_pathc; i++) {
				add_line(c, xstrdup("include"), xstrdup(pattern));
				read_file(c, found.gl_pathv[i], dir, depth + 1);
				add_line(c, xstrdup(""), xstrdup(pattern));
			}
		globfree(&found);
		free(pattern);
		str_free(&word);
	}
}

/* "Keyword value" and "Keyword=value" are the same. */
static void read_line(struct ssh_config *c, const char *text, const char *path,
		      int number, const char *dir, int depth)
{
	const char *s = text + strspn(text, " \t");
	const size_t n = strcspn(s, " \t\r\n=\"");
	struct ssh_config_line *line;
	struct str word;
	char *key;

	if (!n || *s == '#')
		return;
	key = xstrndup(s, n);
	for (char *p = key; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	s += n;
	s += strspn(s, " \t");
	s += *s == '=';
	if (!strcmp(key, "include")) {
		free(key);
		include(c, s, dir, depth);
		return;
	}
	line = add_line(c, key, xasprintf("%s:%d", path, number));
	while (next_word(&s, &word))
		strv_take(&line->args, str_take(&word));
}

/* ssh ends if others could have written its configuration.  Of the system's file alone
 * it does not ask. */
static void check_owner(struct ssh_config *c, int fd, const char *path)
{
	struct stat st;

	if (!c->refused && !fstat(fd, &st) &&
	    ((st.st_uid && st.st_uid != getuid()) || (st.st_mode & 022)))
		c->refused = xstrdup(path);
}

static void read_file(struct ssh_config *c, const char *path, const char *dir,
		      int depth)
{
	const bool sane = depth < DEPTH_MAX && c->files++ < FILES_MAX;
	FILE *f = sane ? fopen(path, "re") : NULL;
	char *text = NULL;
	size_t cap = 0;

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
	char *user; /* as far as it is known at this line, as is f->host */
	bool agent;
	bool active, maybe; /* maybe: a command decides, and only ssh may run it */
	const char
		*odd; /* the Match word of this block that libssh misreads, or NULL */
	struct strv seen; /* keys that have their value: the first value counts */
	struct strv identity;
	const struct strv *user_known, *global_known;
	struct ssh_config_facts *f;
};

/* Whether a Match line holds, as far as that is known without running a command. */
static bool match_match_line(struct walk *w, const struct strv *args)
{
	const struct passwd *pw;
	bool hit = true;

	w->odd = NULL;
	w->maybe = false;
	for (size_t i = 0; hit && i < args->n; i++) {
		const bool negated = *args->v[i] == '!';
		const char *word = args->v[i] + negated, *arg;

		if (!strcasecmp(word, "all") || !strcasecmp(word, "final")) {
			hit = !negated; /* "final" blocks come last anyway */
			continue;
		}
		if (!strcasecmp(word, "canonical")) {
			w->odd = "Match canonical"; /* libssh obeys it, ssh does not */
			continue;
		}
		arg = ++i < args->n ? args->v[i] : "";
		if (!strcasecmp(word, "host")) {
			hit = pattern_list(arg, w->f->host, true);
		} else if (!strcasecmp(word, "originalhost")) {
			w->odd = "Match originalhost";
			hit = pattern_list(arg, w->name, true);
		} else if (!strcasecmp(word, "user")) {
			hit = w->user && pattern_list(arg, w->user, false);
		} else if (!strcasecmp(word, "localuser")) {
			pw = getpwuid(getuid());
			hit = pw && pattern_list(arg, pw->pw_name, false);
		} else if (!strcasecmp(word, "exec")) {
			w->maybe = true;
		} else {
			w->odd = "a Match word that only ssh knows";
		}
		hit = hit != negated;
	}
	return hit;
}

/* ---- what the lines mean ---- */

enum test {
	IF_SET,
	IF_YES,
	IF_NO,
	IF_MINUS,
	IF_NOT_PUBLICKEY,
	IF_NOT_STRICT, /* no value that ssh takes */
	IF_AGENT
};

/* What libssh ignores and this program cannot do for it. */
static const struct {
	const char *key;
	enum test test;
} beyond[] = {
	{ "bindaddress", IF_SET },
	{ "bindinterface", IF_SET },
	{ "canonicalizehostname", IF_YES },
	{ "certificatefile", IF_SET },
	{ "checkhostip", IF_YES },
	{ "hostbasedauthentication", IF_YES },
	{ "hostkeyalias", IF_SET },
	{ "hostkeyalgorithms", IF_MINUS },
	{ "identitiesonly", IF_AGENT }, /* without an agent it changes nothing */
	{ "knownhostscommand", IF_SET },
	{ "nohostauthenticationforlocalhost", IF_YES },
	{ "pkcs11provider", IF_SET },
	{ "preferredauthentications", IF_NOT_PUBLICKEY },
	{ "proxyusefdpass", IF_YES },
	{ "pubkeyauthentication", IF_NO },
	{ "requiredrsasize", IF_SET },
	{ "revokedhostkeys", IF_SET },
	{ "stricthostkeychecking", IF_NOT_STRICT },
	{ "updatehostkeys", IF_YES },
	{ "verifyhostkeydns", IF_YES },
};

static bool is_yes(const char *v)
{
	return !strcasecmp(v, "yes") || !strcasecmp(v, "true") ||
	       !strcasecmp(v, "always");
}

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

static bool is_beyond(const char *key, const char *v, bool agent)
{
	for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
		if (strcmp(key, beyond[i].key))
			continue;
		switch (beyond[i].test) {
		case IF_SET:
			return strcasecmp(v, "none") != 0;
		case IF_YES:
			return is_yes(v);
		case IF_NO:
			return !strcasecmp(v, "no") || !strcasecmp(v, "false");
		case IF_MINUS:
			return *v == '-';
		case IF_NOT_STRICT:
			return read_strict(v) < 0;
		case IF_NOT_PUBLICKEY:
			return strncmp(v, "publickey", 9) != 0;
		case IF_AGENT:
			return agent && is_yes(v);
		}
	}
	return false;
}

static void say_why(struct walk *w, const char *what, const char *where)
{
	if (!w->f->why.len)
		str_addf(&w->f->why, "%s (%s)", what, where);
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

/* Apply a line that holds.  The first value of a key counts. */
static void read_setting(struct walk *w, const struct ssh_config_line *l)
{
	const char *v = l->args.n ? l->args.v[0] : "", *h;
	char *host;
	long port;

	if (w->maybe) { /* the command decides */
		say_why(w, "Match exec", l->where);
		return;
	}
	if (!strcmp(l->key, "identityfile")) /* each one is tried */
		strv_add(&w->identity, v);
	for (size_t i = 0; i < w->seen.n; i++)
		if (!strcmp(w->seen.v[i], l->key))
			return;
	if (w->odd)
		say_why(w, w->odd, l->where);
	if (is_beyond(l->key, v, w->agent))
		say_why(w, l->key, l->where);
	strv_add(&w->seen, l->key);
	if (!strcmp(l->key, "hostname")) {
		h = strstr(v, "%h");
		host = h ? xasprintf("%.*s%s%s", (int)(h - v), v, w->f->host, h + 2)
			 : xstrdup(v);
		free(w->f->host);
		w->f->host = host;
	} else if (!strcmp(l->key, "port") && !w->f->port) {
		w->f->port = str_to_long(&port, v, 1, 65535, NULL) ? 22 : (int)port;
	} else if (!strcmp(l->key, "user") && !w->user) {
		w->user = xstrdup(v);
	} else if (!strcmp(l->key, "addressfamily")) {
		w->f->family = !strcasecmp(v, "inet")    ? AF_INET
			       : !strcasecmp(v, "inet6") ? AF_INET6
							 : AF_UNSPEC;
	} else {
		read_known_setting(w, l, v);
	}
}

/* Whether a Host line is about the name as typed.  A comma does not part patterns. */
static bool match_host_line(const struct walk *w, const struct strv *args)
{
	bool hit = false;

	for (size_t i = 0; i < args->n; i++) {
		const bool negated = *args->v[i] == '!';
		const char *pattern = args->v[i] + negated;

		if (!pattern_match(pattern, strlen(pattern), w->name, false))
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
	const bool active = w->active, maybe = w->maybe;
	const char *odd = w->odd;

	for (; i < w->c->n && *w->c->v[i].key; i++) {
		const struct ssh_config_line *l = &w->c->v[i];

		if (!strcmp(l->key, "include")) {
			i = walk_file(w, i + 1) - 1;
		} else if (!strcmp(l->key, "host")) {
			w->active = active && match_host_line(w, &l->args);
			w->odd = odd;
			w->maybe = maybe;
		} else if (!strcmp(l->key, "match")) {
			w->active = match_match_line(w, &l->args) && active;
		} else if (w->active) {
			read_setting(w, l);
		}
	}
	w->active = active;
	w->maybe = maybe;
	w->odd = odd;
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
		else if (!w->f->why.len && strcasecmp(w->identity.v[i], "none") != 0)
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
	if (c->refused)
		str_addf(&f->why, "a configuration that others may write, '%s'",
			 c->refused);
	for (size_t i = 0; i < c->n;)
		i = walk_file(&w, i);
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
	strv_free(&f->known);
	str_free(&f->why);
	*f = (struct ssh_config_facts){ 0 };
}
