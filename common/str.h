/* str.h - memory, growing strings, lists, numbers.
 *
 * If there is no memory, each function here that allocates ends the program ("out of
 * memory", status 125).  Only the library returns such an error. */
#ifndef BERTH_STR_H
#define BERTH_STR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Write "berth: WHAT: reason" to stderr and end the program with status 125.  runner
 * shows the stderr of its agents.  ERROR: an errno, or 0. */
void die(const char *what, int error) __attribute__((noreturn));

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
void *xreallocarray(void *old, size_t count, size_t size);
char *xstrdup(const char *text);
char *xstrndup(const char *text, size_t n);
char *xvasprintf(const char *format, va_list ap) __attribute__((format(printf, 1, 0)));
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A string that grows.  {0} is empty.  If s is not NULL, it ends with a NUL. */
struct str {
	char *s;
	size_t len, cap;
};

void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const void *bytes, size_t n);
void str_addf(struct str *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The text, or "" if nothing was added.  S still owns it. */
const char *str_text(const struct str *s);
/* The text, never NULL; the caller frees it.  S is {0} again. */
char *str_take(struct str *s);
void str_free(struct str *s);

/* MS milliseconds as seconds, as short as it can be: "10", "0.5". */
void str_add_seconds(struct str *s, uint64_t ms);

/* A list that owns its strings.  {0} is empty.  If v is not NULL, v[n] is. */
struct strv {
	char **v;
	size_t n;
};

void strv_add(struct strv *l, const char *text); /* copies */
void strv_take(struct strv *l, char *text);      /* takes over TEXT */
void strv_free(struct strv *l);
bool strv_has(const struct strv *l, const char *text);
/* Environment lists, "NAME=VALUE" each.  set replaces or adds; get returns the value
 * inside the list, or NULL. */
void strv_env_set(struct strv *l, const char *name, const char *value);
const char *strv_env_get(const struct strv *l, const char *name);

/* "s" for the plural of a noun, "" after 1. */
const char *str_plural(uint64_t n);

/* TEXT, a decimal number from MIN to MAX, into OUT.  0, or -1 with E (E_NUMBER). */
int str_to_long(long *out, const char *text, long min, long max, struct err *e);

/* The one of N NAMES that is nearest to WORD by edit distance.  NULL if the distance is
 * above 1 and above a third of the word's length. */
const char *str_nearest(const char *word, const char *const *names, size_t n);

/* Append a set of numbers to S as a list, "0-3,8,10-11".  BITS has NWORDS words of 64
 * bits; bit I of word W is number 64*W+I. */
void str_add_bits(struct str *s, const uint64_t *bits, size_t nwords);

/* Append VALUE to S as it may be printed: unchanged, or "<redacted, 40 bytes>" if NAME
 * is like *TOKEN*, *SECRET*, *KEY*, *PASS* or *CRED* in any case, or VALUE is a URL
 * that holds a password. */
void str_add_value(struct str *s, const char *name, const char *value);
/* Append WORD of a user, which may be NAME=VALUE, with the value as it may be printed.
 * MALFORMED: WORD should be NAME=VALUE and is not, so no value of it is printed. */
void str_add_word(struct str *s, const char *word, bool malformed);

/* The LEN bytes at BYTES as hexadecimal digits into OUT[2*LEN+1]. */
void str_hex(char *out, const unsigned char *bytes, size_t len);

/* Nanoseconds of CLOCK_MONOTONIC, and milliseconds. */
uint64_t clock_ns(void);
uint64_t clock_ms(void);

#endif
