/* err.h - one error, on the caller's stack.
 *
 * The deepest layer sets the error (err_set).  Each layer above may put its subject in
 * front (err_in).  Only main prints.  Sentences, hints and exit statuses come from
 * common/errors.def.  Idea: crun's error object and git's message grammar. */
#ifndef BERTH_ERR_H
#define BERTH_ERR_H

#include <stdbool.h>
#include <stddef.h>

#include "common/banned.h" /* IWYU pragma: export */
#include "common/exits.h"  /* IWYU pragma: export */

enum err_id {
	ERR_NONE,
#define ERR(id, status, sentence, hint) id,
#include "common/errors.def"
#undef ERR
	ERR_COUNT
};

/* Each sentence has a name, so that the compiler checks err_set() like printf(). */
#define ERR(id, status, sentence, hint)                                                \
	static const char err_sentence_##id[] __attribute__((unused)) = sentence;
#include "common/errors.def"
#undef ERR

/* {0} is "no error". */
struct err {
	enum err_id id;
	/* One line, lower case, no full stop, no bytes that act on a terminal. */
	char text[1024];
	char hint[512]; /* the option, file or command that fixes it; "" for none */
};

/* Fill E with the sentence of ID and its arguments.  Always -1, so that a caller can
 * return it.  If E is NULL, the error is dropped. */
#define err_set(e, id, ...) err_set_text((e), (id), err_sentence_##id, ##__VA_ARGS__)
int err_set_text(struct err *e, enum err_id id, const char *sentence, ...)
	__attribute__((format(printf, 3, 4)));

/* Put "where: " in front of E's text.  Always -1. */
int err_in(struct err *e, const char *where, ...) __attribute__((format(printf, 2, 3)));

/* Replace the hint of the table.  Always -1. */
int err_hint(struct err *e, const char *hint, ...)
	__attribute__((format(printf, 2, 3)));

/* runner's exit status for error ID, and the hint of the table. */
int err_status(enum err_id id);
const char *err_row_hint(enum err_id id);

/* "E_NP", and back (ERR_NONE for an unknown name). */
const char *err_name(enum err_id id);
enum err_id err_by_name(const char *name);

/* The bytes of the UTF-8 character at TEXT, or 0 if it is not one (RFC 3629). */
size_t str_utf8(const char *text);
/* Make a TEXT from any source safe to show.  Control characters other than tabs, and
 * bytes that are not UTF-8, become '?'.  So TEXT is one line and does not act on a
 * terminal.  Returns TEXT. */
char *str_plain(char *text);

/* Write "PROGRAM: TEXT\nhint: HINT\n" to stderr in one write. */
void err_print(const char *program, const struct err *e);

#endif
