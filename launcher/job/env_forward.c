#include "launcher/job/env_forward.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>

#include "common/taskvars.h"
#include "launcher/file.h"

enum { ENV_FILE_MAX_BYTES = 1 << 20 };

enum travel {
	TRAVELS,
	STAYS,      /* with this host */
	STAYS_ALONE /* unless in the job of a resource manager */
};

/* For what is no other launcher's (common/taskvars.h): the first pattern that matches
 * decides; a name that none matches travels. */
static const struct {
	const char *pattern;
	enum travel travel;
} rules[] = {
	/* What a resource manager says of the job is of use to all ranks. */
	{ "SLURM_JOB_*", TRAVELS },
	{ "SLURM_JOBID", TRAVELS },
	{ "SLURM_ARRAY_*", TRAVELS },
	{ "SLURM_SUBMIT_*", TRAVELS },
	{ "SLURM_TMPDIR", TRAVELS },
	{ "SLURM_CLUSTER_NAME", TRAVELS },
	{ "SLURM_CONF", TRAVELS },
	{ "SLURM_RESTART_COUNT", TRAVELS },

	/* The shape of an allocation, which these hosts need not be. */
	{ "SLURM_*", STAYS_ALONE },

	{ "BERTH_JOB", STAYS },
	{ "BERTH_AGENT", STAYS },

	/* The launch host's GPUs are not those of another host; a filter set there
	   counts. */
	{ "CUDA_VISIBLE_DEVICES", STAYS },
	{ "NVIDIA_VISIBLE_DEVICES", STAYS },
	{ "ROCR_VISIBLE_DEVICES", STAYS },
	{ "HIP_VISIBLE_DEVICES", STAYS },
	{ "GPU_DEVICE_ORDINAL", STAYS },
	{ "ZE_AFFINITY_MASK", STAYS },

	/* Who and where: each host has its own. */
	{ "HOME", STAYS },
	{ "USER", STAYS },
	{ "LOGNAME", STAYS },
	{ "USERNAME", STAYS },
	{ "SHELL", STAYS },
	{ "MAIL", STAYS },
	{ "HOSTNAME", STAYS },
	{ "HOST", STAYS },
	{ "PWD", STAYS },
	{ "OLDPWD", STAYS },
	{ "SHLVL", STAYS },
	{ "_", STAYS },
	{ "BASH_FUNC_*", STAYS },
	{ "LS_COLORS", STAYS },

	/* The login session and the desktop; XDG_CACHE_HOME and its like are the user's
	 * choice of a folder, as TMPDIR is. */
	{ "XDG_*_HOME", TRAVELS },
	{ "XDG_*", STAYS },
	{ "SSH_*", STAYS },
	{ "TMUX*", STAYS },
	{ "STY", STAYS },
	{ "WINDOWID", STAYS },
	{ "DISPLAY", STAYS },
	{ "WAYLAND_DISPLAY", STAYS },
	{ "XAUTHORITY", STAYS },
	{ "DBUS_*", STAYS },
	{ "SESSION_MANAGER", STAYS },
	{ "DESKTOP_SESSION", STAYS },
	{ "GPG_AGENT_INFO", STAYS },
	{ "GPG_TTY", STAYS },
	{ "KRB5CCNAME", STAYS },

	/* systemd speaks to one process through these. */
	{ "INVOCATION_ID", STAYS },
	{ "JOURNAL_STREAM", STAYS },
	{ "NOTIFY_SOCKET", STAYS },
	{ "WATCHDOG_*", STAYS },
	{ "LISTEN_*", STAYS },
};

static bool travels(const char *name, bool managed)
{
	if (taskvars_has(name, strlen(name)))
		return false;
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (*rules[i].pattern == *name && !fnmatch(rules[i].pattern, name, 0))
			return rules[i].travel == TRAVELS ||
			       (rules[i].travel == STAYS_ALONE && managed);
	return true;
}

static bool is_option(const char *name, const char *const *options, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(options[i], name))
			return true;
	return false;
}

void env_forward(struct strv *out, char *const *own, bool managed,
		 const char *const *option_names, size_t noptions)
{
	for (; *own; own++) {
		size_t n = strcspn(*own, "=");
		char *name;

		if (n == 0 || !(*own)[n])
			continue; /* no shell can have made it */
		name = xstrndup(*own, n);
		if (travels(name, managed) && !is_option(name, option_names, noptions))
			strv_add(out, *own);
		free(name);
	}
}

static void export_prefix(struct strv *out, const char *prefix, size_t n,
			  const struct strv *own)
{
	for (size_t i = 0; i < own->n; i++) {
		char *copy, *value;

		if (strncmp(own->v[i], prefix, n) || !strchr(own->v[i], '='))
			continue;
		copy = xstrdup(own->v[i]);
		value = strchr(copy, '=');
		*value++ = '\0';
		strv_env_set(out, copy, value);
		free(copy);
	}
}

static int export_one(struct strv *out, const char *word, const struct strv *own,
		      struct err *e)
{
	size_t n = strcspn(word, "=");
	const char *value;

	if (n == 0)
		return err_set(e, E_EXPORT_NAME, word);
	if (word[n]) {
		char *name = xstrndup(word, n);

		strv_env_set(out, name, word + n + 1);
		free(name);
		return 0;
	}
	if (word[n - 1] == '*') {
		export_prefix(out, word, n - 1, own);
		return 0;
	}
	value = strv_env_get(own, word);
	if (!value) {
		err_set(e, E_EXPORT_UNSET, word);
		return err_hint(e, "give it a value: -x %s=VALUE", word);
	}
	strv_env_set(out, word, value);
	return 0;
}

int env_forward_export(struct strv *out, const struct strv *x,
		       const struct strv *own_env, struct err *e)
{
	for (size_t i = 0; i < x->n; i++)
		if (export_one(out, x->v[i], own_env, e))
			return -1;
	return 0;
}

/* The part of a value between QUOTE and its like, P being behind the first.  Returns
 * what follows the second, or NULL. */
static const char *read_quoted(struct str *out, const char *p, char quote, bool *dollar)
{
	for (; *p && *p != quote; p++) {
		if (quote == '"' && (*p == '$' || *p == '`'))
			*dollar = true;
		if (quote == '"' && *p == '\\' && p[1] && strchr("\"\\$`", p[1]))
			p++;
		str_addn(out, p, 1);
	}
	return *p ? p + 1 : NULL;
}

/* The value at P, to the end of the line, into OUT.  NAME is for messages. */
static int read_value(struct str *out, const char *p, const char *name, struct err *e)
{
	bool dollar = false;
	size_t keep = 0; /* length up to the last character that is no trailing blank */

	while (*p && !(*p == '#' && (out->len == 0 || isblank((unsigned char)p[-1])))) {
		char c = *p++;
		bool escaped = c == '\\' && *p;

		if (c == '\'' || c == '"') {
			p = read_quoted(out, p, c, &dollar);
			if (!p)
				return err_set(e, E_ENV_FILE_QUOTE, c, name);
			keep = out->len;
			continue;
		}
		dollar = dollar || c == '$' || c == '`';
		if (escaped)
			c = *p++;
		str_addn(out, &c, 1);
		if (!isblank((unsigned char)c) || escaped)
			keep = out->len;
	}
	str_add(out, "");
	out->s[keep] = '\0';
	out->len = keep;
	return dollar ? err_set(e, E_ENV_FILE_DOLLAR, name) : 0;
}

static bool is_name(const char *name)
{
	size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
				"0123456789");

	return *name && !name[n] && !isdigit((unsigned char)*name);
}

static int read_line(struct strv *out, char *line, struct err *e)
{
	struct str value = { 0 };
	size_t n = strlen(line);
	char *equals;
	int rc;

	if (n > 0 && line[n - 1] == '\r')
		line[n - 1] = '\0';
	line += strspn(line, " \t");
	if (!*line || *line == '#')
		return 0;
	if (!strncmp(line, "export", 6) && isblank((unsigned char)line[6]))
		line += 6 + strspn(line + 6, " \t");
	equals = strchr(line, '=');
	if (equals)
		*equals = '\0';
	/* The line itself may hold a secret: it is not shown. */
	if (!equals || !is_name(line))
		return err_set(e, E_ENV_FILE_LINE);
	n = strspn(equals + 1, " \t");
	if (n && equals[1 + n] && equals[1 + n] != '#')
		return err_set(e, E_ENV_FILE_LINE);
	rc = read_value(&value, equals + 1, line, e);
	if (!rc)
		strv_env_set(out, line, str_text(&value));
	str_free(&value);
	return rc;
}

int env_forward_file(struct strv *out, const char *path, struct err *e)
{
	struct str text = { 0 };
	char *rest, *line;
	size_t number = 0;
	int rc = 0;

	if (file_read(&text, path, ENV_FILE_MAX_BYTES + 1, false))
		rc = err_set(e, E_ENV_FILE_READ, path, strerror(errno));
	else if (text.len > ENV_FILE_MAX_BYTES)
		rc = err_set(e, E_ENV_FILE_READ, path, strerror(EFBIG));
	else if (text.len && memchr(text.s, '\0', text.len))
		rc = err_set(e, E_ENV_FILE_READ, path, "not a text file");
	rest = text.s;
	while (!rc && (line = strsep(&rest, "\n"))) {
		number++;
		if (read_line(out, line, e))
			rc = err_in(e, "%s:%zu", path, number);
	}
	str_free(&text);
	return rc;
}

bool env_forward_is_secret(const char *name)
{
	static const char *const words[] = { "TOKEN", "SECRET", "KEY", "PASS", "CRED" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcasestr(name, words[i]))
			return true;
	return false;
}

/* "scheme://user:password@host", as in https_proxy and the URLs of data bases. */
static bool holds_password(const char *value)
{
	const char *p = strstr(value, "://");
	size_t n = p ? strcspn(p + 3, "/@ ") : 0;

	return p && p[3 + n] == '@' && memchr(p + 3, ':', n);
}

void env_forward_redact(struct str *s, const char *name, const char *value)
{
	if (env_forward_is_secret(name) || holds_password(value))
		str_addf(s, "<redacted, %zu bytes>", strlen(value));
	else
		str_add(s, value);
}
