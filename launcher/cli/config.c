#include "launcher/cli/config.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/cli/compat.h"
#include "common/file.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* TEXT without the spaces around it; cuts TEXT. */
static char *config_trim(char *text)
{
	char *end;

	text += strspn(text, " \t\r");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r", end[-1]))
		*--end = '\0';
	return text;
}

static void cut_comment(char *line)
{
	for (char *p = line; (p = strchr(p, '#')); p++) {
		if (p > line && !isspace((unsigned char)p[-1]))
			continue;
		*p = '\0';
		return;
	}
}

/* One line of horovodrun's YAML as the option to use, added to OUT. */
static void yaml_translate(struct str *out, char *section, size_t size, char *line)
{
	bool nested = isspace((unsigned char)*line);
	char *key = config_trim(line), *value = strchr(key, ':'), *name = NULL;
	const struct compat *c = NULL;

	if (!value)
		return;
	*value++ = '\0';
	value = config_trim(value);
	if (!nested)
		snprintf(section, size, "%s",
			 *value                    ? ""
			 : !strcmp(key, "logging") ? "log"
						   : key);
	/* timeline: filename, params: cycle_time_ms, autotune: enabled */
	for (int form = 0; *value && form < 3 && !c; form++) {
		free(name);
		if (form == 0)
			name = xasprintf("--%s-%s", section, key);
		else
			name = xasprintf("--%s", form == 1 ? key : section);
		for (char *p = name; *p; p++)
			*p = *p == '_' ? '-' : *p;
		c = compat_find(name);
	}
	if (c && c->args)
		str_addf(out, " %s %s", name, value);
	else if (c && !strcasecmp(value, "true"))
		str_addf(out, " %s", name);
	else if (c && !strcasecmp(value, "false"))
		str_addf(out, " --no-%s", name + 2);
	free(name);
}

/* E_CONFIG_YAML.  The hint has the options that mean the same as LINE and the REST of
 * the file. */
static int yaml_refuse(char *line, char *rest, struct err *e)
{
	struct str options = { 0 };
	char section[64] = "";

	for (; line; line = strsep(&rest, "\n")) {
		cut_comment(line);
		yaml_translate(&options, section, sizeof section, line);
	}
	err_set(e, E_CONFIG_YAML);
	if (options.len)
		err_hint(e, "leave out --config-file and give the options:%s",
			 options.s);
	str_free(&options);
	return -1;
}

static int unknown_key(const char *key, struct err *e)
{
	const char **keys = xcalloc(option_count, sizeof *keys), *near;
	size_t n = 0;

	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].key)
			keys[n++] = option_table[i].key;
	near = str_nearest(key + strspn(key, "-"), keys, n);
	err_set(e, E_CONFIG_KEY, key);
	if (near)
		err_hint(e, "did you mean '%s'?", near);
	free(keys);
	return -1;
}

/* One line without comment and without spaces around it. */
static int config_read_line(const struct setting *s, const char *path, int number,
			    char *line, struct err *e)
{
	char *value = strchr(line, '='), *from;
	struct setting own = *s;
	const char *key;
	int rc;

	if (!value) {
		struct str shown = { 0 };

		str_add_word(&shown, line, true);
		err_set(e, E_CONFIG_LINE, str_text(&shown));
		str_free(&shown);
		return -1;
	}
	*value++ = '\0';
	key = config_trim(line);
	own.option = option_find_key(key);
	if (!own.option)
		return unknown_key(key, e);
	own.typed = own.option->key;
	own.from = from = xasprintf("%s in %s:%d", own.option->key, path, number);
	rc = own.option->set(&own, config_trim(value), e);
	if (rc)
		err_in(e, "%s", own.option->key);
	free(from);
	return rc;
}

/* Read TEXT, the content of PATH; cuts TEXT. */
static int config_read_text(const struct setting *s, const char *path, char *text,
			    struct err *e)
{
	bool first = true;
	char *line;
	int rc = 0;

	for (int number = 1; !rc && (line = strsep(&text, "\n")); number++) {
		char *bare;
		size_t key;

		cut_comment(line);
		bare = config_trim(line);
		if (!*bare)
			continue;
		/* YAML: "key:", "key: value", or the begin of a document.  The keys
		 * of horovodrun have no spaces, and "a = b:8" is a line of ours. */
		key = strspn(bare, "abcdefghijklmnopqrstuvwxyz_-");
		if (first && (!strncmp(bare, "---", 3) ||
			      (key && bare[key] == ':' &&
			       (!bare[key + 1] || bare[key + 1] == ' '))))
			rc = yaml_refuse(bare, text, e);
		else
			rc = config_read_line(s, path, number, bare, e);
		first = false;
		if (rc)
			err_in(e, "%s:%d", path, number);
	}
	return rc;
}

int config_read_file(const struct setting *s, const char *path, bool must,
		     struct err *e)
{
	struct str text = { 0 };
	int rc = 0;

	if (file_read(&text, path, CONFIG_BYTES_MAX, false)) {
		if (must || (errno != ENOENT && errno != ENOTDIR && errno != EACCES))
			rc = err_set(e, E_CONFIG_READ, path, strerror(errno));
	} else if (text.len >= CONFIG_BYTES_MAX) {
		rc = err_set(e, E_CONFIG_READ, path, "larger than 1 MiB");
	} else if (text.len && memchr(text.s, '\0', text.len)) {
		rc = err_set(e, E_CONFIG_READ, path, "it is not text");
	} else if (text.len) {
		rc = config_read_text(s, path, text.s, e);
	}
	str_free(&text);
	return rc;
}
