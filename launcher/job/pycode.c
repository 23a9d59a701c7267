#include "launcher/job/pycode.h"

#include <ctype.h>

#include "common/str.h"

enum { NESTING_MAX = 16 }; /* f-strings inside f-strings */

struct lexer {
	const char *in;
	char *out; /* as long as in, blank at first */
	size_t n, i;
	int depth; /* of brackets */
};

bool pycode_is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool ends_with(const char *s, size_t n, const char *end)
{
	size_t len = strlen(end);

	return n >= len && !strncasecmp(s + n - len, end, len);
}

bool pycode_is_rank(const char *s, size_t n)
{
	static const char *const whole[] = { "rank", "get_rank", "global_rank",
					     "world_rank" };

	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		if (n == strlen(whole[i]) && !strncasecmp(s, whole[i], n))
			return true;
	return ends_with(s, n, "local_rank") || ends_with(s, n, "localrank") ||
	       ends_with(s, n, "local_rankid") || ends_with(s, n, "localrankid") ||
	       ends_with(s, n, "slurm_localid");
}

static bool is_cuda(const char *s, size_t n)
{
	return n >= 5 && !memcmp(s, "cuda:", 5) &&
	       (n == 5 || s[5] == '%' || s[5] == '{');
}

static void keep(struct lexer *x, size_t from, size_t to)
{
	memcpy(x->out + from, x->in + from, to - from);
}

static void keep_cuda(struct lexer *x, size_t at)
{
	memcpy(x->out + at, "cuda", 4);
	x->out[at + 4] = PYCODE_CUDA;
}

/* Of a plain string only two kinds say something: a variable's name and "cuda:...". */
static void keep_plain(struct lexer *x, size_t from, size_t to)
{
	size_t i = from;

	while (i < to && pycode_is_word(x->in[i]))
		i++;
	if (i == to && to - from > 4 && pycode_is_rank(x->in + from, to - from))
		keep(x, from, to);
	else if (is_cuda(x->in + from, to - from))
		keep_cuda(x, from);
}

static void read_code(struct lexer *x, bool in_f_string, int nesting);

/* An f-string's expression with its braces; i is at '{'. */
static void read_braces(struct lexer *x, int nesting)
{
	keep(x, x->i, x->i + 1);
	x->i++;
	read_code(x, true, nesting + 1);
	if (x->i < x->n && x->in[x->i] == '}')
		keep(x, x->i, x->i + 1);
	x->i++;
}

static bool at_end(const struct lexer *x, char quote, size_t width)
{
	if (x->i + width > x->n)
		return false;
	for (size_t k = 0; k < width; k++)
		if (x->in[x->i + k] != quote)
			return false;
	return true;
}

/* A string; i is at its first quote.  FORMAT: an f-string. */
static void read_string(struct lexer *x, bool format, int nesting)
{
	char quote = x->in[x->i];
	size_t width = 1, from;

	if (x->i + 2 < x->n && x->in[x->i + 1] == quote && x->in[x->i + 2] == quote)
		width = 3;
	x->i += width;
	from = x->i;
	if (format && is_cuda(x->in + from, x->n - from))
		keep_cuda(x, from);
	while (x->i < x->n && !at_end(x, quote, width)) {
		char c = x->in[x->i], next = x->i + 1 < x->n ? x->in[x->i + 1] : '\0';

		if (c == '\n' && width == 1)
			break; /* not closed: not Python, or cut off */
		if (c == '\\' || (format && c == '{' && next == '{'))
			x->i += 2;
		else if (format && c == '{' && nesting < NESTING_MAX)
			read_braces(x, nesting);
		else
			x->i++;
	}
	if (x->i > x->n)
		x->i = x->n;
	if (!format)
		keep_plain(x, from, x->i);
	if (at_end(x, quote, width))
		x->i += width;
}

/* A word, which may be the prefix of a string. */
static void read_word(struct lexer *x, int nesting)
{
	size_t from = x->i;
	bool format = false, prefix;

	while (x->i < x->n && pycode_is_word(x->in[x->i])) {
		format = format || strchr("fFtT", x->in[x->i]);
		x->i++;
	}
	prefix = x->i - from <= 2 && x->i < x->n &&
		 (x->in[x->i] == '"' || x->in[x->i] == '\'');
	if (prefix)
		read_string(x, format, nesting);
	else
		keep(x, from, x->i);
}

/* One character that is neither of a word nor of a string. */
static void read_char(struct lexer *x)
{
	char c = x->in[x->i];

	if (strchr("([{", c) && c)
		x->depth++;
	else if (strchr(")]}", c) && c && x->depth > 0)
		x->depth--;
	if (c == '\\' && x->i + 1 < x->n && x->in[x->i + 1] == '\n')
		x->i++; /* a line that goes on */
	else if (c != '\n' || x->depth == 0)
		x->out[x->i] = isspace((unsigned char)c) && c != '\n' ? ' ' : c;
	x->i++;
}

/* Code up to the end, or to the '}' or format of an f-string's expression. */
static void read_code(struct lexer *x, bool in_f_string, int nesting)
{
	int depth = x->depth;

	if (in_f_string)
		x->depth++;
	while (x->i < x->n) {
		char c = x->in[x->i];

		if (in_f_string && x->depth == depth + 1 && c == '}')
			break;
		if (c == '#') {
			while (x->i < x->n && x->in[x->i] != '\n')
				x->i++;
			if (in_f_string)
				break;
		} else if (c == '"' || c == '\'') {
			read_string(x, false, nesting);
		} else if (pycode_is_word(c)) {
			read_word(x, nesting);
		} else {
			read_char(x);
		}
	}
	if (in_f_string)
		x->depth = depth;
}

char *pycode_only(const char *text, size_t n)
{
	struct lexer x = { .in = text, .out = xmalloc(n + 1), .n = n };

	memset(x.out, ' ', n);
	x.out[n] = '\0';
	read_code(&x, false, 0);
	for (size_t i = 0; i < n; i++)
		if (!x.out[i] || x.out[i] == ';')
			x.out[i] = x.out[i] ? '\n' : ' ';
	return x.out;
}
