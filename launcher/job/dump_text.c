#include "launcher/job/dump_text.h"

#include <stdlib.h>
#include <string.h>

enum {
	CLASSES_SHOWN = 24,
	STACKS_SHOWN = 8, /* classes of which the stack is shown */
	OP_BYTES = 100
};

/* Ranks that are alike. */
struct class
{
	struct rank_set ranks;
	uint32_t n, first;
	char *key;
};

struct classes {
	struct class *v;
	size_t n;
};

/* ---- one rank ---- */

/* The length of `allreduce "x" of 4 f32, sum, begun 31 s ago` without its last part. */
static size_t op_length(const char *op)
{
	const char *comma = strrchr(op, ',');

	return comma ? (size_t)(comma - op) : strlen(op);
}

/* The innermost frame in STACK of the user's own code, which came with no package, nor
 * with Python, the C library or Berth; or the innermost one; "". */
static const char *own_frame(const char *stack, size_t *n)
{
	static const char *const parts[] = { "site-packages/", "dist-packages/",
					     "/lib/python2",   "/lib/python3",
					     "/python/berth/", "<frozen" };

	for (const char *p = stack; *p;) {
		size_t i = 0;

		*n = strcspn(p, "\n");
		while (i < sizeof parts / sizeof *parts && *p != '?' && *p != '.' &&
		       !memmem(p, *n, parts[i], strlen(parts[i])))
			i++;
		if (i == sizeof parts / sizeof *parts)
			return p;
		p += *n + (p[*n] == '\n');
	}
	*n = strcspn(stack, "\n");
	return stack;
}

/* States in which a process does not go on by itself. */
static bool is_held(char state)
{
	return state == 'D' || state == 'T' || state == 't' || state == 'Z';
}

static void add_key(struct str *out, const struct dump_rank *r)
{
	const char *frame = "";
	size_t n = 0;

	if (!r->lives || !r->known) {
		str_add(out, r->lives ? "?" : "-");
		return;
	}
	frame = own_frame(r->stack, &n);
	str_addf(out, "%d %u %u %.*s|%.*s|%c", r->runs, r->set, r->seq,
		 (int)op_length(r->op), r->op, n ? (int)n : (int)strlen(r->why),
		 n ? frame : r->why, is_held(r->state) ? r->state : ' ');
}

/* ---- classes ---- */

static int by_count(const void *a, const void *b)
{
	const struct class *x = a, *y = b;

	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static struct classes classes_of(const struct dump_facts *f)
{
	struct classes c = { xcalloc(f->np + 1, sizeof *c.v), 0 };

	for (uint32_t i = 0; i < f->np; i++) {
		struct str key = { 0 };
		size_t k = 0;

		add_key(&key, &f->v[i]);
		while (k < c.n && strcmp(c.v[k].key, str_text(&key)) != 0)
			k++;
		if (k == c.n)
			c.v[c.n++] = (struct class){ .first = i,
						     .key = xstrdup(str_text(&key)) };
		rank_set_add(&c.v[k].ranks, i);
		c.v[k].n++;
		str_free(&key);
	}
	qsort(c.v, c.n, sizeof *c.v, by_count);
	return c;
}

/* ---- the lines ---- */

static void add_class(struct str *out, const struct dump_facts *f,
		      const struct class *c)
{
	const struct dump_rank *r = &f->v[c->first];
	const char *frame, *name;
	size_t n;
	bool one_host = true;

	for (uint32_t i = c->first; rank_set_first(&c->ranks, i, &i); i++)
		one_host &= !strcmp(f->v[i].host, r->host);
	str_addf(out, "\n  %u rank%s  [", c->n, str_plural(c->n));
	rank_set_print(out, &c->ranks);
	str_add(out, "]");
	if (!r->lives || !r->known) {
		str_add(out, r->lives ? "  no answer" : "  not running");
	} else {
		if (*r->op)
			str_addf(out, "  %s %.*s", r->runs ? "in" : "last", OP_BYTES,
				 r->op);
		if (*r->op && r->seq)
			str_addf(out, " (#%u)", r->seq);
		name = frame = own_frame(r->stack, &n);
		for (const char *p = frame; p < frame + n && *p != ' '; p++)
			if (*p == '/')
				name = p + 1; /* without its folder */
		if (n)
			str_addf(out, "  %.*s", (int)(frame + n - name), name);
		if (is_held(r->state) || c->n == 1 || !(*r->op || *r->stack))
			str_addf(out, "  state %c%s%s", r->state,
				 *r->wchan ? " in " : "", r->wchan);
	}
	if (one_host)
		str_addf(out, "  on '%s'", r->host);
}

/* The frames of its first rank, the last line that it wrote. */
static void add_stack(struct str *out, const struct dump_facts *f,
		      const struct class *c)
{
	const struct dump_rank *r = &f->v[c->first];

	if (!r->lives || !r->known)
		return;
	str_addf(out, "\n  rank %u", c->first);
	if (r->quiet_ms < 0)
		str_add(out, ", no output yet");
	else
		str_addf(out, ", last output %ld.%ld s ago", r->quiet_ms / 1000,
			 r->quiet_ms % 1000 / 100);
	if (*r->last)
		str_addf(out, "; stderr: %.*s", (int)strcspn(r->last, "\n"), r->last);
	if (!*r->stack)
		str_addf(out, "\n    no stack: %s", r->why);
	for (const char *p = r->stack; *p;) {
		const size_t n = strcspn(p, "\n");

		str_addf(out, "\n    %.*s", (int)n, p);
		p += n + (p[n] == '\n');
	}
}

/* ---- what it means ---- */

static void add_who(struct str *out, const struct class *c)
{
	str_addf(out, "\n  rank%s ", str_plural(c->n));
	rank_set_print(out, &c->ranks);
}

/* The state that holds class C, if any: every rank of it is in it. */
static bool add_held(struct str *out, const struct dump_rank *r, const struct class *c)
{
	const char *s = c->n == 1 ? "is" : "are";

	if (!is_held(r->state) || r->state == 'Z')
		return false;
	add_who(out, c);
	if (r->state == 'D')
		str_addf(out, " %s blocked in the kernel (state D)%s%s", s,
			 c->n == 1 && *r->wchan ? ", in " : "",
			 c->n == 1 ? r->wchan : "");
	else
		str_addf(out,
			 r->state == 't' ? " %s held by a debugger (state t)"
					 : " %s stopped (state T)",
			 s);
	return true;
}

/* Another class, of more ranks, is in another operation of the same number. */
static const struct dump_rank *
find_other(const struct dump_facts *f, const struct classes *all, const struct class *c)
{
	const struct dump_rank *r = &f->v[c->first];

	for (const struct class *o = c + 1; o < all->v + all->n; o++) {
		const struct dump_rank *q = &f->v[o->first];

		if (q->lives && q->known && q->runs && q->ordered && q->set == r->set &&
		    q->seq == r->seq && o->n > c->n &&
		    (op_length(q->op) != op_length(r->op) ||
		     strncmp(q->op, r->op, op_length(q->op)) != 0))
			return q;
	}
	return NULL;
}

static bool add_meaning(struct str *out, const struct dump_facts *f,
			const struct classes *all, const struct class *c)
{
	const struct dump_rank *r = &f->v[c->first], *other;
	const char *frame;
	uint32_t behind = 0;
	size_t n;
	bool held;

	if (!r->lives || !r->known)
		return false;
	for (uint32_t i = c->first; rank_set_first(&c->ranks, i, &i); i++)
		behind = f->v[i].behind > behind ? f->v[i].behind : behind;
	other = r->runs && r->ordered ? find_other(f, all, c) : NULL;
	held = add_held(out, r, c);
	if (!held && !other && !(behind && !r->runs))
		return false;
	if (other) {
		add_who(out, c);
		str_addf(out, " %s in %.*s, where others are in %.*s (#%u)",
			 c->n == 1 ? "is" : "are", (int)op_length(r->op), r->op,
			 (int)op_length(other->op), other->op, r->seq);
	} else if (behind && !r->runs) {
		if (!held)
			add_who(out, c);
		str_addf(out,
			 held ? ": %u rank%s wait%s for %s"
			      : ": %u rank%s wait%s for %s, in no operation",
			 behind, str_plural(behind), behind == 1 ? "s" : "",
			 c->n == 1 ? "it" : "one of them");
	}
	frame = own_frame(r->stack, &n);
	if (n)
		str_addf(out, "; look at %.*s", (int)strcspn(frame, " \n"), frame);
	return true;
}

/* Slow or stuck: what has moved since the dump before. */
static void add_moves(struct str *out, const struct dump_facts *f)
{
	struct rank_set moved = { 0 };
	uint32_t known = 0;
	size_t n;

	for (uint32_t i = 0; i < f->np; i++) {
		known += f->v[i].was;
		if (f->v[i].was && f->v[i].moved)
			rank_set_add(&moved, i);
	}
	n = rank_set_count(&moved);
	if (!f->before_ms || !known)
		return;
	str_addf(out, "\n  since the last dump, %llu.%llu s ago, ",
		 (unsigned long long)f->before_ms / 1000,
		 (unsigned long long)f->before_ms / 100 % 10);
	if (!n) {
		str_add(out, "no rank has begun or ended an operation: stuck, or in "
			     "work of its own");
	} else {
		str_addf(out,
			 "%zu of %u ranks have begun or ended operations: slow, "
			 "not stuck [",
			 n, known);
		rank_set_print(out, &moved);
		str_add(out, "]");
	}
	rank_set_free(&moved);
}

void dump_text(struct str *out, const struct dump_facts *f)
{
	struct classes c = classes_of(f);
	struct str said = { 0 };
	uint32_t lives = 0;

	for (uint32_t i = 0; i < f->np; i++)
		lives += f->v[i].lives;
	str_addf(out, "runner: dump of job %.8s: %u rank%s, %u running", f->job, f->np,
		 str_plural(f->np), lives);
	for (size_t i = 0; i < c.n && i < CLASSES_SHOWN; i++)
		add_class(out, f, &c.v[i]);
	if (c.n > CLASSES_SHOWN)
		str_addf(out, "\n  %zu more groups", c.n - CLASSES_SHOWN);
	for (size_t i = 0; i < c.n && i < STACKS_SHOWN; i++)
		add_meaning(&said, f, &c, &c.v[i]);
	add_moves(&said, f);
	if (said.len)
		str_addf(out, "\nread this as%s", str_text(&said));
	str_add(out, "\nstacks, innermost first");
	for (size_t i = 0; i < c.n && i < STACKS_SHOWN; i++)
		add_stack(out, f, &c.v[i]);
	str_add(out, "\n");
	str_free(&said);
	for (size_t i = 0; i < c.n; i++) {
		rank_set_free(&c.v[i].ranks);
		free(c.v[i].key);
	}
	free(c.v);
}
