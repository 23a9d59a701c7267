#include "contrib/slurm/answer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* A decimal number from 0 to MOST at *AT, which then is behind it.  -1: it is none. */
static long take_number(char **at, long most)
{
	long n = 0;

	if (!isdigit((unsigned char)**at))
		return -1;
	for (; isdigit((unsigned char)**at); ++*at) {
		n = n * 10 + (**at - '0');
		if (n > most)
			return -1;
	}
	return n;
}

/* "0-5,48" */
static bool take_cpus(struct answer_task *t, char *list)
{
	for (;;) {
		const long first = take_number(&list, ANSWER_CPUS - 1);
		long last = first;

		if (first >= 0 && *list == '-') {
			list++;
			last = take_number(&list, ANSWER_CPUS - 1);
		}
		if (first < 0 || last < first)
			return false;
		for (long i = first; i <= last; i++)
			t->cpus[i / 64] |= (uint64_t)1 << i % 64;
		if (!*list)
			return t->bound = true;
		if (*list++ != ',')
			return false;
	}
}

/* A name as shells have it.  Variables of the loader are not Berth's to set. */
static bool is_name(const char *name)
{
	const size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			return false;
	return n && n < ANSWER_NAME_BYTES && !isdigit((unsigned char)*name) &&
	       strncmp(name, "LD_", 3) != 0 && strncmp(name, "SLURM_", 6) != 0;
}

static bool take_variable(struct answer_task *t, char *text, bool has_value,
			  bool if_unset)
{
	char *value = has_value ? strchr(text, '=') : NULL;

	if (has_value && !value)
		return false;
	if (value)
		*value++ = '\0';
	if (t->n == ANSWER_VARIABLES || !is_name(text))
		return false;
	t->v[t->n++] = (struct answer_variable){ text, value, if_unset };
	return true;
}

/* No byte that acts on a terminal. */
static bool is_plain(const char *text)
{
	for (; *text; text++)
		if (iscntrl((unsigned char)*text) && *text != '\t')
			return false;
	return true;
}

/* ---- lines ---- */

static bool task_line(struct answer_task *t, const char *word, char *value)
{
	if (!strcmp(word, "cpus"))
		return !t->bound && take_cpus(t, value);
	if (!strcmp(word, "gpu")) {
		t->gpu = take_number(&value, 65535);
		return t->gpu >= 0 && !*value;
	}
	if (!strcmp(word, "set"))
		return take_variable(t, value, true, false);
	if (!strcmp(word, "default"))
		return take_variable(t, value, true, true);
	if (!strcmp(word, "unset"))
		return take_variable(t, value, false, false);
	if (strcmp(word, "report") != 0)
		return false;
	t->report = value;
	return true;
}

static bool answer_line(struct answer *a, const char *word, char *value, size_t tasks)
{
	if (!strcmp(word, "off"))
		return a->off = true;
	if (!strcmp(word, "print"))
		return a->print = true;
	if (!strcmp(word, "masks"))
		return a->masks = true;
	if (!strcmp(word, "visible"))
		return a->visible = true;
	if (!value)
		return false;
	if (!strcmp(word, "error"))
		return (a->error = value) != NULL;
	if (!strcmp(word, "hint"))
		return (a->hint = value) != NULL;
	if (!strcmp(word, "task")) {
		if (a->tasks == tasks ||
		    take_number(&value, ANSWER_TASKS) != (long)a->tasks || *value)
			return false;
		a->task[a->tasks++].gpu = -1;
		return true;
	}
	if (!strcmp(word, "warning")) {
		if (a->warnings < sizeof a->warning / sizeof *a->warning)
			a->warning[a->warnings++] = value;
		return true;
	}
	return a->tasks && task_line(&a->task[a->tasks - 1], word, value);
}

/* The lines between the first and "end"; nothing may follow that. */
static bool answer_lines(struct answer *a, char *text, size_t tasks)
{
	while (text && *text) {
		char *word = strsep(&text, "\n"), *value;

		if (!text || strlen(word) >= ANSWER_LINE_BYTES || !is_plain(word))
			return false;
		if (!strcmp(word, "end"))
			return !*text;
		value = strchr(word, ' ');
		if (value)
			*value++ = '\0';
		if (!answer_line(a, word, value, tasks))
			return false;
	}
	return false;
}

bool answer_read(struct answer *a, char *text, size_t tasks)
{
	static const char version[] = "berth-step 1\n";

	*a = (struct answer){ 0 };
	if (!tasks || tasks > ANSWER_TASKS ||
	    strncmp(text, version, sizeof version - 1) != 0)
		return false;
	a->task = calloc(tasks, sizeof *a->task);
	if (a->task && answer_lines(a, text + sizeof version - 1, tasks) &&
	    (a->off || a->error || a->tasks == tasks))
		return true;
	free(a->task);
	*a = (struct answer){ 0 };
	return false;
}
