#include "launcher/transport/ssh_config.h"

#include <ctype.h>
#include <fnmatch.h>
#include <glob.h>
#include <pwd.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

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

static void read_file(struct ssh_config *c, const char *path, const char *dir,
		      int depth)
{
	const bool sane = depth < DEPTH_MAX && c->files++ < FILES_MAX;
	FILE *f = sane ? fopen(path, "re") : NULL;
	char *text = NULL;
	size_t cap = 0;

	if (!f)
		return;
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

/* Match TEXT with the patterns "a,b*,!c".  1: hit; 0: none; -1: a negated one, which
 * wins. */
static int match_list(const char *list, const char *text)
{
	char *copy = xstrdup(list), *rest = copy, *one;
	int hit = 0;

	while (hit >= 0 && (one = strsep(&rest, ",")))
		if (*one == '!' && !fnmatch(one + 1, text, FNM_CASEFOLD))
			hit = -1;
		else if (*one != '!' && !fnmatch(one, text, FNM_CASEFOLD))
			hit = 1;
	free(copy);
	return hit;
}

/* One walk over the lines for one host. */
struct walk {
	struct ssh_config *c;
	const char *name;
	char *user, *host; /* as far as they are known at this line */
	bool agent;
	bool active, maybe; /* maybe: a command decides, and only ssh may run it */
	const char
		*odd; /* the Match word of this block that libssh misreads, or NULL */
	struct strv seen; /* keys that have their value: the first value counts */
	char *user_known, *global_known;
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
			hit = match_list(arg, w->host) > 0;
		} else if (!strcasecmp(word, "originalhost")) {
			w->odd = "Match originalhost";
			hit = match_list(arg, w->name) > 0;
		} else if (!strcasecmp(word, "user")) {
			hit = w->user && match_list(arg, w->user) > 0;
		} else if (!strcasecmp(word, "localuser")) {
			pw = getpwuid(getuid());
			hit = pw && match_list(arg, pw->pw_name) > 0;
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

enum test { IF_SET, IF_YES, IF_NO, IF_NOT_PUBLICKEY, IF_AGENT };

/* What libssh ignores and this program cannot do for it. */
static const struct {
	const char *key;
	enum test test;
} beyond[] = {
	{ "bindaddress", IF_SET },
	{ "bindinterface", IF_SET },
	{ "canonicalizehostname", IF_YES },
	{ "certificatefile", IF_SET },
	{ "hostbasedauthentication", IF_YES },
	{ "hostkeyalias", IF_SET },
	{ "identitiesonly", IF_AGENT }, /* without an agent it changes nothing */
	{ "knownhostscommand", IF_SET },
	{ "pkcs11provider", IF_SET },
	{ "preferredauthentications", IF_NOT_PUBLICKEY },
	{ "proxyusefdpass", IF_YES },
	{ "pubkeyauthentication", IF_NO },
	{ "revokedhostkeys", IF_SET },
	{ "verifyhostkeydns", IF_YES },
};

static bool is_yes(const char *v)
{
	return !strcasecmp(v, "yes") || !strcasecmp(v, "true") ||
	       !strcasecmp(v, "always");
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
		case IF_NOT_PUBLICKEY:
			return strncmp(v, "publickey", 9) != 0;
		case IF_AGENT:
			return agent && is_yes(v);
		}
	}
	return false;
}

/* Apply a line that holds.  The first value of a key counts. */
static void read_setting(struct walk *w, const struct ssh_config_line *l)
{
	const char *v = l->args.n ? l->args.v[0] : "", *h;
	char *host;

	for (size_t i = 0; i < w->seen.n; i++)
		if (!strcmp(w->seen.v[i], l->key))
			return;
	if (w->odd && !w->f->why.len)
		str_addf(&w->f->why, "%s (%s)", w->odd, l->where);
	if (is_beyond(l->key, v, w->agent) && !w->f->why.len)
		str_addf(&w->f->why, "%s (%s)", l->key, l->where);
	if (w->maybe) /* a command decides: only the reason for ssh counts */
		return;
	strv_add(&w->seen, l->key);
	if (!strcmp(l->key, "hostname")) {
		h = strstr(v, "%h");
		host = h ? xasprintf("%.*s%s%s", (int)(h - v), v, w->host, h + 2)
			 : xstrdup(v);
		free(w->host);
		w->host = host;
	} else if (!strcmp(l->key, "user") && !w->user) {
		w->user = xstrdup(v);
	} else if (!strcmp(l->key, "addressfamily")) {
		w->f->family = !strcasecmp(v, "inet")    ? AF_INET
			       : !strcasecmp(v, "inet6") ? AF_INET6
							 : AF_UNSPEC;
	} else if (!strcmp(l->key, "stricthostkeychecking")) {
		w->f->strict = !strcasecmp(v, "accept-new") ? STRICT_ACCEPT_NEW
			       : !strcasecmp(v, "no") || !strcasecmp(v, "off")
				       ? STRICT_NO
				       : STRICT_YES;
	} else if (!strcmp(l->key, "userknownhostsfile")) {
		w->user_known = xstrdup(v);
	} else if (!strcmp(l->key, "globalknownhostsfile")) {
		w->global_known = xstrdup(v);
	}
}

/* Lines I..end of this file; returns the index after its end. */
static size_t walk_file(struct walk *w, size_t i)
{
	const bool active = w->active, maybe = w->maybe;
	const char *odd = w->odd;

	for (; i < w->c->n && *w->c->v[i].key; i++) {
		const struct ssh_config_line *l = &w->c->v[i];
		int hit = 0;

		if (!strcmp(l->key, "include")) {
			i = walk_file(w, i + 1) - 1;
		} else if (!strcmp(l->key, "host")) {
			for (size_t k = 0; hit >= 0 && k < l->args.n; k++) {
				int one = match_list(l->args.v[k], w->name);

				hit = one ? one : hit; /* a negated hit ends it */
			}
			w->active = active && hit > 0;
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

/* ---- known_hosts: lines that libssh ignores ---- */

/* A line "@revoked patterns key" or "@cert-authority patterns key" about HOST. */
static bool is_marked(const char *line, const char *host)
{
	struct str mark, patterns;
	bool hit = false;

	if (*line != '@' || !next_word(&line, &mark))
		return false;
	if (next_word(&line, &patterns))
		hit = *str_text(&patterns) == '|' || /* hashed: may be any host */
		      strchr(str_text(&patterns), '[') ||
		      match_list(str_text(&patterns), host) > 0;
	str_free(&mark);
	str_free(&patterns);
	return hit;
}

/* Keep the '@' lines of PATH.  Files of many thousand lines are read once, not once for
 * each host. */
static void read_known(struct ssh_config *c, const char *path)
{
	char *text = NULL;
	size_t cap = 0;
	FILE *f;

	for (size_t i = 0; i < c->known.n; i++)
		if (!strcmp(c->known.v[i], path))
			return;
	strv_add(&c->known, path);
	f = fopen(path, "re");
	while (f && getline(&text, &cap, f) >= 0)
		if (*text == '@')
			strv_take(&c->marks, xasprintf("%s: %s", path, text));
	free(text);
	if (f)
		fclose(f);
}

/* Look for marked lines about the host in the files of LIST. */
static void check_known(struct walk *w, const char *list)
{
	struct str word;

	while (next_word(&list, &word)) {
		char *path = expand(w->c, str_text(&word), w->c->home);
		const size_t n = strlen(path);

		read_known(w->c, path);
		for (size_t i = 0; i < w->c->marks.n && !w->f->why.len; i++) {
			const char *mark = w->c->marks.v[i];

			if (!strncmp(mark, path, n) && !strncmp(mark + n, ": @", 3) &&
			    is_marked(mark + n + 2, w->host))
				str_addf(&w->f->why, "%.*s in %s",
					 (int)strcspn(mark + n + 2, " \t"),
					 mark + n + 2, path);
		}
		free(path);
		str_free(&word);
	}
}

void ssh_config_ask(struct ssh_config *c, const char *name, const char *user,
		    bool agent, struct ssh_config_facts *f)
{
	struct walk w = {
		.c = c, .name = name, .agent = agent, .active = true, .f = f
	};

	*f = (struct ssh_config_facts){ .strict = STRICT_YES, .family = AF_UNSPEC };
	w.user = user ? xstrdup(user) : NULL;
	w.host = xstrdup(name);
	for (size_t i = 0; i < c->n;)
		i = walk_file(&w, i);
	if (!w.global_known)
		w.global_known = xasprintf("%s/ssh_known_hosts %s/ssh_known_hosts2",
					   c->etc, c->etc);
	check_known(&w, w.user_known ? w.user_known
				     : "~/.ssh/known_hosts ~/.ssh/known_hosts2");
	check_known(&w, w.global_known);
	free(w.user);
	free(w.host);
	free(w.user_known);
	free(w.global_known);
	strv_free(&w.seen);
}
