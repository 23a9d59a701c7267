#include "launcher/cli/variables.h"

#include <stdbool.h>
#include <string.h>

#include "launcher/cli/option_table.h"
#include "launcher/cli/values.h"

static const char prefix[] = "BERTH_";

enum { PREFIX_BYTES = sizeof prefix - 1 };

/* Whether a user may set what ranks are given by this rule. */
enum { IDENTITY = false, ALWAYS = false, BEFORE = false, DEFAULT = true };

#define VARIABLE(name) { name, true },
#define PARAM(name, ...) { #name, true },
#define IGNORED(name, why) { #name, true },
#define GIVEN(name, readers, rule, value) { name, rule },

static const struct {
	const char *name;
	bool settable;
} table[] = {
#include "launcher/cli/variables.def"
#include "lib/core/params.def"
#include "common/given.def"
};

enum { TABLE_ROWS = sizeof table / sizeof *table };

/* The N bytes at NAME are a name of the tables. */
static bool is_known(const char *name, size_t n)
{
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].env && !strncmp(option_table[i].env, name, n) &&
		    !option_table[i].env[n])
			return true;
	for (size_t i = 0; i < TABLE_ROWS; i++)
		if (!strncmp(table[i].name, name, n) && !table[i].name[n])
			return true;
	return false;
}

/* The name that is nearest to NAME, without the prefix; NULL: none is near.  The prefix
 * would make short names near to each other. */
static const char *variables_nearest(const char *name)
{
	const char **names = xcalloc(option_count + TABLE_ROWS, sizeof *names), *near;
	size_t n = 0;

	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].env)
			names[n++] = option_table[i].env + PREFIX_BYTES;
	for (size_t i = 0; i < TABLE_ROWS; i++)
		if (table[i].settable && !strncmp(table[i].name, prefix, PREFIX_BYTES))
			names[n++] = table[i].name + PREFIX_BYTES;
	near = str_nearest(name + PREFIX_BYTES, names, n);
	free(names);
	return near;
}

void variables_warn(struct strv *notes, char *const *env)
{
	for (; env && *env; env++) {
		const char *near;
		struct err e;
		char *name;
		size_t n;

		if (strncmp(*env, prefix, PREFIX_BYTES) != 0)
			continue;
		n = strcspn(*env, "=");
		if (n == PREFIX_BYTES || !(*env)[n] || !(*env)[n + 1] ||
		    is_known(*env, n))
			continue;
		name = xstrndup(*env, n);
		near = variables_nearest(name);
		if (near) {
			err_set(&e, E_VARIABLE, name);
			err_hint(&e, "did you mean %s%s?", prefix, near);
			value_warn(notes, &e);
		}
		free(name);
	}
}
