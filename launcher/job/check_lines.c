#include "launcher/job/check_lines.h"

#include "launcher/hosts.h"

void check_lines_add(struct check_items *l, size_t host, enum check_row row,
		     enum check_verdict verdict, const char *text, const char *hint)
{
	if (l->n == l->room) {
		l->room = l->room ? 2 * l->room : 64;
		l->v = xreallocarray(l->v, l->room, sizeof *l->v);
	}
	l->v[l->n++] =
		(struct check_item){ row, verdict, host, str_plain(xstrdup(text)),
				     str_plain(xstrdup(hint)) };
}

void check_lines_free(struct check_items *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].text);
		free(l->v[i].hint);
	}
	free(l->v);
	*l = (struct check_items){ 0 };
}

/* A host has found something in ROW, well or for a note. */
static bool has_found(const struct check_item *v, enum check_row row)
{
	return v->row == row && (v->verdict == CHECK_OK || v->verdict == CHECK_NOTED);
}

/* If the first N items say that ROW is not the same on all hosts, it has VERDICT. */
static void compare_row(struct check_items *l, size_t n, enum check_row row,
			enum check_verdict verdict, const char *hint)
{
	const struct check_item *first = NULL;
	bool differ = false;

	for (size_t i = 0; i < n; i++) {
		if (!has_found(&l->v[i], row))
			continue;
		differ |= first && strcmp(first->text, l->v[i].text) != 0;
		first = first ? first : &l->v[i];
	}
	for (size_t i = 0; differ && i < n; i++) {
		if (!has_found(&l->v[i], row))
			continue;
		l->v[i].verdict = verdict;
		free(l->v[i].hint);
		l->v[i].hint = xstrdup(hint);
	}
}

/* Adds a note of what NCCL does not protect, if more than one of the hosts has it. */
static void note_nccl(struct check_items *l)
{
	static const char text[] = "what NCCL sends between hosts is neither "
				   "authenticated nor encrypted";
	static const char hint[] =
		"with BERTH_NET_SECURE=aead libberth takes arrays in GPU memory "
		"through the host's memory instead";
	const struct check_item *first = NULL;
	const size_t n = l->n;
	bool several = false;

	for (size_t i = 0; i < n; i++) {
		if (l->v[i].row != CHECK_NCCL || l->v[i].verdict != CHECK_OK)
			continue;
		several |= first && first->host != l->v[i].host;
		first = first ? first : &l->v[i];
	}
	for (size_t i = 0; several && i < n; i++)
		if (l->v[i].row == CHECK_NCCL && l->v[i].verdict == CHECK_OK)
			check_lines_add(l, l->v[i].host, CHECK_NCCL, CHECK_NOTED, text,
					hint);
}

void check_lines_compare(struct check_items *l)
{
	const size_t n = l->n;

	note_nccl(l); /* while its rows are as the hosts said */
	compare_row(l, n, CHECK_GPUS, CHECK_FAILED,
		    "name hosts with equal GPUs and drivers");
	compare_row(
		l, n, CHECK_NCCL, CHECK_WARNED,
		"install one version on all hosts: NCCL joins no others, and libberth "
		"then takes arrays in GPU memory through the host's memory");
}

/* By rows; in a row as lines are told apart, then by hosts. */
static int lines_compare(const void *a, const void *b)
{
	const struct check_item *x = a, *y = b;
	int c;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	if (x->verdict != y->verdict)
		return x->verdict < y->verdict ? -1 : 1;
	c = strcmp(x->text, y->text);
	return c ? c : (x->host > y->host) - (x->host < y->host);
}

static void print_line(struct str *out, const struct check_item *v, size_t n,
		       const char *const *names)
{
	static const char *const rows[] = { CHECK_ROW_NAMES };
	static const char *const verdicts[] = { "ok", "FAIL", "skip", "warn", "note" };
	const char **list = xcalloc(n, sizeof *list);
	size_t nlist = 0;

	for (size_t i = 0; i < n; i++) /* a host of several apps may say it twice */
		if (!i || v[i].host != v[i - 1].host)
			list[nlist++] = names[v[i].host];
	str_addf(out, "%-4s  %-7s  ", verdicts[v->verdict], rows[v->row]);
	hosts_fold(out, list, nlist);
	str_addf(out, "%s%s\n", *v->text ? ": " : "", v->text);
	if (v->verdict != CHECK_OK && v->verdict != CHECK_SKIPPED && *v->hint)
		str_addf(out, "      hint: %s\n", v->hint);
	free(list);
}

size_t check_lines_print(struct str *out, const struct check_items *l,
			 const char *const *names, bool failed_only)
{
	struct check_item *v = xcalloc(l->n, sizeof *v);
	size_t failed = 0, n;

	if (l->n) {
		memcpy(v, l->v, l->n * sizeof *v);
		qsort(v, l->n, sizeof *v, lines_compare);
	}
	for (size_t i = 0; i < l->n; i += n) {
		for (n = 1; i + n < l->n && v[i].row == v[i + n].row &&
			    v[i].verdict == v[i + n].verdict &&
			    !strcmp(v[i].text, v[i + n].text);)
			n++;
		failed += v[i].verdict == CHECK_FAILED;
		if (!failed_only || v[i].verdict == CHECK_FAILED)
			print_line(out, &v[i], n, names);
	}
	free(v);
	return failed;
}
