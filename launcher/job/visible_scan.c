/* visible_scan.c - the pure half of visible.h: what Python source says of devices.
 *
 * Collect the names that hold a local rank, then look for a device made of one.  No
 * parser: a wrong guess costs one option, and says so. */
#include <ctype.h>

#include "launcher/job/pycode.h"
#include "launcher/job/gpu_visible.h"

enum {
	NAMES_MAX = 64,
	NAME_BYTES = 64,
	SPAN_MAX = 1024 /* bytes of one expression looked at: time stays linear */
};

/* ---- names ---- */

struct names {
	char v[NAMES_MAX][NAME_BYTES];
	size_t n;
};

struct scan {
	const char *code;
	struct names ranks;   /* hold a local rank */
	struct names devices; /* hold what the program found itself: current_device() */
	struct names classes; /* defined here: a Trainer that is nobody else's */
	const char *hit;      /* where in code, NULL: nothing yet */
};

/* A stretch of code. */
struct span {
	const char *s, *e;
};

static bool is(struct span w, const char *word)
{
	return strlen(word) == (size_t)(w.e - w.s) && !memcmp(w.s, word, strlen(word));
}

static bool names_have(const struct names *l, struct span w)
{
	for (size_t i = 0; i < l->n; i++)
		if (is(w, l->v[i]))
			return true;
	return false;
}

static bool names_add(struct names *l, struct span w)
{
	size_t n = (size_t)(w.e - w.s);

	if (n == 0 || n >= NAME_BYTES || l->n == NAMES_MAX || names_have(l, w))
		return false;
	memcpy(l->v[l->n], w.s, n);
	l->v[l->n++][n] = '\0';
	return true;
}

static bool is_any(struct span w, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is(w, words[i]))
			return true;
	return false;
}

#define IS_ANY(w, words) is_any((w), (words), sizeof(words) / sizeof *(words))

static const char *skip_blanks(const char *p)
{
	return p + strspn(p, " ");
}

/* The next word in [P, E), or an empty span at E. */
static struct span next_word(const char *p, const char *e)
{
	struct span w;

	while (p < e && !pycode_is_word(*p))
		p++;
	w.s = p;
	while (p < e && pycode_is_word(*p))
		p++;
	w.e = p;
	return w;
}

/* The bracket that closes the one at P, or the statement's end. */
static const char *closing(const char *p)
{
	const char *start = p;
	int depth = 0;

	for (; *p && *p != '\n' && p - start < SPAN_MAX; p++) {
		if (strchr("([{", *p))
			depth++;
		else if (strchr(")]}", *p) && --depth == 0)
			break;
	}
	return p;
}

/* The end of the expression at P: a ',' or a closing bracket of a surrounding one. */
static const char *expression_end(const char *p)
{
	const char *start = p;

	for (int depth = 0; *p && *p != '\n' && p - start < SPAN_MAX; p++) {
		if (strchr("([{", *p))
			depth++;
		else if (strchr(")]}", *p) && --depth < 0)
			break;
		else if (*p == ',' && depth == 0)
			break;
	}
	return p;
}

/* P is at an '=' that gives a value, to a variable or to a keyword. */
static bool gives_value(const char *p)
{
	return *p == '=' && p[1] != '=';
}

static bool has_word(struct span in, const char *word)
{
	for (struct span w = next_word(in.s, in.e); w.s < w.e; w = next_word(w.e, in.e))
		if (is(w, word))
			return true;
	return false;
}

/* The word right before P, blanks left out; empty where another character stands there.
 */
static struct span word_before(const char *start, const char *p)
{
	struct span w;

	while (p > start && p[-1] == ' ')
		p--;
	w.e = p;
	while (p > start && pycode_is_word(p[-1]))
		p--;
	w.s = p;
	return w;
}

/* W is only asked about: "local_rank == 0", "if local_rank", "LOCAL_RANK in environ".
 */
static bool is_asked(const struct scan *s, struct span w)
{
	static const char *const ask[] = { "if",  "elif", "while", "not",
					   "and", "or",   "assert" };
	static const char *const test[] = { "in", "is", "not" };
	const char *p = w.e, *before = w.s;

	while (*p && strchr(" ()]", *p))
		p++;
	if ((p[0] == '=' && p[1] == '=') || (p[0] == '!' && p[1] == '=') || *p == '<' ||
	    *p == '>')
		return true;
	if (IS_ANY(next_word(p, p + strcspn(p, " \n")), test))
		return true;
	while (before > s->code && (pycode_is_word(before[-1]) || before[-1] == '.'))
		before--;
	if (IS_ANY(word_before(s->code, before), ask))
		return true;
	while (before > s->code && before[-1] == ' ')
		before--;
	if (before > s->code && (before[-1] == '<' || before[-1] == '>'))
		return true;
	return before > s->code + 1 && before[-1] == '=' && strchr("=!<>", before[-2]);
}

/* The value of [IN) depends on a local rank.  Modulo device_count() it doesn't matter:
 * with one GPU in sight that is 0. */
static bool uses_rank(const struct scan *s, struct span in)
{
	if (has_word(in, "device_count"))
		return false;
	for (struct span w = next_word(in.s, in.e); w.s < w.e;
	     w = next_word(w.e, in.e)) {
		const char *after = skip_blanks(w.e);

		if (!pycode_is_rank(w.s, (size_t)(w.e - w.s)) &&
		    !names_have(&s->ranks, w))
			continue;
		if (*after != '.' && !gives_value(after) && !is_asked(s, w))
			return true;
	}
	return false;
}

/* Every function called in [IN) hands a number through. */
static bool is_value(struct span in)
{
	static const char *const through[] = { "int", "str", "get",    "getenv",
					       "pop", "min", "device", "format",
					       "max", "abs" };

	for (struct span w = next_word(in.s, in.e); w.s < w.e; w = next_word(w.e, in.e))
		if (*skip_blanks(w.e) == '(' && !IS_ANY(w, through) &&
		    !pycode_is_rank(w.s, (size_t)(w.e - w.s)))
			return false;
	return true;
}

/* The last '=' of an assignment in the statement, or NULL. */
static const char *assignment(struct span st)
{
	const char *found = NULL;
	int depth = 0;

	for (const char *p = st.s; p < st.e; p++) {
		if (strchr("([{", *p))
			depth++;
		else if (strchr(")]}", *p))
			depth--;
		else if (*p == '=' && p[1] == '=')
			p++;
		else if (*p == '=' && depth == 0 && p > st.s && !strchr("!<>", p[-1]))
			found = p;
	}
	return found;
}

/* Collect what the statement gives a value to; true if that was new. */
static bool collect(struct scan *s, struct span st)
{
	static const char *const block[] = {
		"if", "else", "elif", "for", "with", "try"
	};
	const char *equals = assignment(st), *colon;
	struct span value, target;
	struct names *into;

	if (!equals)
		return false;
	value = (struct span){ equals + 1, st.e };
	if (has_word(value, "current_device") || has_word(value, "device_count"))
		into = &s->devices;
	else if (uses_rank(s, value) && is_value(value))
		into = &s->ranks;
	else
		return false;
	colon = memchr(st.s, ':', (size_t)(equals - st.s));
	if (colon && !IS_ANY(next_word(st.s, st.e), block))
		equals = colon; /* name: type = value */
	target = word_before(st.s, equals);
	return names_add(into, target);
}

static bool is_trainer(struct span w)
{
	static const char *const others[] = { "BpeTrainer", "UnigramTrainer",
					      "WordLevelTrainer", "WordPieceTrainer" };

	return w.e - w.s >= 7 && !memcmp(w.e - 7, "Trainer", 7) && !IS_ANY(w, others);
}

/* A class of this file is its own affair, unless it is made from a library's Trainer.
 */
static void collect_class(struct scan *s, struct span st)
{
	struct span name = next_word(next_word(st.s, st.e).e, st.e);

	for (struct span w = next_word(name.e, st.e); w.s < w.e;
	     w = next_word(w.e, st.e))
		if (is_trainer(w))
			return;
	names_add(&s->classes, name);
}

/* ---- devices ---- */

/* The call or assignment makes a device of something that is neither a constant nor
 * what the program found by itself. */
static bool is_chosen(const struct scan *s, struct span in)
{
	static const char *const constant[] = {
		"None", "True", "False", "str", "int",
		"join", "map",  "list",  "len", "range"
	};

	if (has_word(in, "device_count") || has_word(in, "current_device"))
		return false;
	for (struct span w = next_word(in.s, in.e); w.s < w.e; w = next_word(w.e, in.e))
		if (!isdigit((unsigned char)*w.s) && !IS_ANY(w, constant) &&
		    *skip_blanks(w.e) != '.')
			return !names_have(&s->devices, w);
	return false;
}

/* What the last [...] of IN holds, as of "[local_rank]" and "[gpus[i]]"; empty where
 * that is a list of several. */
static struct span subscript(struct span in)
{
	const char *open = memrchr(in.s, '[', (size_t)(in.e - in.s)), *close;

	if (!open)
		return (struct span){ in.e, in.e };
	close = closing(open);
	if (memchr(open, ',', (size_t)(close - open)))
		return (struct span){ in.e, in.e };
	return (struct span){ open + 1, close };
}

static bool call_hits(const struct scan *s, struct span w, const char *open)
{
	static const char *const launched[] = { "Accelerator", "PartialState", "Fabric",
						"LightningCLI", "launch_from_torch" };
	struct span args = { open + 1, closing(open) };
	bool method = w.s > s->code && w.s[-1] == '.';

	if ((is_trainer(w) || IS_ANY(w, launched)) && !names_have(&s->classes, w))
		return true;
	if (is(w, "set_visible_devices"))
		return uses_rank(s, args) || is_chosen(s, subscript(args));
	if (is(w, "to") || is(w, "cuda")) {
		args.e = expression_end(args.s);
		return method && uses_rank(s, args);
	}
	for (const char *p = w.s; p + 6 <= w.e; p++)
		if (!strncasecmp(p, "device", 6))
			return uses_rank(s, args);
	return false;
}

static bool value_hits(const struct scan *s, struct span w, const char *equals)
{
	static const char *const device[] = {
		"device",           "device_id",    "device_ids",          "device_idx",
		"device_index",     "cuda_device",  "visible_device_list", "gpu_device",
		"local_device_ids", "output_device"
	};
	struct span value = { equals + 1, expression_end(equals + 1) };

	if (!IS_ANY(w, device))
		return false;
	if (uses_rank(s, value))
		return true;
	if (is(w, "device_ids"))
		return is_chosen(s, subscript(value));
	return is(w, "visible_device_list") && is_chosen(s, value);
}

static bool word_hits(const struct scan *s, struct span w, struct span before)
{
	const char *after = skip_blanks(w.e);

	if (is(w, "deepspeed"))
		return (w.s == s->code || w.s[-1] != '.') &&
		       (*after == '.' || is(before, "import") || is(before, "from"));
	if (is(w, "cuda") && *w.e == PYCODE_CUDA)
		return uses_rank(s, (struct span){ w.e, expression_end(w.e + 1) });
	if (*after == '(')
		return call_hits(s, w, after);
	return gives_value(after) && value_hits(s, w, after);
}

/* The statement without the head of a function or class: its names are no uses. */
static struct span body(struct span st)
{
	static const char *const heads[] = { "def", "class", "async" };
	const char *open;

	if (!IS_ANY(next_word(st.s, st.e), heads))
		return st;
	open = memchr(st.s, '(', (size_t)(st.e - st.s));
	return (struct span){ open ? closing(open) : st.e, st.e };
}

static void look(struct scan *s, struct span st)
{
	struct span before = { st.s, st.s }, w;

	st = body(st);
	for (w = next_word(st.s, st.e); w.s < w.e && !s->hit;
	     w = next_word(w.e, st.e)) {
		if (word_hits(s, w, before))
			s->hit = w.s;
		before = w;
	}
}

static struct span statement(const char *p)
{
	return (struct span){ p, p + strcspn(p, "\n") };
}

/* Call the names that hold a rank; again while a pass finds more, a few times. */
static void collect_all(struct scan *s)
{
	bool more = true;

	for (int pass = 0; pass < 4 && more; pass++) {
		more = false;
		for (const char *p = s->code; *p;) {
			struct span st = statement(p);

			if (pass == 0 && is(next_word(st.s, st.e), "class"))
				collect_class(s, st);
			more |= collect(s, st);
			p = *st.e ? st.e + 1 : st.e;
		}
	}
}

enum gpu_visible visible_scan(const char *text, size_t n, size_t *line, char *word,
			      size_t word_bytes)
{
	char *code = pycode_only(text, n);
	struct scan s = { .code = code };

	collect_all(&s);
	for (const char *p = code; *p && !s.hit;) {
		struct span st = statement(p);

		look(&s, st);
		p = *st.e ? st.e + 1 : st.e;
	}
	if (s.hit && line) {
		*line = 1;
		for (const char *p = text; p < text + (s.hit - code); p++)
			*line += *p == '\n';
	}
	if (s.hit && word)
		snprintf(word, word_bytes, "%.*s",
			 (int)(next_word(s.hit, code + n).e - s.hit), s.hit);
	free(code);
	return s.hit ? VISIBLE_NODE : VISIBLE_ONE;
}
