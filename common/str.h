/* str.h - memory that dies when there is none, growing strings, lists, numbers.
 *
 * Every function here that allocates ends the program when memory is out ("out of
 * memory", status 125): programs die, only the library returns it. */
#ifndef BERTH_STR_H
#define BERTH_STR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* "berth: WHAT: why" to stderr, and the program ends with status 125; runner shows what
 * its agents say.  ERROR: an errno, or 0. */
void die(const char *what, int error) __attribute__((noreturn));

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
void *xreallocarray(void *old, size_t count, size_t size);
char *xstrdup(const char *text);
char *xstrndup(const char *text, size_t n);
char *xvasprintf(const char *format, va_list ap) __attribute__((format(printf, 1, 0)));
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A string that grows.  {0} is empty; s is NUL-terminated whenever it is not NULL. */
struct str {
	char *s;
	size_t len, cap;
};

void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const void *bytes, size_t n);
void str_addf(struct str *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The text, "" where nothing was added; stays owned by S. */
const char *str_text(const struct str *s);
/* The text as a block of the caller's (never NULL); S is {0} again. */
char *str_take(struct str *s);
void str_free(struct str *s);

/* A list of strings that it owns.  {0} is empty; v[n] is NULL where v is not. */
struct strv {
	char **v;
	size_t n;
};

void strv_add(struct strv *l, const char *text); /* copies */
void strv_take(struct strv *l, char *text);      /* takes over TEXT */
void strv_free(struct strv *l);
/* Environment lists, "NAME=VALUE" each.  set replaces or adds; get returns the value
 * inside the list, or NULL. */
void strv_env_set(struct strv *l, const char *name, const char *value);
const char *strv_env_get(const struct strv *l, const char *name);

/* TEXT as a whole decimal number from MIN to MAX into OUT; 0, or -1 with E
 * (E_NUMBER). */
int str_to_long(long *out, const char *text, long min, long max, struct err *e);

/* Of N NAMES the one nearest to WORD by edit distance, or NULL if none is near enough
 * to be meant (distance at most a third of the word, at least 1). */
const char *str_nearest(const char *word, const char *const *names, size_t n);

/* A set of numbers as a list string, "0-3,8,10-11"; BITS is an array of NWORDS words of
 * 64 bits, bit I of word W is number 64*W+I.  Appends to S. */
void str_add_bits(struct str *s, const uint64_t *bits, size_t nwords);

/* The first LEN bytes of SHA, as hexadecimal digits, into OUT[2*LEN+1]. */
void str_hex(char *out, const unsigned char *bytes, size_t len);

/* Nanoseconds of CLOCK_MONOTONIC, and milliseconds. */
uint64_t clock_ns(void);
uint64_t clock_ms(void);

#endif
