#include "agent/pmi/pmi1_line.h"

#include <stdbool.h>
#include <string.h>

static enum pmi1_command command_of(const char *name)
{
	static const char *const names[] = {
		[PMI1_UNKNOWN] = "",
		[PMI1_INIT] = "init",
		[PMI1_GET_MAXES] = "get_maxes",
		[PMI1_GET_APPNUM] = "get_appnum",
		[PMI1_GET_MY_KVSNAME] = "get_my_kvsname",
		[PMI1_GET_UNIVERSE_SIZE] = "get_universe_size",
		[PMI1_PUT] = "put",
		[PMI1_GET] = "get",
		[PMI1_BARRIER_IN] = "barrier_in",
		[PMI1_FINALIZE] = "finalize",
		[PMI1_ABORT] = "abort",
		[PMI1_PUBLISH_NAME] = "publish_name",
		[PMI1_LOOKUP_NAME] = "lookup_name",
		[PMI1_UNPUBLISH_NAME] = "unpublish_name",
		[PMI1_SPAWN] = "spawn",
	};

	for (unsigned i = 1; i < sizeof names / sizeof *names; i++)
		if (!strcmp(name, names[i]))
			return (enum pmi1_command)i;
	return PMI1_UNKNOWN;
}

static bool line_begins(const char *word, const char *with)
{
	return !strncmp(word, with, strlen(with));
}

/* Where WORD ends: some values have spaces. */
static char *line_end_of(char *word)
{
	char *port;

	if (line_begins(word, "value=") || line_begins(word, "port="))
		return word + strlen(word);
	if (!line_begins(word, "service="))
		return word + strcspn(word, " ");
	port = strstr(word, " port=");
	return port ? port : word + strlen(word);
}

struct pmi1_line pmi1_parse(char *line)
{
	struct pmi1_line l = { PMI1_UNKNOWN, "", "", "", "", "" };
	char *word = line + strspn(line, " ");

	while (*word) {
		char *end = line_end_of(word), *equals = strchr(word, '=');
		char *next = end + strspn(end, " ");

		*end = '\0';
		if (equals && equals < end) {
			*equals = '\0';
			if (!strcmp(word, "cmd") || !strcmp(word, "mcmd"))
				l.command = command_of(equals + 1);
			else if (!strcmp(word, "key"))
				l.key = equals + 1;
			else if (!strcmp(word, "exitcode"))
				l.exitcode = equals + 1;
			else if (!strcmp(word, "value"))
				l.value = equals + 1;
			else if (!strcmp(word, "service"))
				l.service = equals + 1;
			else if (!strcmp(word, "port"))
				l.port = equals + 1;
		}
		word = next;
	}
	return l;
}
