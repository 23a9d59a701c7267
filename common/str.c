#include "common/str.h"

#include <ctype.h>
#include <errno.h>
#include <time.h>
#include <unistd.h>

void die(const char *what, int error)
{
	char text[256];
	int n = snprintf(text, sizeof text, "berth: %s%s%s\n", what, error ? ": " : "",
			 error ? strerror(error) : "");

	if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
		_exit(EXIT_RUNNER); /* there is no other place for the message */
	_exit(EXIT_RUNNER);
}

static void *str_checked(void *p)
{
	if (!p)
		die("out of memory", 0);
	return p;
}

void *xmalloc(size_t size)
{
	return str_checked(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
	return str_checked(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
	return str_checked(realloc(old, size ? size : 1));
}

void *xreallocarray(void *old, size_t count, size_t size)
{
	return str_checked(reallocarray(old, count ? count : 1, size ? size : 1));
}

char *xstrdup(const char *text)
{
	return str_checked(strdup(text));
}

char *xstrndup(const char *text, size_t n)
{
	return str_checked(strndup(text, n));
}

char *xvasprintf(const char *format, va_list ap)
{
	char *out = NULL;

	return str_checked(vasprintf(&out, format, ap) < 0 ? NULL : out);
}

char *xasprintf(const char *format, ...)
{
	va_list ap;
	char *out;

	va_start(ap, format);
	out = xvasprintf(format, ap);
	va_end(ap);
	return out;
}

static void str_reserve(struct str *s, size_t more)
{
	size_t need = s->len + more + 1;

	if (need <= s->cap)
		return;
	s->cap = need < 64 ? 64 : need + need / 2;
	s->s = xreallocarray(s->s, s->cap, 1);
}

void str_addn(struct str *s, const void *bytes, size_t n)
{
	str_reserve(s, n);
	if (n)
		memcpy(s->s + s->len, bytes, n);
	s->len += n;
	s->s[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
	str_addn(s, text, strlen(text));
}

void str_addf(struct str *s, const char *format, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, format);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	if (n > 0) {
		str_reserve(s, (size_t)n);
		vsnprintf(s->s + s->len, (size_t)n + 1, format, again);
		s->len += (size_t)n;
	}
	va_end(again);
}

const char *str_text(const struct str *s)
{
	return s->s ? s->s : "";
}

char *str_take(struct str *s)
{
	char *text = s->s ? s->s : xstrdup("");

	*s = (struct str){ 0 };
	return text;
}

void str_free(struct str *s)
{
	free(s->s);
	*s = (struct str){ 0 };
}

void strv_take(struct strv *l, char *text)
{
	l->v = xreallocarray(l->v, l->n + 2, sizeof *l->v);
	l->v[l->n++] = text;
	l->v[l->n] = NULL;
}

void strv_add(struct strv *l, const char *text)
{
	strv_take(l, xstrdup(text));
}

void strv_free(struct strv *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct strv){ 0 };
}

static size_t env_find(const struct strv *l, const char *name)
{
	size_t len = strlen(name), i;

	for (i = 0; i < l->n; i++)
		if (!strncmp(l->v[i], name, len) && l->v[i][len] == '=')
			break;
	return i;
}

void strv_env_set(struct strv *l, const char *name, const char *value)
{
	size_t i = env_find(l, name);
	char *entry = xasprintf("%s=%s", name, value);

	if (i == l->n) {
		strv_take(l, entry);
		return;
	}
	free(l->v[i]);
	l->v[i] = entry;
}

bool strv_has(const struct strv *l, const char *text)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i], text))
			return true;
	return false;
}

const char *strv_env_get(const struct strv *l, const char *name)
{
	size_t i = env_find(l, name);

	return i < l->n ? l->v[i] + strlen(name) + 1 : NULL;
}

int str_to_long(long *out, const char *text, long min, long max, struct err *e)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (!*text || *end || errno || *text == '+' || isspace((unsigned char)*text) ||
	    n < min || n > max)
		return err_set(e, E_NUMBER, text, min, max);
	*out = n;
	return 0;
}

/* The letters to change, add, leave out or exchange with the next one. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);
	size_t rows[3][64], *row = rows[0]; /* of A's first I letters, of I-1, of I-2 */

	if (na >= 64 || nb >= 64)
		return 64;
	for (size_t j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; i <= na; i++) {
		const size_t *above = row, *second = rows[(i + 1) % 3];

		row = rows[i % 3];
		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);

			if (above[j] + 1 < best)
				best = above[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1] && second[j - 2] + 1 < best)
				best = second[j - 2] + 1;
			row[j] = best;
		}
	}
	return row[nb];
}

const char *str_nearest(const char *word, const char *const *names, size_t n)
{
	size_t most = strlen(word) / 3, best = (most ? most : 1) + 1;
	const char *found = NULL;

	for (size_t i = 0; i < n; i++) {
		size_t d = edit_distance(word, names[i]);

		if (d < best) {
			best = d;
			found = names[i];
		}
	}
	return found;
}

void str_add_bits(struct str *s, const uint64_t *bits, size_t nwords)
{
	size_t n = nwords * 64, i = 0;
	const char *comma = "";

	while (i < n) {
		size_t first;

		if (!(bits[i / 64] >> i % 64 & 1)) {
			i++;
			continue;
		}
		first = i;
		while (i < n && bits[i / 64] >> i % 64 & 1)
			i++;
		if (i - first == 1)
			str_addf(s, "%s%zu", comma, first);
		else
			str_addf(s, "%s%zu-%zu", comma, first, i - 1);
		comma = ",";
	}
}

void str_add_seconds(struct str *s, uint64_t ms)
{
	str_addf(s, "%llu.%03llu", (unsigned long long)(ms / 1000),
		 (unsigned long long)(ms % 1000));
	while (s->s[s->len - 1] == '0')
		s->len--;
	s->len -= s->s[s->len - 1] == '.';
	s->s[s->len] = '\0';
}

const char *str_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void add_redacted(struct str *s, size_t n)
{
	str_addf(s, "<redacted, %zu byte%s>", n, str_plural(n));
}

/* Whether the N bytes at NAME are the name of a secret. */
static bool is_secret(const char *name, size_t n)
{
	static const char *const words[] = { "TOKEN", "SECRET", "KEY", "PASS", "CRED" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		for (size_t at = 0; at + strlen(words[i]) <= n; at++)
			if (!strncasecmp(name + at, words[i], strlen(words[i])))
				return true;
	return false;
}

/* "scheme://user:password@host", as in https_proxy and URLs of databases. */
static bool has_password(const char *value)
{
	const char *url = strstr(value, "://");
	size_t n = url ? strcspn(url + 3, "/@ ") : 0;

	return url && url[3 + n] == '@' && memchr(url + 3, ':', n);
}

void str_add_value(struct str *s, const char *name, const char *value)
{
	if (is_secret(name, strlen(name)) || has_password(value))
		add_redacted(s, strlen(value));
	else
		str_add(s, value);
}

void str_add_word(struct str *s, const char *word, bool malformed)
{
	size_t n = strcspn(word, "=");
	const bool has_value = word[n];
	bool hidden;

	if (malformed && !has_value) /* "TOKEN: value" */
		n = strcspn(word, " \t:,;");
	hidden = (malformed && has_value) || is_secret(word, n) ||
		 has_password(word + n);
	n += has_value;
	str_addn(s, word, n);
	if (hidden && word[n])
		add_redacted(s, strlen(word + n));
	else
		str_add(s, word + n);
}

void str_hex(char *out, const unsigned char *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * len] = '\0';
}

uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_ms(void)
{
	return clock_ns() / 1000000u;
}
