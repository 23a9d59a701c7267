#include "launcher/cli/rankfile.h"

#include <errno.h>
#include <stdlib.h>

#include "common/file.h"
#include "launcher/cli/values.h"

enum { RANKFILE_BYTES_MAX = 64 << 20 };

/* The next word of *P, up to a blank or one of STOP, into WORD of N bytes. */
static bool rankfile_word(const char **p, const char *stop, char *word, size_t n)
{
	size_t length;

	*p += strspn(*p, " \t\r");
	length = strcspn(*p, " \t\r");
	if (strcspn(*p, stop) < length)
		length = strcspn(*p, stop);
	snprintf(word, n, "%.*s", (int)length, *p);
	*p += length;
	return length && length < n;
}

/* A line that is not empty: its rank and host. */
static bool rankfile_line(const char *p, long *rank, char *host, size_t n, bool *slots)
{
	char word[32];

	if (!rankfile_word(&p, "=", word, sizeof word) || strcmp(word, "rank") ||
	    !rankfile_word(&p, "=", word, sizeof word) ||
	    str_to_long(rank, word, 0, RANKS_MAX - 1, NULL))
		return false;
	p += strspn(p, " \t");
	if (*p++ != '=' || !rankfile_word(&p, "", host, n))
		return false;
	p += strspn(p, " \t\r");
	*slots |= *p != '\0';
	return !*p || !strncmp(p, "slot", 4);
}

/* HOST of RANK into HOSTS, which has NULL where a rank's host is not known yet. */
static const char *rankfile_add(struct strv *hosts, long rank, const char *host)
{
	if (*host == '+')
		return "a relative host is not supported";
	if ((size_t)rank >= hosts->n) {
		hosts->v = xreallocarray(hosts->v, (size_t)rank + 2, sizeof *hosts->v);
		for (size_t i = hosts->n; i < (size_t)rank + 2; i++)
			hosts->v[i] = NULL;
		hosts->n = (size_t)rank + 1;
	}
	if (hosts->v[rank])
		return "the rank has a line already";
	hosts->v[rank] = xstrdup(host);
	return NULL;
}

int rankfile_parse(struct strv *hosts, bool *slots, const char *text, const char *file,
		   struct err *e)
{
	char *copy = xstrdup(text), *rest = copy, *line, host[512];
	const char *why = NULL;
	size_t number = 0;
	long rank;

	*slots = false;
	while (!why && (line = strsep(&rest, "\n"))) {
		number++;
		line[strcspn(line, "#")] = '\0';
		if (!line[strspn(line, " \t\r")])
			continue;
		why = rankfile_line(line, &rank, host, sizeof host, slots)
			      ? rankfile_add(hosts, rank, host)
			      : "the line is not 'rank N=HOST slot=CPUS'";
	}
	free(copy);
	if (!why && !hosts->n)
		why = "no line names a rank";
	for (size_t i = 0; !why && i < hosts->n; i++)
		if (!hosts->v[i])
			why = "a rank below the last one has no line";
	if (!why)
		return 0;
	strv_free(hosts);
	return err_set(e, E_RANKFILE, file, number, why);
}

/* As -H takes them, with as many slots as ranks: "a:2,b:1,a:1".  Those of a host that
 * is named again are added there. */
static char *rankfile_list(const struct strv *hosts)
{
	struct str list = { 0 };

	for (size_t i = 0, end; i < hosts->n; i = end) {
		for (end = i + 1; end < hosts->n; end++)
			if (strcmp(hosts->v[end], hosts->v[i]))
				break;
		str_addf(&list, "%s%s:%zu", i ? "," : "", hosts->v[i], end - i);
	}
	return str_take(&list);
}

int value_rankfile(const struct setting *s, const char *value, struct err *e)
{
	struct str text = { 0 };
	struct request *r = s->r;
	bool slots = false;
	char *list;
	int rc;

	if (value_forget_hosts(s, r->hosts.n || r->hostfile, e))
		return -1;
	if (file_read(&text, value, RANKFILE_BYTES_MAX, false))
		rc = err_set(e, E_RANKFILE, value, (size_t)0, strerror(errno));
	else
		rc = rankfile_parse(&r->rank_hosts, &slots, str_text(&text), value, e);
	str_free(&text);
	list = rankfile_list(&r->rank_hosts);
	rc = rc || hosts_parse(&r->hosts, list, e);
	free(list);
	if (rc)
		return -1;
	if (slots)
		value_ignored(s, "slot= in the rankfile",
			      "each rank gets CPUs near its GPU, see --bind-to");
	return 0;
}
