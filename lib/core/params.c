#include "lib/core/params.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/backend/tune.h"
#include "lib/net/net_address.h"

enum { SECONDS_MOST = 1000000000 }; /* 30 years, which nanoseconds can tell */

/* Digits, of a number that stays below MOST. */
static bool params_digits(const char **text, uint64_t most, uint64_t *n)
{
	const char *t = *text;

	for (*n = 0; isdigit((unsigned char)*t); t++) {
		if (*n >= most / 10)
			return false;
		*n = *n * 10 + (uint64_t)(*t - '0');
	}
	if (t == *text)
		return false;
	*text = t;
	return true;
}

/* Not by strtod(): what a decimal point is, is up to the program's locale. */
static bool read_SECONDS(const char *text, int64_t *ms)
{
	uint64_t n;

	if (!params_digits(&text, 1000000000000u, &n))
		return false;
	n = 1000 * (n < SECONDS_MOST ? n : SECONDS_MOST);
	if (*text == '.') {
		text++;
		for (uint64_t unit = 100; isdigit((unsigned char)*text);
		     text++, unit /= 10)
			n += unit * (uint64_t)(*text - '0');
	}
	*ms = (int64_t)n;
	return !*text;
}

static bool read_BYTES(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	const char *unit;

	if (!params_digits(&text, (uint64_t)1 << 62, bytes))
		return false;
	if (!*text)
		return true;
	unit = strchr(units, toupper((unsigned char)*text));
	if (!unit || text[1])
		return false;
	for (const char *u = units; u <= unit; u++) {
		if (*bytes >> 52)
			return false;
		*bytes *= 1024;
	}
	return true;
}

static bool read_FLAG(const char *text, bool *flag)
{
	static const char *const words[][2] = {
		{ "0", "1" }, { "no", "yes" }, { "off", "on" }, { "false", "true" }
	};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		for (int k = 0; k < 2; k++)
			if (!strcasecmp(text, words[i][k])) {
				*flag = k;
				return true;
			}
	return false;
}

/* The place of TEXT among N names; N: it is none of them. */
static unsigned params_find(const char *text, const char *const *names, unsigned n)
{
	unsigned i = 0;

	while (i < n && strcmp(text, names[i]) != 0)
		i++;
	return i;
}

static bool read_SECURE(const char *text, enum net_guard *guard)
{
	static const char *const names[] = { [NET_GUARD_MAC] = "mac",
					     [NET_GUARD_AEAD] = "aead",
					     [NET_GUARD_HEADS] = "heads" };
	const unsigned n = sizeof names / sizeof *names;

	*guard = (enum net_guard)params_find(text, names, n);
	return *guard < n;
}

static bool read_DEVICE(const char *text, enum device_way *way)
{
	static const char *const names[] = { [DEVICE_NCCL] = "nccl",
					     [DEVICE_HOST] = "host",
					     [DEVICE_ONLY_NCCL] = "nccl-only" };
	const unsigned n = sizeof names / sizeof *names;

	*way = (enum device_way)params_find(text, names, n);
	return *way < n;
}

static bool read_TEXT(const char *text, const char **to)
{
	*to = text;
	return true;
}

static bool read_RANGES(const char *text, const char **to)
{
	*to = text;
	return !net_range_check(text);
}

static bool read_ALGORITHMS(const char *text, const char **to)
{
	struct tune_choices c;

	*to = text;
	return tune_read(&c, text);
}

#define NOT_SECONDS "is no number of seconds, such as 60 or 0.5"
#define NOT_BYTES "is no size, such as 16777216 or 16M"
#define NOT_FLAG "is neither 0 nor 1"
#define NOT_SECURE "is not one of mac, aead and heads"
#define NOT_DEVICE "is not one of nccl, host and nccl-only"
#define NOT_RANGES "is no range of addresses, such as 10.0.0.0/8"
#define NOT_ALGORITHMS "is no list such as double:64K,halve:8M,direct"
#define NOT_TEXT ""

static const char *params_set(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

bool params_is_given(const char *name)
{
	return params_set(name);
}

bool params_read(struct params *k, char *why, size_t why_bytes)
{
	const char *text;

#define PARAM(name, member, kind, otherwise, what)                                     \
	k->member = otherwise;                                                         \
	text = params_set(#name);                                                      \
	if (text && !read_##kind(text, &k->member)) {                                  \
		snprintf(why, why_bytes, "%s=\"%s\" %s", #name, text, NOT_##kind);     \
		return false;                                                          \
	}
#define IGNORED(name, because)
#include "lib/core/params.def"
#undef PARAM
#undef IGNORED
	if (k->timeline && !strcmp(k->timeline, "DYNAMIC"))
		k->timeline = NULL;
	return true;
}

void params_ignored(void (*say)(void *ctx, const char *name, const char *why),
		    void *ctx)
{
#define PARAM(name, member, kind, otherwise, what)
#define IGNORED(name, why)                                                             \
	if (params_set(#name))                                                         \
		say(ctx, #name, why);
#include "lib/core/params.def"
#undef PARAM
#undef IGNORED
}
