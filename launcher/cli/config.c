#include "launcher/cli/config.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/cli/compat.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* TEXT without the blanks around it; cuts it. */
static char *trim(char *text)
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

/* Whether LINE is YAML's "key:" or "key: value", or begins a document.  horovodrun's
 * keys have no blanks, and "a = b:8" is ours. */
static bool yaml_line(const char *line)
{
	size_t key = strspn(line, "abcdefghijklmnopqrstuvwxyz_-");

	if (!strncmp(line, "---", 3))
		return true;
	return key && line[key] == ':' && (!line[key + 1] || line[key + 1] == ' ');
}

/* The option of horovodrun that stands for KEY under SECTION of its YAML, into NAME. */
static const struct compat *yaml_option(char **name, const char *section,
					const char *key)
{
	const struct compat *f = NULL;

	/* timeline: filename, params: cycle_time_ms, autotune: enabled */
	for (int form = 0; form < 3 && !f; form++) {
		free(*name);
		if (form == 0)
			*name = xasprintf("--%s-%s", section, key);
		else
			*name = xasprintf("--%s", form == 1 ? key : section);
		for (char *p = *name; *p; p++)
			*p = *p == '_' ? '-' : *p;
		f = compat_find(*name);
	}
	return f;
}

/* One line of horovodrun's YAML as the option to use, added to OUT. */
static void yaml_translate(struct str *out, char *section, size_t size, char *line)
{
	bool nested = isspace((unsigned char)*line);
	char *key = trim(line), *value = strchr(key, ':'), *name = NULL;
	const struct compat *f;

	if (!value)
		return;
	*value++ = '\0';
	value = trim(value);
	if (!nested)
		snprintf(section, size, "%s",
			 *value                    ? ""
			 : !strcmp(key, "logging") ? "log"
						   : key);
	if (!*value)
		return;
	f = yaml_option(&name, section, key);
	if (f && f->args)
		str_addf(out, " %s %s", name, value);
	else if (f && !strcasecmp(value, "true"))
		str_addf(out, " %s", name);
	else if (f && !strcasecmp(value, "false"))
		str_addf(out, " --no-%s", name + 2);
	free(name);
}

/* E_CONFIG_YAML with the options that say the same as LINE and the REST of the file. */
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

/* One line without comment and blanks; WHERE is "path:line". */
static int read_line(const struct setting *s, const char *where, char *line,
		     struct err *e)
{
	char *value = strchr(line, '=');
	const char *key;
	struct setting own = *s;
	char *from;
	int rc;

	if (!value)
		return err_set(e, E_CONFIG_LINE, line);
	*value++ = '\0';
	key = trim(line);
	value = trim(value);
	own.option = option_find_key(key);
	if (!own.option)
		return unknown_key(key, e);
	from = xasprintf("%s in %s", own.option->key, where);
	own.typed = own.option->key;
	own.from = from;
	rc = own.option->set(&own, value, e);
	if (rc)
		err_in(e, "%s", own.option->key);
	free(from);
	return rc;
}

int config_read_text(const struct setting *s, const char *path, char *text,
		     struct err *e)
{
	bool first = true;
	char *line;
	int rc = 0;

	for (int number = 1; !rc && (line = strsep(&text, "\n")); number++) {
		char *where = xasprintf("%s:%d", path, number), *bare;

		cut_comment(line);
		bare = trim(line);
		if (*bare && first && yaml_line(bare))
			rc = yaml_refuse(bare, text, e);
		else if (*bare)
			rc = read_line(s, where, bare, e);
		first = first && !*bare;
		if (rc)
			err_in(e, "%s", where);
		free(where);
	}
	return rc;
}

int config_read_file(const struct setting *s, const char *path, bool must,
		     struct err *e)
{
	FILE *f = fopen(path, "re");
	struct str text = { 0 };
	char block[4096];
	size_t n;
	int rc = 0;

	if (!f && !must && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
		return 0;
	if (!f)
		return err_set(e, E_CONFIG_READ, path, strerror(errno));
	errno = 0;
	while (text.len < CONFIG_BYTES_MAX && (n = fread(block, 1, sizeof block, f)))
		str_addn(&text, block, n);
	if (ferror(f))
		rc = err_set(e, E_CONFIG_READ, path, strerror(errno));
	else if (text.len >= CONFIG_BYTES_MAX)
		rc = err_set(e, E_CONFIG_READ, path, "larger than 1 MiB");
	fclose(f);
	if (!rc && text.len && memchr(text.s, '\0', text.len))
		rc = err_set(e, E_CONFIG_READ, path, "it isn't text");
	if (!rc && text.len)
		rc = config_read_text(s, path, text.s, e);
	str_free(&text);
	return rc;
}
