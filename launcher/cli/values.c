#include "launcher/cli/values.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "common/wire.h"

static void *values_field(const struct setting *s)
{
	void *in = s->option->flags & OPTION_APP ? (void *)s->app : (void *)s->r;

	return (char *)in + s->option->at;
}

static void values_keep(char **place, const char *text)
{
	free(*place);
	*place = xstrdup(text);
}

/* Whether the option belongs to an app behind a ':'. */
static bool is_later(const struct setting *s)
{
	return s->source == FROM_LINE && s->app != s->r->app;
}

/* A rank file places all ranks of a job, and a host file names hosts for all. */
static int check_later(const struct setting *s, struct err *e)
{
	return s->r->hostfile || s->r->rank_hosts.n ? err_set(e, E_APP_FILE, s->typed)
						    : 0;
}

int value_none_of(const char *value, const char *const *choices, struct err *e)
{
	struct str list = { 0 };
	const char *near;
	size_t n;

	for (n = 0; choices[n]; n++)
		str_addf(&list, "%s%s", n ? ", " : "", choices[n]);
	near = *value ? str_nearest(value, choices, n) : NULL;
	err_set(e, E_CHOICE, value, str_text(&list));
	if (near)
		err_hint(e, "did you mean '%s'?", near);
	str_free(&list);
	return -1;
}

/* The index of VALUE in NAMES, or -1. */
static int find_name(const char *value, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (!strcasecmp(names[i], value))
			return i;
	return -1;
}

/* The index of VALUE in CHOICES, or -1 with E. */
static int values_choose(const char *value, const char *const *choices, struct err *e)
{
	int i = find_name(value, choices);

	return i < 0 ? value_none_of(value, choices, e) : i;
}

/* 1 for yes or no value at all, 0 for no, -1 with E. */
static int yes_or_no(const char *value, struct err *e)
{
	static const char *const names[] = { "no",   "yes", "off", "on", "false",
					     "true", "0",   "1",   NULL };
	static const char *const shown[] = { "yes", "no", NULL };
	int i = value ? find_name(value, names) : 1;

	return i < 0 ? value_none_of(value, shown, e) : i % 2;
}

/* Take over NOTE, unless it is there. */
static void values_add_note(struct strv *notes, char *note)
{
	if (strv_has(notes, note))
		free(note);
	else
		strv_take(notes, note);
}

void value_ignored(const struct setting *s, const char *subject, const char *why)
{
	values_add_note(s->notes, xasprintf("ignored: %s (%s)", subject, why));
}

void value_warn(struct strv *notes, const struct err *e)
{
	values_add_note(notes, xasprintf("warning: %s\nhint: %s", e->text, e->hint));
}

int value_switch(const struct setting *s, const char *value, struct err *e)
{
	int yes = yes_or_no(value, e);

	if (yes < 0)
		return -1;
	*(bool *)values_field(s) = yes;
	return 0;
}

int value_tag(const struct setting *s, const char *value, struct err *e)
{
	int yes = yes_or_no(value, e);

	if (yes < 0)
		return -1;
	if (!yes)
		s->r->output.tag_style = TAG_NONE;
	else if (s->r->output.tag_style == TAG_NONE)
		s->r->output.tag_style = TAG_LONG;
	return 0;
}

int value_text(const struct setting *s, const char *value, struct err *e)
{
	if (!*value)
		return err_set(e, E_OPTION_EMPTY);
	values_keep(values_field(s), value);
	return 0;
}

static int values_number(const struct setting *s, int *out, const char *value,
			 struct err *e)
{
	long n;

	if (str_to_long(&n, value, s->option->min, s->option->max, e))
		return -1;
	*out = (int)n;
	return 0;
}

int value_number(const struct setting *s, const char *value, struct err *e)
{
	return values_number(s, values_field(s), value, e);
}

/* DIGITS behind a point, as milliseconds of UNIT seconds; but 0 only if all are 0. */
static long fraction_ms(const char *digits, size_t n, long unit)
{
	long value = 0, scale = 1;
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		any |= digits[i] != '0';
		if (i < 9) {
			value = 10 * value + (digits[i] - '0');
			scale *= 10;
		}
	}
	value = value * unit * 1000 / scale;
	return any && !value ? 1 : value;
}

enum { HANG_LEAST_MS = 60000 };             /* of --hang-timeout auto */
enum { RATE_SECONDS_MAX = 30 * 24 * 3600 }; /* of --restarts N/TIME */

/* VALUE, a time of MIN to MAX seconds, in milliseconds. */
static int values_time(long *out, const char *value, long min, long max, struct err *e)
{
	static const char figures[] = "0123456789", units[] = "smhd";
	static const long seconds[] = { 1, 60, 3600, 24 * 3600 };
	const size_t digits = strspn(value, figures);
	const bool point = value[digits] == '.';
	const char *fraction = value + digits + point;
	const size_t more = point ? strspn(fraction, figures) : 0;
	const char *suffix = fraction + more;
	char *whole = digits ? xstrndup(value, digits) : xstrdup("0");
	long n = 0, unit = 0, ms = 0;
	int rc = str_to_long(&n, whole, 0, max, NULL);

	free(whole);
	if (!*suffix)
		unit = 1;
	else if (strchr(units, *suffix) && !suffix[1])
		unit = seconds[strchr(units, *suffix) - units];
	if (!rc && unit && n <= max / unit)
		ms = n * unit * 1000 + fraction_ms(fraction, more, unit);
	if (rc || !unit || n > max / unit || (point ? !more : !digits) ||
	    ms < min * 1000 || ms > max * 1000)
		return err_set(e, E_SECONDS, value, min, max);
	*out = ms;
	return 0;
}

int value_seconds(const struct setting *s, const char *value, struct err *e)
{
	return values_time(values_field(s), value, s->option->min, s->option->max, e);
}

int value_restarts(const struct setting *s, const char *value, struct err *e)
{
	const char *slash = strchr(value, '/');
	char *number = xstrndup(value, slash ? (size_t)(slash - value) : strlen(value));
	long ms = 0;
	int rc = values_number(s, &s->r->lives.restarts, number, e);

	if (!rc && slash)
		rc = values_time(&ms, slash + 1, 1, RATE_SECONDS_MAX, e);
	if (!rc)
		s->r->lives.span_ms = ms;
	s->r->lives.restarts_given |= !rc;
	free(number);
	return rc;
}

int value_hang(const struct setting *s, const char *value, struct err *e)
{
	struct hang_limit *h = &s->r->lives.hang;

	h->learns = !strcmp(value, "auto");
	h->given = true;
	if (h->learns)
		h->ms = HANG_LEAST_MS;
	else if (!strcmp(value, "off"))
		h->ms = 0;
	else
		return values_time(&h->ms, value, s->option->min, s->option->max, e);
	return 0;
}

int value_grace(const struct setting *s, const char *value, struct err *e)
{
	if (value_seconds(s, value, e))
		return -1;
	s->r->kill_grace_given = true;
	return 0;
}

int value_choice(const struct setting *s, const char *value, struct err *e)
{
	int i = values_choose(value, s->option->choices, e);

	if (i < 0)
		return -1;
	/* gcc stores an enum with the constants 0, 1, ... as an unsigned int. */
	*(unsigned *)values_field(s) = (unsigned)i;
	return 0;
}

int value_ranks(const struct setting *s, const char *value, struct err *e)
{
	/* Words of torchrun. */
	static const char *const words[] = { "auto", "gpu", "cpu", NULL };
	bool np = s->option->flags & OPTION_APP;
	char *what;

	if (!np && find_name(value, words) >= 0) {
		what = xasprintf("%s %s", s->typed, value);
		err_set(e, E_FOREIGN, what, "torchrun");
		free(what);
		return err_hint(e, "%s",
				"leave it out: this machine then gets a rank for each "
				"GPU, or core; write other hosts as -H ip1:gpus");
	}
	if (!np && is_later(s)) {
		if (check_later(s, e) || values_number(s, &s->app->per_host, value, e))
			return -1;
		values_keep(&s->app->per_host_from, s->from);
		return 0;
	}
	if (values_number(s, values_field(s), value, e))
		return -1;
	values_keep(np ? &s->app->np_from : &s->r->per_host_from, s->from);
	if (!np)
		s->r->per_object = PER_NODE;
	return 0;
}

static int map_refuse(const char *value, struct err *e)
{
	err_set(e, E_FOREIGN, value, "--map-by");
	return err_hint(
		e, "%s",
		"slot, node, ppr:N:node, ppr:N:socket and ppr:N:numa say how many "
		"ranks a host gets; each then runs next to its GPU, see --bind-to");
}

/* A word after the policy: "oversubscribe", "PE=4". */
static int map_modifier(const struct setting *s, const char *value,
			const char *modifier, struct err *e)
{
	char *subject;

	if (!strcasecmp(modifier, "oversubscribe")) {
		s->r->oversubscribe = true;
	} else if (!strcasecmp(modifier, "nooversubscribe")) {
		s->r->oversubscribe = false;
	} else if (!strncasecmp(modifier, "pe=", 3)) {
		subject = xasprintf("%s of --map-by", modifier);
		value_ignored(s, subject, "--bind-to core:N gives a rank N cores");
		free(subject);
	} else {
		return map_refuse(value, e);
	}
	return 0;
}

int value_map_by(const struct setting *s, const char *value, struct err *e)
{
	/* Policies of Open MPI and MPICH: objects inside a host, and lists. */
	static const char *const objects[] = { "socket",  "package",  "numa",    "core",
					       "board",   "hwthread", "l1cache", "l1",
					       "l2cache", "l2",       "l3cache", "l3",
					       NULL };
	static const char *const lists[] = { "rankfile", "seq", "dist", "user", NULL };
	/* In the order of enum per_object, and another name of socket. */
	static const char *const pers[] = { "node", "socket", "numa", "package", NULL };
	char *copy = xstrdup(value), *rest = copy, *modifier;
	const char *policy = strsep(&rest, ":"), *n, *object;
	int map = find_name(policy, s->option->choices), rc = 0, at;
	long ranks;

	if (map >= 0) {
		s->r->map_by = (enum map_by)map;
	} else if (!strcasecmp(policy, "ppr")) { /* ppr:N:node */
		n = strsep(&rest, ":");
		object = strsep(&rest, ":");
		at = object ? find_name(object, pers) : -1;
		if (!n || at < 0)
			rc = map_refuse(value, e);
		else if (!(rc = str_to_long(&ranks, n, 1, RANKS_MAX, e))) {
			s->r->per_host = (int)ranks;
			s->r->per_object = at > PER_NUMA ? PER_SOCKET : (unsigned)at;
			values_keep(&s->r->per_host_from, s->from);
		}
	} else if (find_name(policy, objects) >= 0) {
		char *subject = xasprintf("--map-by %s", policy);

		s->r->map_by = MAP_SLOT;
		value_ignored(s, subject,
			      "hosts fill by slot, ranks run next to their GPUs");
		free(subject);
	} else if (*policy || !rest) { /* ":oversubscribe" has no policy */
		rc = strchr(value, ':') || find_name(policy, lists) >= 0
			     ? map_refuse(value, e)
			     : value_none_of(value, s->option->choices, e);
	}
	while (!rc && rest && (modifier = strsep(&rest, ":,")))
		rc = map_modifier(s, value, modifier, e);
	free(copy);
	return rc;
}

int value_forget_hosts(const struct setting *s, bool others, struct err *e)
{
	struct request *r = s->r;

	if (others && *s->hosts == s->source)
		return err_set(e, E_TWO_HOSTS, s->typed);
	hosts_free(&r->hosts);
	free(r->hostfile);
	r->hostfile = NULL;
	strv_free(&r->rank_hosts);
	values_keep(&r->hosts_from, s->from);
	*s->hosts = s->source;
	return 0;
}

/* -H of a later app is its own. */
int value_hosts(const struct setting *s, const char *value, struct err *e)
{
	const bool later = is_later(s);
	struct hosts *own = later ? &s->app->hosts : &s->r->hosts;

	if (!*value)
		return err_set(e, E_OPTION_EMPTY);
	if (later ? check_later(s, e)
		  : value_forget_hosts(s, s->r->hostfile != NULL, e))
		return -1;
	hosts_free(own);
	if (later)
		values_keep(&s->app->hosts_from, s->from);
	return hosts_parse(own, value, e);
}

int value_hostfile(const struct setting *s, const char *value, struct err *e)
{
	if (!*value)
		return err_set(e, E_OPTION_EMPTY);
	if (value_forget_hosts(s, s->r->hosts.n, e))
		return -1;
	s->r->hostfile = xstrdup(value);
	return 0;
}

/* Addresses and networks, "ADDRESS/BITS". */
int value_net(const struct setting *s, const char *value, struct err *e)
{
	char *copy = xstrdup(value), *rest = copy, *word;
	int rc = 0;

	s->r->reach.nnet = 0;
	while (!rc && (word = strsep(&rest, ","))) {
		const char *slash = strchr(word, '/');
		char *address = xstrndup(word, strcspn(word, "/"));
		struct net_range range = { 0 };
		long bits;

		range.v4 = inet_pton(AF_INET, address, range.address) == 1;
		bits = range.v4 ? 32 : 128;
		if ((!range.v4 && inet_pton(AF_INET6, address, range.address) != 1) ||
		    (slash && str_to_long(&bits, slash + 1, 0, bits, NULL)))
			rc = err_set(e, E_RANGE, (int)strlen(word), word);
		free(address);
		range.bits = (unsigned)bits;
		s->r->reach.net = xreallocarray(s->r->reach.net, s->r->reach.nnet + 1,
						sizeof *s->r->reach.net);
		s->r->reach.net[s->r->reach.nnet++] = range;
	}
	free(copy);
	if (!rc)
		strv_take(&s->r->env.export, xasprintf("BERTH_NET=%s", value));
	return rc;
}

/* "A:B", "A:" or ":B". */
int value_steps(const struct setting *s, const char *value, struct err *e)
{
	char *copy = xstrdup(value), *colon = strchr(copy, ':');
	long first = 1, last = UINT32_MAX;
	int rc = colon ? 0 : -1;

	if (!rc) {
		*colon++ = '\0';
		rc = (*copy && str_to_long(&first, copy, 1, UINT32_MAX, NULL)) ||
		     (*colon && str_to_long(&last, colon, 1, UINT32_MAX, NULL)) ||
		     last < first;
	}
	free(copy);
	if (rc)
		return err_set(e, E_STEPS, value);
	s->r->insight.timeline.first_step = (uint32_t)first;
	s->r->insight.timeline.last_step = (uint32_t)last;
	return 0;
}

/* A list of ranks, ranges and words. */
int value_show(const struct setting *s, const char *value, struct err *e)
{
	char *copy = xstrdup(value), *rest = copy, *item, *dash;
	struct request *r = s->r;
	int rc = 0;

	rank_set_free(&r->output.show);
	r->output.show_errors = false;
	while (!rc && (item = strsep(&rest, ","))) {
		long first, last;

		if (!strcmp(item, "errors"))
			r->output.show_errors = true;
		else if (!strcmp(item, "all"))
			r->output.show.all = true;
		else if (strcmp(item, "none") != 0) {
			dash = strchr(item, '-');
			if (dash)
				*dash++ = '\0';
			rc = str_to_long(&first, item, 0, RANKS_MAX - 1, NULL) ||
			     str_to_long(&last, dash ? dash : item, 0, RANKS_MAX - 1,
					 NULL) ||
			     last < first;
			for (; !rc && first <= last; first++)
				rank_set_add(&r->output.show, (uint32_t)first);
		}
	}
	free(copy);
	return rc ? err_set(e, E_RANKS, value) : 0;
}

int value_stdin(const struct setting *s, const char *value, struct err *e)
{
	static const char *const names[] = { "a rank", "all", "none", NULL };
	long rank;

	if (!strcmp(value, "all"))
		s->r->stdin_rank = STDIN_ALL;
	else if (!strcmp(value, "none"))
		s->r->stdin_rank = STDIN_NONE;
	else if (!str_to_long(&rank, value, 0, RANKS_MAX - 1, NULL))
		s->r->stdin_rank = (uint32_t)rank;
	else
		return value_none_of(value, names, e);
	return 0;
}

int value_bind_to(const struct setting *s, const char *value, struct err *e)
{
	/* Names that other launchers have for the same objects. */
	static const char *const theirs[] = { "package", "l3cache", "numanode", NULL };
	static const char *const ours[] = { "socket", "l3", "numa" };
	/* Qualifiers of Open MPI. */
	static const char *const ignored[] = { "overload-allowed", "no-overload",
					       "if-supported", NULL };
	char *what = xstrdup(value), *suffix = strchr(what, ':'), *subject;
	int kind, same, rc = -1;
	long n = 1;

	if (suffix)
		*suffix++ = '\0';
	same = find_name(what, theirs);
	kind = values_choose(same < 0 ? what : ours[same], s->option->choices, e);
	if (kind < 0)
		goto out;
	if (suffix && find_name(suffix, ignored) >= 0) {
		subject = xasprintf(":%s of %s", suffix, s->typed);
		value_ignored(s, subject, "CPUs are shared only where they must be");
		free(subject);
	} else if (suffix && str_to_long(&n, suffix, 1, 4096, e)) {
		err_in(e, "count after '%s'", what);
		goto out;
	}
	if (n > 1 && (kind == BIND_AUTO || kind == BIND_NONE)) {
		err_set(e, E_OPTION_NO_VALUE, what, suffix);
		goto out;
	}
	s->r->bind_to = (enum bind_to)kind;
	s->r->bind_count = (unsigned)n;
	rc = 0;
out:
	free(what);
	return rc;
}

int value_plan(const struct setting *s, const char *value, struct err *e)
{
	int form = value ? values_choose(value, s->option->choices, e) : 0;

	if (form < 0)
		return -1;
	s->r->plan = (enum plan_form)(PLAN_TEXT + form);
	return 0;
}

int value_summary(const struct setting *s, const char *value, struct err *e)
{
	int form = value ? values_choose(value, s->option->choices, e) : SUMMARY_TEXT;

	if (form < 0)
		return -1;
	s->r->insight.summary = (enum summary_form)form;
	return 0;
}

int value_monitor(const struct setting *s, const char *value, struct err *e)
{
	enum { LEAST_MS = 100, MOST_S = 3600 };
	long ms = 0;

	if (strcmp(value, "off") && values_time(&ms, value, 0, MOST_S, e))
		return -1;
	s->r->insight.monitor_given = true;
	s->r->insight.monitor_ms = ms && ms < LEAST_MS ? LEAST_MS : ms;
	s->r->insight.monitor_given = true;
	return 0;
}

int value_report(const struct setting *s, const char *value, struct err *e)
{
	static const char *const ends[REPORT_FORMS] = { ".html", ".json" };
	const size_t n = strlen(value), end = strlen(ends[0]);

	for (size_t i = 0; i < REPORT_FORMS; i++) {
		if (n <= end || strcmp(value + n - end, ends[i]) != 0)
			continue;
		values_keep(&s->r->insight.report[i], value);
		return 0;
	}
	return err_set(e, E_REPORT_NAME, value);
}

int value_mpi(const struct setting *s, const char *value, struct err *e)
{
	return value ? value_choice(s, value, e) : 0;
}

int value_horovod(const struct setting *s, const char *value, struct err *e)
{
	return value_choice(s, value ? value : s->option->choices[HOROVOD_BERTH], e);
}

int value_topology(const struct setting *s, const char *value, struct err *e)
{
	size_t host = strcspn(value, "=");

	if (!host || (value[host] && !value[host + 1]))
		return err_set(e, E_TOPOLOGY_ARG, value);
	strv_add(&s->r->topology, value[host] ? value + host + 1 : value);
	strv_take(&s->r->topology_host, xstrndup(value, value[host] ? host : 0));
	return 0;
}

int value_gpus(const struct setting *s, const char *value, struct err *e)
{
	if (!*value)
		return err_set(e, E_OPTION_EMPTY);
	strv_free(&s->r->gpus);
	request_list_gpus(&s->r->gpus, value);
	return 0;
}

int value_verbose(const struct setting *s, const char *value, struct err *e)
{
	if (value)
		return values_number(s, &s->r->verbosity, value, e);
	if (s->option->at) /* -vv */
		s->r->verbosity = (int)s->option->at;
	else
		s->r->verbosity = s->r->verbosity < 1 ? 1 : 2;
	return 0;
}

int value_quiet(const struct setting *s, const char *value, struct err *e)
{
	int yes = yes_or_no(value, e);

	if (yes < 0)
		return -1;
	if (yes)
		s->r->verbosity = -1;
	else if (s->r->verbosity < 0)
		s->r->verbosity = 0;
	return 0;
}
