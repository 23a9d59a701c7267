/* lines.h - what many streams write, as lines on one terminal, or in one file or pipe.
 *
 * Pure: bytes in, bytes out.  A line of the result belongs to one stream, and begins
 * with its label.  Lines of one stream keep their order, and no byte is changed.
 *
 * Text up to a '\r' without '\n' is an update.  An empty one does not count, and a
 * blank one erases the update before it.
 *
 *   a file or pipe: an update gives way to the next one.  It is written as a line if
 *       other text follows, at the end, and every LINES_UPDATE_MS.  If "\n" alone
 *       follows, that ends its line.
 *   a terminal: the last update of all streams stands below the lines, and is drawn
 *       again after each of them.  It is cut at the right edge: the terminal's
 *       automatic wrap is off while it is drawn.  A line of its own stream takes its
 *       place.  Text without an end is shown after LINES_PARTIAL_MS; if another stream
 *       writes then, a '\n' ends it, and its rest gets a label of its own. */
#ifndef BERTH_LAUNCHER_OUTPUT_LINES_H
#define BERTH_LAUNCHER_OUTPUT_LINES_H

#include <stdbool.h>
#include <sys/queue.h>

#include "common/buf.h"
#include "common/str.h"
#include "launcher/output/coalesce.h"

enum {
	LINES_PARTIAL_MS = 200,
	LINES_UPDATE_MS = 10000,
	LINES_NEVER = -1,
	LINES_LABEL_BYTES = 40,
	LINES_STAMP_COLUMNS = 30 /* of "2026-11-22T08:24:33.123+01:00 " */
};

/* One stream of a rank.  {.index = ...} has written nothing. */
struct line_stream {
	uint32_t index; /* 2 * rank + (stream - 1) */
	uint8_t label_bytes;
	bool after_update; /* a '\r' came behind the last '\n' */
	bool written;      /* the update before LINE was written as a line */
	bool waits;        /* in the caller's list */
	char label[LINES_LABEL_BYTES]; /* made at the first line */
	struct str line;               /* bytes behind the last '\n' or '\r' */
	struct str update;             /* the last update, if it was not written */
	size_t shown;                  /* bytes of LINE that are on the terminal */
	uint64_t since_ms;             /* the caller's: when it began to wait */
	TAILQ_ENTRY(line_stream) next;
};

/* The terminal, file or pipe. */
struct lines {
	struct buf *out;
	enum tag_style tag_style;
	bool colour;
	bool terminal; /* text without an end is shown */
	bool drawing;  /* and it knows the sequences that erase a line */
	/* the time in front of each line, or empty: the caller's */
	char stamp[40];
	size_t stamp_bytes;
	/* its last line has no end yet, and is of this stream */
	const struct line_stream *open;
	/* drawing: the stream of the last update; whether that is on the last line */
	struct line_stream *bar;
	bool drawn, drawn_new;
	unsigned drawn_above; /* rows that it takes above the last one */
	/* equal lines of several ranks become one; NULL: they do not */
	struct coalesce *equal;
	uint64_t now_ms; /* for that: the caller's */
};

/* N bytes of S.  A line longer than 64 KiB is passed on in parts. */
void lines_put(struct lines *l, struct line_stream *s, const char *p, size_t n);
/* N bytes as they are; whether their end begins a line is noted with S. */
void lines_put_raw(struct lines *l, const struct line_stream *s, const char *p,
		   size_t n);
/* N bytes of runner itself: whole lines. */
void lines_note(struct lines *l, const char *p, size_t n);
/* Pass on what S holds, as one line is too long or all together are.  */
void lines_pass_on(struct lines *l, struct line_stream *s);
/* How long S waits before lines_show(), in milliseconds, or LINES_NEVER. */
int lines_wait_ms(const struct lines *l, const struct line_stream *s);
/* S has waited so long: show its text without an end, or write its update. */
void lines_show(struct lines *l, struct line_stream *s);
/* The status of runner itself onto the last rows of a terminal that can erase them, in
 * place of the one before; NULL or "": none.  OWN, its stream, has no other text.  The
 * update of a rank stands there instead, if there is one. */
void lines_status(struct lines *l, struct line_stream *own, const char *text);
/* The last update onto the terminal; before a write, as each line erases it. */
void lines_draw(struct lines *l);
/* The user ended a line: the cursor stands at the beginning of one. */
void lines_typed(struct lines *l);
/* Write the equal lines that have waited long enough, or ALL.  How long the next one
 * waits then, in milliseconds, or LINES_NEVER. */
int lines_put_equal(struct lines *l, bool all);
/* No more comes of S: pass on what it holds. */
void lines_finish(struct lines *l, struct line_stream *s);

static inline size_t lines_held(const struct line_stream *s)
{
	return s->line.len + s->update.len;
}

/* Columns of the widest label of NP ranks, with the time in front if STAMPED. */
unsigned lines_label_columns(enum tag_style style, bool stamped, uint32_t np);

void lines_free_stream(struct line_stream *s);

#endif
