#include "launcher/transport/ssh_config.h"

#include <ctype.h>
#include <pwd.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/transport/known_hosts.h"
#include "launcher/transport/pattern.h"

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
		w->f->strict = ssh_config_strict(v) < 0
				       ? STRICT_YES
				       : (enum ssh_strict)ssh_config_strict(v);
	else if (!strcmp(l->key, "userknownhostsfile"))
		w->user_known = &l->args;
	else if (!strcmp(l->key, "globalknownhostsfile"))
		w->global_known = &l->args;
	else if (!strcmp(l->key, "hashknownhosts"))
		w->f->hash_names = ssh_config_yes(v);
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
	if (ssh_config_beyond(l->key, v, w->agent))
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
		w->f->family =
			ssh_config_family(v) < 0 ? AF_UNSPEC : ssh_config_family(v);
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
