#include "launcher/transport/ssh_config_read.h"

#include <ctype.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/transport/ssh_config_value.h"

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

static int read_by_name(const void *name, const void *keyword)
{
	return strcmp(name, ((const struct keyword *)keyword)->name);
}

/* ---- lines ---- */

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
static bool read_next_word(const char **p, struct str *out, const char **odd)
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

static struct ssh_config_line *read_add_line(struct ssh_config *c, char *key,
					     char *where)
{
	c->v = xreallocarray(c->v, c->n + 1, sizeof *c->v);
	c->v[c->n] = (struct ssh_config_line){ .key = key, .where = where };
	return &c->v[c->n++];
}

/* The pattern that PATH of an Include line stands for; NULL if only ssh can say. */
static char *read_expand(const struct ssh_config *c, const char *path, const char *dir)
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
static void read_include(struct ssh_config *c, const struct strv *paths,
			 const char *where, const char *dir, int depth)
{
	for (size_t k = 0; k < paths->n; k++) {
		char *pattern = read_expand(c, paths->v[k], dir);
		glob_t found = { 0 };

		if (!pattern)
			leave_all(c,
				  xasprintf("include '%s' (%s)", paths->v[k], where));
		else if (!glob(pattern, 0, NULL, &found))
			for (size_t i = 0; i < found.gl_pathc; i++) {
				read_add_line(c, xstrdup("include"), xstrdup(pattern));
				read_file(c, found.gl_pathv[i], dir, depth + 1);
				read_add_line(c, xstrdup(""), xstrdup(pattern));
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
		while (read_next_word(&s, &word, &line->odd))
			strv_take(&line->args, str_take(&word));
		return;
	}
	s += strspn(s, " \t\r\n");
	for (n = strlen(s); n && strchr(" \t\r\n\f", s[n - 1]);)
		n--;
	if (n)
		strv_take(&line->args, xstrndup(s, n));
}

/* Judges keywords that end ssh in whichever block they stand, and those that make it
 * read all twice. */
static void judge_line(struct ssh_config *c, const struct ssh_config_line *line,
		       enum words words)
{
	const size_t most = words == TWO ? 2 : words == MANY ? SIZE_MAX : 1;
	const char *v = line->args.n ? line->args.v[0] : "";
	const char *what = NULL;

	if (!line->args.n || line->args.n > most)
		what = "a line with too few words or too many";
	else if (words == FLAG && !line->odd && !ssh_config_yes(v) && !ssh_config_no(v))
		what = line->key;
	if (!strcmp(line->key, "match"))
		for (size_t i = 0; i < line->args.n; i++)
			if (!strcasecmp(line->args.v[i] + (*line->args.v[i] == '!'),
					"final"))
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
	word = bsearch(line.key, keywords, sizeof keywords / sizeof *keywords,
		       sizeof *keywords, read_by_name);
	line.known = word != NULL;
	read_words(&line, s, word ? word->words : MANY);
	if (word)
		judge_line(c, &line, word->words);
	if (!strcmp(line.key, "include") && line.odd)
		leave_all(c, xasprintf("%s (%s)", line.odd, line.where));
	if (!strcmp(line.key, "include"))
		read_include(c, &line.args, line.where, dir, depth);
	if (!n || !strcmp(line.key, "include")) {
		free(line.key);
		free(line.where);
		strv_free(&line.args);
		return;
	}
	*read_add_line(c, NULL, NULL) = line;
}

static void read_file(struct ssh_config *c, const char *path, const char *dir,
		      int depth)
{
	const bool sane = depth < DEPTH_MAX && c->files++ < FILES_MAX;
	FILE *f = sane ? fopen(path, "re") : NULL;
	char *text = NULL;
	size_t cap = 0;
	struct stat st;

	if (!sane)
		leave_all(c, xasprintf("files that include each other, '%s'", path));
	else if (!f && depth)
		leave_all(c, xasprintf("an included file that cannot be read, '%s'",
				       path));
	if (!f)
		return;
	/* ssh ends if others could have written its configuration.  Of the system's
	 * file alone it does not ask. */
	if ((depth || strcmp(dir, c->etc) != 0) && !fstat(fileno(f), &st) &&
	    ((st.st_uid && st.st_uid != getuid()) || (st.st_mode & 022)))
		leave_all(c, xasprintf("a configuration that others may write, '%s'",
				       path));
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
		read_add_line(c, xstrdup("include"), xstrdup(path));
		read_file(c, path, dir[i], 0);
		read_add_line(c, xstrdup(""), xstrdup(path));
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
