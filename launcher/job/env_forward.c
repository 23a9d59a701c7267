#include "launcher/job/env_forward.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>

#include "common/job.h"
#include "common/taskvars.h"
#include "common/file.h"

enum { ENV_FILE_MAX_BYTES = 1 << 20 };

enum travel {
	TRAVELS,
	STAYS,      /* on this host */
	STAYS_ALONE /* it travels in the job of a resource manager */
};

/* The first pattern that matches decides.  A name that does not match travels.  The
 * variables of other launchers are in common/taskvars.h. */
static const struct {
	const char *pattern;
	enum travel travel;
} rules[] = {
	/* A resource manager's words about the job are useful to all ranks. */
	{ "SLURM_JOB_*", TRAVELS },
	{ "SLURM_JOBID", TRAVELS },
	{ "SLURM_ARRAY_*", TRAVELS },
	{ "SLURM_SUBMIT_*", TRAVELS },
	{ "SLURM_TMPDIR", TRAVELS },
	{ "SLURM_CLUSTER_NAME", TRAVELS },
	{ "SLURM_CONF", TRAVELS },
	{ "SLURM_RESTART_COUNT", TRAVELS },

	/* The shape of an allocation, which may have other hosts. */
	{ "SLURM_*", STAYS_ALONE },

	{ "BERTH_JOB", STAYS },
	{ "BERTH_AGENT", STAYS },

	/* GPUs of this host.  Each host has its own, and its own filter. */
	{ "CUDA_VISIBLE_DEVICES", STAYS },
	{ "NVIDIA_VISIBLE_DEVICES", STAYS },
	{ "ROCR_VISIBLE_DEVICES", STAYS },
	{ "HIP_VISIBLE_DEVICES", STAYS },
	{ "GPU_DEVICE_ORDINAL", STAYS },
	{ "ZE_AFFINITY_MASK", STAYS },

	/* The user and the place: each host has its own. */
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

	/* The login session and the desktop.  XDG_CACHE_HOME and similar names are the
	 * user's choice of a directory, as TMPDIR is. */
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

	/* For the one process that systemd started. */
	{ "INVOCATION_ID", STAYS },
	{ "JOURNAL_STREAM", STAYS },
	{ "NOTIFY_SOCKET", STAYS },
	{ "WATCHDOG_*", STAYS },
	{ "LISTEN_*", STAYS },
};

void env_forward(struct strv *out, char *const *own, bool managed,
		 const char *const *option_names, size_t noptions)
{
	for (; *own; own++) {
		size_t n = strcspn(*own, "="), i = 0;
		enum travel travel = TRAVELS;
		char *name;

		if (n == 0 || !(*own)[n])
			continue; /* no shell can have made it */
		name = xstrndup(*own, n);
		while (i < noptions && strcmp(option_names[i], name))
			i++;
		if (i < noptions || taskvars_has(name, n))
			travel = STAYS;
		for (i = 0; travel == TRAVELS && i < sizeof rules / sizeof *rules; i++)
			if (*rules[i].pattern == *name &&
			    !fnmatch(rules[i].pattern, name, 0)) {
				travel = rules[i].travel;
				break;
			}
		if (travel == TRAVELS || (travel == STAYS_ALONE && managed))
			strv_add(out, *own);
		free(name);
	}
}

/* Set in OUT each variable of OWN whose name begins with the N bytes PREFIX. */
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

int env_forward_export(struct strv *out, const struct strv *x,
		       const struct strv *own_env, struct err *e)
{
	for (size_t i = 0; i < x->n; i++) {
		const char *word = x->v[i], *value = strchr(word, '=');
		size_t n = strcspn(word, "=");
		char *name;

		if (n == 0) {
			struct str shown = { 0 };

			str_add_word(&shown, word, true);
			err_set(e, E_EXPORT_NAME, str_text(&shown));
			str_free(&shown);
			return -1;
		}
		if (!value && word[n - 1] == '*') {
			export_prefix(out, word, n - 1, own_env);
			continue;
		}
		value = value ? value + 1 : strv_env_get(own_env, word);
		if (!value) /* the user was warned when the options were read */
			continue;
		name = xstrndup(word, n);
		strv_env_set(out, name, value);
		free(name);
	}
	return 0;
}

/* Take the variable NAME out of L. */
static void remove_name(struct strv *l, const char *name)
{
	const size_t n = strlen(name);
	size_t kept = 0;

	for (size_t i = 0; i < l->n; i++)
		if (!strncmp(l->v[i], name, n) && l->v[i][n] == '=')
			free(l->v[i]);
		else
			l->v[kept++] = l->v[i];
	if (l->v)
		l->v[kept] = NULL;
	l->n = kept;
}

int env_forward_gpus(char **list, const char **name, struct strv *env, struct err *e)
{
	static const char *const names[] = { "CUDA_VISIBLE_DEVICES",
					     "ROCR_VISIBLE_DEVICES",
					     "HIP_VISIBLE_DEVICES" };

	*list = NULL;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = strv_env_get(env, names[i]);

		if (!value || !*value || *value == '-' || !strncmp(value, "No", 2) ||
		    !strcmp(value, "none"))
			continue;
		if (*list && strcmp(*list, value)) {
			err_set(e, E_EXPORT_GPUS, names[i], value, *name);
			free(*list);
			*list = NULL;
			return -1;
		}
		if (!*list) {
			*list = xstrdup(value);
			*name = names[i];
		}
		remove_name(env, names[i]);
	}
	return 0;
}

/* The value at P, to the end of the line, into OUT.  NAME is for messages. */
static int read_value(struct str *out, const char *p, const char *name, struct err *e)
{
	bool dollar = false;
	size_t keep = 0; /* length without trailing blanks */

	while (*p && !(*p == '#' && (out->len == 0 || isblank((unsigned char)p[-1])))) {
		char c = *p++;
		bool escaped = c == '\\' && *p;

		if (c == '\'' || c == '"') {
			for (; *p && *p != c; p++) {
				if (c == '"' && (*p == '$' || *p == '`'))
					dollar = true;
				if (c == '"' && *p == '\\' && p[1] &&
				    strchr("\"\\$`", p[1]))
					p++;
				str_addn(out, p, 1);
			}
			if (!*p++)
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

static int forward_read_line(struct strv *out, char *line, struct err *e)
{
	static const char name_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "abcdefghijklmnopqrstuvwxyz_0123456789";
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
	/* The line may hold a secret: no message shows it. */
	if (!equals || !*line || line[strspn(line, name_chars)] ||
	    isdigit((unsigned char)*line))
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
		if (forward_read_line(out, line, e))
			rc = err_in(e, "%s:%zu", path, number);
	}
	str_free(&text);
	return rc;
}

int env_forward_asked(struct strv *out, const struct asked_env *x,
		      const struct strv *own_env, struct err *e)
{
	return env_forward_export(out, &x->forward, own_env, e) ||
			       (x->file && env_forward_file(out, x->file, e)) ||
			       env_forward_export(out, &x->export, own_env, e)
		       ? -1
		       : 0;
}
