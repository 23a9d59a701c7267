/* format.h - pure: texts, words of a command and times, as reports show them. */
#ifndef BERTH_LAUNCHER_INSIGHT_FORMAT_H
#define BERTH_LAUNCHER_INSIGHT_FORMAT_H

#include <stddef.h>

struct str;
struct strv;

enum { FORMAT_BYTES = 1024 }; /* of each text; a longer one is cut */

/* Append TEXT, without its end if it is long; that is marked. */
void format_cut(struct str *out, const char *text);
/* Append word K of ARGV, whole; a secret, also in the word behind its option, is
 * hidden. */
void format_word(struct str *out, const struct strv *argv, size_t k);
/* The name of a variable "NAME=VALUE" to NAME, and its value as it may be shown. */
void format_variable(struct str *name, struct str *value, const char *variable);
/* Seconds as people say them: "41 min", "4 min 7 s", "3.2 s". */
void format_time(struct str *out, double s);
/* "2026-11-29 10:20:42 UTC" */
void format_date(struct str *out, double t);

#endif
