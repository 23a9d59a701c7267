/* libFuzzer on lines.h: the first byte chooses a file, a dumb terminal or one that
 * draws.  Then come steps: a stream (0 to 5) and N bytes that it writes, or another
 * byte: an event.  In a file each line has the label of one stream, and a stream that
 * writes no '\r' loses nothing. */
#include "launcher/output/lines.h"

enum { STREAMS = 6, EVENTS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct rig {
	struct line_stream s[STREAMS];
	struct str sent[STREAMS];
	struct lines l;
	struct buf out;
};

static void event(struct rig *g, unsigned which)
{
	if (which == 0)
		lines_note(&g->l, "[9]\n", 4);
	if (which == 1)
		lines_draw(&g->l);
	if (which == 2 && g->l.terminal)
		lines_typed(&g->l);
	for (int i = 0; which == 3 && i < STREAMS; i++)
		if (lines_wait_ms(&g->l, &g->s[i]) != LINES_NEVER)
			lines_show(&g->l, &g->s[i]);
}

/* The stream whose label begins the N bytes at P, or -1: a note of runner. */
static int stream_of(const char *p, size_t n, size_t *label)
{
	unsigned rank;
	char what[4];
	int used = 0;
	char head[32] = "";

	memcpy(head, p, n < sizeof head - 1 ? n : sizeof head - 1);
	if (!strncmp(head, "[9]\n", 4))
		return -1;
	if (sscanf(head, "[%1u]<std%3[outer]>:%n", &rank, what, &used) != 2 || !used ||
	    rank >= STREAMS / 2)
		abort();
	*label = (size_t)used;
	return (int)(2 * rank + (what[0] == 'e'));
}

static void check_file(struct rig *g)
{
	const char *at = (const char *)buf_head(&g->out), *stop = at + g->out.len;
	struct str got[STREAMS] = { 0 };

	while (at < stop) {
		const char *nl = memchr(at, '\n', (size_t)(stop - at));
		const char *end = nl ? nl + 1 : stop;
		size_t label = 0;
		int i = stream_of(at, (size_t)(end - at), &label);

		if (i >= 0)
			str_addn(&got[i], at + label, (size_t)(end - at) - label);
		at = end;
	}
	for (int i = 0; i < STREAMS; i++) {
		struct str *sent = &g->sent[i];

		/* a last line without its end may get one */
		if (got[i].len == sent->len + 1)
			str_add(sent, "\n");
		if (!memchr(str_text(sent), '\r', sent->len) &&
		    (got[i].len != sent->len ||
		     memcmp(str_text(&got[i]), str_text(sent), sent->len) != 0))
			abort();
		str_free(&got[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rig g = { 0 };

	if (!size)
		return 0;
	g.l = (struct lines){ .out = &g.out,
			      .terminal = *data % 3 > 0,
			      .drawing = *data % 3 > 1 };
	for (uint32_t i = 0; i < STREAMS; i++)
		g.s[i].index = i;
	data++, size--;
	while (size) {
		size_t n;

		if (*data >= STREAMS) {
			event(&g, *data % EVENTS);
			data++, size--;
			continue;
		}
		if (size < 2)
			break;
		n = data[1] < size - 2 ? data[1] : size - 2;
		str_addn(&g.sent[*data], data + 2, n);
		lines_put(&g.l, &g.s[*data], (const char *)data + 2, n);
		data += 2 + n, size -= 2 + n;
	}
	for (int i = 0; i < STREAMS; i++)
		lines_finish(&g.l, &g.s[i]);
	lines_draw(&g.l);
	if (!g.l.terminal && g.out.len)
		check_file(&g);
	for (int i = 0; i < STREAMS; i++) {
		lines_free_stream(&g.s[i]);
		str_free(&g.sent[i]);
	}
	buf_free(&g.out);
	return 0;
}
