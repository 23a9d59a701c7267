#include "launcher/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>

#include "common/file.h"

enum {
	NAME_MAX_BYTES = 255,
	USER_MAX_BYTES = 64,
	FILE_MAX_BYTES = 64 << 20,
	SHOWN_BYTES = 64 /* of a word in a message */
};

static const char name_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				 "0123456789._-";

/* A list being read.  Its index by name merges 65536 hosts in linear time. */
struct reading {
	struct hosts *h;
	uint32_t *slot; /* open addressing: position in h->v plus 1, 0: free */
	size_t nslots;  /* a power of 2, at least twice h->n */
	bool lists;     /* whole lists become one */
};

/* One element as typed, cut into its parts. */
struct element {
	const char *name; /* may hold ranges in brackets */
	const char *user; /* or NULL */
	int slots, max_slots, port;
	bool counted; /* slots were typed */
	bool literal; /* an address: no ranges */
	size_t names; /* names its ranges have made so far */
};

/* WORD for a message: printable and short, in OUT of SHOWN_BYTES + 4 bytes. */
static const char *hosts_shown(char *out, const char *word)
{
	size_t i;

	for (i = 0; i < SHOWN_BYTES && word[i]; i++)
		out[i] = isprint((unsigned char)word[i]) ? word[i] : '?';
	memcpy(out + i, word[i] ? "..." : "", word[i] ? 4 : 1);
	return out;
}

static uint32_t *slot_of(struct reading *r, const char *name)
{
	uint32_t h = 2166136261u; /* FNV-1a */
	size_t mask = r->nslots - 1, i;

	for (const char *p = name; *p; p++)
		h = (h ^ (unsigned char)tolower((unsigned char)*p)) * 16777619u;
	i = h & mask;
	while (r->slot[i] && strcasecmp(r->h->v[r->slot[i] - 1].name, name))
		i = (i + 1) & mask;
	return &r->slot[i];
}

/* A host that is named again adds its slots. */
static int hosts_merge_element(struct host_spec *old, const struct element *el,
			       bool lists, struct err *e)
{
	const char *user = old->user ? old->user : "",
		   *again = el->user ? el->user : "";

	if (strcmp(user, again))
		return err_set(e, E_HOST_USERS, user, again);
	if (old->port != el->port)
		return err_set(e, E_HOST_PORTS);
	if (old->slots == SLOTS_GPUS || el->slots == SLOTS_GPUS)
		return err_set(e, E_HOST_GPUS_AGAIN);
	if (old->slots + el->slots > HOST_SLOTS_MAX)
		return err_set(e, E_HOST_SUM, HOST_SLOTS_MAX);
	old->slots += el->slots;
	old->counted = !lists || old->counted || el->counted;
	old->max_slots += el->max_slots;
	if (old->max_slots > HOST_SLOTS_MAX)
		old->max_slots = HOST_SLOTS_MAX;
	if (old->max_slots && old->max_slots < old->slots)
		return err_set(e, E_HOST_MAX_SLOTS, old->max_slots, old->slots);
	return 0;
}

static int hosts_add(struct reading *r, const char *name, const struct element *el,
		     struct err *e)
{
	struct hosts *h = r->h;
	uint32_t *slot;

	if (2 * (h->n + 1) > r->nslots) {
		free(r->slot);
		do
			r->nslots = r->nslots ? 2 * r->nslots : 64;
		while (2 * (h->n + 1) > r->nslots);
		r->slot = xcalloc(r->nslots, sizeof *r->slot);
		for (size_t i = 0; i < h->n; i++)
			*slot_of(r, h->v[i].name) = (uint32_t)i + 1;
		h->v = xreallocarray(h->v, r->nslots / 2, sizeof *h->v);
	}
	slot = slot_of(r, name);
	if (*slot)
		return hosts_merge_element(&h->v[*slot - 1], el, r->lists, e);
	if (h->n == HOSTS_MAX)
		return err_set(e, E_HOSTS_MANY, HOSTS_MAX);
	h->v[h->n] = (struct host_spec){
		.name = xstrdup(name),
		.user = el->user ? xstrdup(el->user) : NULL,
		.slots = el->slots,
		.counted = el->counted,
		.max_slots = el->max_slots,
		.port = el->port,
	};
	*slot = (uint32_t)++h->n;
	return 0;
}

/* Why WORD cannot be a name of at most MOST bytes, or NULL. */
static const char *bad_name(const char *word, size_t most, char *why, size_t n)
{
	size_t good = strspn(word, name_chars);

	if (!*word)
		return "it is empty";
	if (*word == '-')
		return "it begins with '-'";
	if (word[good]) {
		bool printable = isprint((unsigned char)word[good]);

		snprintf(why, n, printable ? "it has a '%c'" : "it has a byte 0x%02x",
			 (unsigned char)word[good]);
		return why;
	}
	if (strlen(word) > most) {
		snprintf(why, n, "it is longer than %zu bytes", most);
		return why;
	}
	return NULL;
}

static int check_name(const char *name, struct err *e)
{
	char why[64];
	const char *bad = bad_name(name, NAME_MAX_BYTES, why, sizeof why);

	if (!bad)
		return 0;
	err_set(e, E_HOST_NAME, bad);
	if (strchr(name, '/'))
		err_hint(e, "name a file of hosts with --hostfile");
	return -1;
}

/* The first STOP in TEXT outside of brackets, or the NUL. */
static size_t hosts_span(const char *text, char stop)
{
	bool inside = false;
	size_t i;

	for (i = 0; text[i] && (inside || text[i] != stop); i++)
		inside = text[i] == '[' || (inside && text[i] != ']');
	return i;
}

/* An IPv6 address, perhaps with "%zone". */
static int check_address(const char *text, struct err *e)
{
	char bare[INET6_ADDRSTRLEN], why[64], a[SHOWN_BYTES + 4];
	size_t n = strcspn(text, "%");
	struct in6_addr in6;
	bool zone_ok = !text[n] || !bad_name(text + n + 1, 32, why, sizeof why);

	if (n < sizeof bare) {
		memcpy(bare, text, n);
		bare[n] = '\0';
		if (zone_ok && inet_pton(AF_INET6, bare, &in6) == 1)
			return 0;
	}
	return err_set(e, E_HOST_ADDRESS, hosts_shown(a, text));
}

static int hosts_expand(struct reading *r, struct str *head, const char *rest,
			struct element *el, struct err *e);

/* Add a name for each number of RANGE, "FIRST-LAST" or "FIRST".  If FIRST begins with
 * 0, all numbers are as wide. */
static int expand_range(struct reading *r, struct str *head, const char *range,
			size_t n, const char *tail, struct element *el, struct err *e)
{
	size_t len = head->len, digits = strspn(range, "0123456789");
	const char *last = range + digits + (digits < n && range[digits] == '-');
	size_t last_digits = strspn(last, "0123456789");
	long from, to;
	char a[SHOWN_BYTES + 4];

	if (digits == 0 || digits > 9 || last_digits > 9 ||
	    (digits < n && (last == range + digits || last_digits == 0 ||
			    last + last_digits != range + n))) {
		char *copy = xstrndup(range, n);

		err_set(e, E_HOST_RANGE, hosts_shown(a, copy));
		free(copy);
		return -1;
	}
	from = strtol(range, NULL, 10);
	to = digits < n ? strtol(last, NULL, 10) : from;
	if (to < from)
		return err_set(e, E_HOST_RANGE_ORDER, from, to);
	for (; from <= to; from++) {
		str_addf(head, "%0*ld", *range == '0' ? (int)digits : 1, from);
		if (hosts_expand(r, head, tail, el, e))
			return -1;
		head->len = len;
	}
	return 0;
}

/* Add the names that REST stands for, each with HEAD before it.  Every bracket makes
 * HEAD longer, so the limit of HEAD bounds the depth.  el->names bounds the work. */
static int hosts_expand(struct reading *r, struct str *head, const char *rest,
			struct element *el, struct err *e)
{
	const char *open = el->literal ? NULL : strchr(rest, '['), *close, *range;
	size_t len = head->len;
	int rc = 0;

	if (len > NAME_MAX_BYTES)
		return check_name(str_text(head), e);
	if (!open) {
		str_add(head, rest);
		if (el->names++ == HOSTS_MAX)
			return err_set(e, E_HOSTS_MANY, HOSTS_MAX);
		if (!el->literal && check_name(str_text(head), e))
			return -1;
		return hosts_add(r, str_text(head), el, e);
	}
	close = strchr(open, ']');
	if (!close)
		return err_set(e, E_HOST_BRACKET);
	str_addn(head, rest, (size_t)(open - rest));
	for (range = open + 1; !rc && range <= close; range++) {
		size_t n = strcspn(range, ",]");

		rc = expand_range(r, head, range, n, close + 1, el, e);
		range += n;
	}
	head->len = len;
	return rc;
}

static int set_slots(int *slots, const char *text, bool gpus, struct err *e)
{
	char a[SHOWN_BYTES + 4];
	long n;

	if (gpus && !strcmp(text, "gpus")) {
		*slots = SLOTS_GPUS;
		return 0;
	}
	if (!isdigit((unsigned char)*text) ||
	    str_to_long(&n, text, 1, HOST_SLOTS_MAX, NULL))
		return err_set(e, E_HOST_SLOTS, hosts_shown(a, text), HOST_SLOTS_MAX,
			       gpus ? ", or 'gpus'" : "");
	*slots = (int)n;
	return 0;
}

static int set_port(int *port, const char *text, struct err *e)
{
	char a[SHOWN_BYTES + 4];
	long n;

	if (!isdigit((unsigned char)*text) ||
	    str_to_long(&n, text, 1, HOST_PORT_MAX, NULL))
		return err_set(e, E_HOST_PORT, hosts_shown(a, text), HOST_PORT_MAX);
	*port = (int)n;
	return 0;
}

/* E_HOST_IPV6.  In ::1:2 the last number is more often one of slots. */
static int refuse_bare_ipv6(const char *name, struct err *e)
{
	const char *last = strrchr(name, ':');
	char *address = xstrndup(name, (size_t)(last - name));
	struct in6_addr in6;
	const bool slots = last[1] && !last[1 + strspn(last + 1, "0123456789")] &&
			   inet_pton(AF_INET6, address, &in6) == 1;

	err_set(e, E_HOST_IPV6);
	if (slots)
		err_hint(e, "write '[%s]:%s', or '[%s]' if that is the whole address",
			 address, last + 1, name);
	else
		err_hint(e, "write '[%s]' or '[%s]:SLOTS'", name, name);
	free(address);
	return -1;
}

/* Cut "[user@]name[[:port]:slots]" into EL. */
static int hosts_cut(struct element *el, char *text, struct err *e)
{
	char *at = strrchr(text, '@'), *end, *close, *slots;
	char a[SHOWN_BYTES + 4], why[64];
	const char *bad;
	struct in6_addr in6;

	*el = (struct element){ .name = at ? at + 1 : text, .slots = 1 };
	if (inet_pton(AF_INET6, el->name, &in6) == 1)
		return refuse_bare_ipv6(el->name, e);
	if (at) {
		*at = '\0';
		el->user = text;
		bad = bad_name(text, USER_MAX_BYTES, why, sizeof why);
		if (bad)
			return err_set(e, E_HOST_USER, hosts_shown(a, text), bad);
	}
	end = at ? at + 1 : text;
	end += hosts_span(end, ':');
	if (*end == ':') {
		el->counted = true;
		*end = '\0';
		end++; /* "slots" or "port:slots" */
		slots = strchr(end, ':');
		if (slots)
			*slots++ = '\0';
		if ((slots && set_port(&el->port, end, e)) ||
		    set_slots(&el->slots, slots ? slots : end, true, e))
			return -1;
	}
	if (*el->name == '[' && strcspn(el->name, ":") < strcspn(el->name, "]")) {
		close = strchr(++el->name, ']');
		if (!close)
			return err_set(e, E_HOST_BRACKET);
		if (close[1])
			return err_set(e, E_HOST_AFTER, hosts_shown(a, close + 1));
		*close = '\0';
		el->literal = true;
		return check_address(el->name, e);
	}
	return 0;
}

static int add_element(struct reading *r, struct element *el, struct err *e)
{
	struct str head = { 0 };
	int rc = hosts_expand(r, &head, el->name, el, e);

	str_free(&head);
	return rc;
}

static void hosts_trim(char **text)
{
	size_t n;

	*text += strspn(*text, " \t\r\n");
	n = strlen(*text);
	while (n > 0 && strchr(" \t\r\n", (*text)[n - 1]))
		(*text)[--n] = '\0';
}

int hosts_parse(struct hosts *h, const char *spec, struct err *e)
{
	struct reading r = { .h = h };
	const char *rest = spec;
	int rc = 0;

	for (bool more = true; more && !rc;) {
		size_t n = hosts_span(rest, ',');
		char *copy = xstrndup(rest, n), *text = copy;
		char a[SHOWN_BYTES + 4];
		struct element el;

		hosts_trim(&text);
		hosts_shown(a, text);
		if (hosts_cut(&el, text, e) || add_element(&r, &el, e))
			rc = err_in(e, "host '%s'", a);
		free(copy);
		more = rest[n] == ',';
		rest += n + 1;
	}
	free(r.slot);
	if (rc)
		hosts_free(h);
	return rc;
}

/* One "NAME=N" of a host file's line. */
static int read_word(struct element *el, const char *word, struct err *e)
{
	size_t n = strcspn(word, "=");
	char a[SHOWN_BYTES + 4];

	if (n == 5 && !memcmp(word, "slots", 5) && word[n]) {
		if (el->counted)
			return err_set(e, E_HOST_SLOTS_AGAIN);
		el->counted = true;
		return set_slots(&el->slots, word + n + 1, true, e);
	}
	if (n == 9 && word[n] &&
	    (!memcmp(word, "max_slots", 9) || !memcmp(word, "max-slots", 9)))
		return set_slots(&el->max_slots, word + n + 1, false, e);
	if (n == 4 && word[n] && !memcmp(word, "port", 4)) {
		if (el->port)
			return err_set(e, E_HOST_PORT_AGAIN);
		return set_port(&el->port, word + n + 1, e);
	}
	err_set(e, E_HOSTFILE_WORD, hosts_shown(a, word));
	if (n == 4 && !memcmp(word, "ifhn", 4)) /* of MPD: the interface for messages */
		err_hint(e, "leave out ifhn; --net chooses the addresses that "
			    "libberth's ranks use");
	return -1;
}

/* "name[[:port]:slots] [slots=N] [max_slots=N] [port=N]".  Open MPI takes blanks around
 * each '='. */
static int hosts_read_line(struct reading *r, char *line, struct err *e)
{
	char a[SHOWN_BYTES + 4], *out, *word;
	struct element el;
	int rc;

	line[strcspn(line, "#")] = '\0';
	hosts_trim(&line);
	if (!*line)
		return 0;
	out = line;
	for (char *in = line; *in; in++) {
		if (isblank((unsigned char)*in) && in[strspn(in, " \t")] == '=')
			continue;
		*out++ = *in;
		if (*in == '=')
			in += strspn(in + 1, " \t");
	}
	*out = '\0';
	word = strsep(&line, " \t");
	hosts_shown(a, word);
	rc = hosts_cut(&el, word, e);
	while (!rc && (word = strsep(&line, " \t")))
		if (*word)
			rc = read_word(&el, word, e);
	if (!rc && el.max_slots && el.slots > el.max_slots)
		rc = err_set(e, E_HOST_MAX_SLOTS, el.max_slots, el.slots);
	if (!rc)
		rc = add_element(r, &el, e);
	return rc ? err_in(e, "host '%s'", a) : 0;
}

int hosts_parse_lines(struct hosts *h, const char *text, const char *where,
		      struct err *e)
{
	struct reading r = { .h = h };
	char *copy = xstrdup(text), *rest = copy, *line;
	size_t number = 0;
	int rc = 0;

	if (!strncmp(rest, "\xef\xbb\xbf", 3))
		rest += 3; /* the byte order mark of editors on Windows */
	while (!rc && (line = strsep(&rest, "\n"))) {
		number++;
		rc = hosts_read_line(&r, line, e);
		if (rc)
			err_in(e, "%s:%zu", where, number);
	}
	free(r.slot);
	free(copy);
	if (!rc && h->n == 0)
		rc = err_set(e, E_HOSTFILE_EMPTY, where);
	if (rc)
		hosts_free(h);
	return rc;
}

int hosts_read_file(struct hosts *h, const char *path, struct err *e)
{
	const bool from_stdin = !strcmp(path, "-");
	struct str text = { 0 };
	int rc = 0;

	if (from_stdin)
		path = "stdin"; /* for messages */
	if (from_stdin ? file_read_stdin(&text, FILE_MAX_BYTES + 1)
		       : file_read(&text, path, FILE_MAX_BYTES + 1, false))
		rc = err_set(e, E_HOSTFILE_READ, path, strerror(errno));
	else if (text.len > FILE_MAX_BYTES)
		rc = err_set(e, E_HOSTFILE_READ, path, strerror(EFBIG));
	else if (text.len && memchr(text.s, '\0', text.len))
		rc = err_set(e, E_HOSTFILE_BINARY, path);
	if (!rc)
		rc = hosts_parse_lines(h, str_text(&text), path, e);
	str_free(&text);
	return rc;
}

int hosts_merge(struct hosts *h, const struct hosts *more, struct err *e)
{
	struct reading r = { .h = h, .lists = true };
	int rc = 0;

	for (size_t i = 0; i < more->n && !rc; i++) {
		const struct host_spec *m = &more->v[i];
		const struct element el = { .user = m->user,
					    .slots = m->slots,
					    .max_slots = m->max_slots,
					    .port = m->port,
					    .counted = m->counted };

		rc = hosts_add(&r, m->name, &el, e);
		if (rc)
			err_in(e, "host '%s'", m->name);
	}
	free(r.slot);
	return rc;
}

void hosts_free(struct hosts *h)
{
	for (size_t i = 0; i < h->n; i++) {
		free(h->v[i].name);
		free(h->v[i].user);
	}
	free(h->v);
	*h = (struct hosts){ 0 };
}

/* A and B differ in one number only, which begins at START. */
static bool differ_in_number(const char *a, const char *b, size_t *start)
{
	size_t p = 0, na, nb;

	while (a[p] && a[p] == b[p])
		p++;
	if (!a[p] && !b[p])
		return false;
	while (p > 0 && isdigit((unsigned char)a[p - 1]))
		p--;
	na = strspn(a + p, "0123456789");
	nb = strspn(b + p, "0123456789");
	*start = p;
	return na && nb && na <= 9 && nb <= 9 && !strcmp(a + p + na, b + p + nb) &&
	       !strchr(a, ':');
}

/* The last name of the range that begins at NAMES[I].  NAMES[I..N) differ only in the
 * number at START.  A range counts up by 1 and keeps its width. */
static size_t range_end(const char *const *names, size_t i, size_t n, size_t start)
{
	for (; i + 1 < n; i++) {
		const char *a = names[i] + start, *b = names[i + 1] + start;

		if (strtol(b, NULL, 10) != strtol(a, NULL, 10) + 1 ||
		    (strspn(a, "0123456789") != strspn(b, "0123456789") &&
		     (*a == '0' || *b == '0')))
			break;
	}
	return i;
}

void hosts_fold(struct str *s, const char *const *names, size_t n)
{
	for (size_t i = 0, j; i < n; i = j) {
		size_t start = 0, other;

		str_add(s, i ? "," : "");
		j = i + 1;
		if (j < n && differ_in_number(names[i], names[j], &start))
			while (j < n && differ_in_number(names[i], names[j], &other) &&
			       other == start)
				j++;
		if (j == i + 1) {
			str_addf(s, strchr(names[i], ':') ? "[%s]" : "%s", names[i]);
			continue;
		}
		str_addf(s, "%.*s[", (int)start, names[i]);
		for (size_t from = i, to; from < j; from = to + 1) {
			const char *a = names[from] + start, *b;

			to = range_end(names, from, j, start);
			b = names[to] + start;
			str_addf(s, "%s%.*s", from > i ? "," : "",
				 (int)strspn(a, "0123456789"), a);
			if (to > from)
				str_addf(s, "-%.*s", (int)strspn(b, "0123456789"), b);
		}
		str_addf(s, "]%s",
			 names[i] + start + strspn(names[i] + start, "0123456789"));
	}
}
