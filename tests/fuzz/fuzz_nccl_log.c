/* libFuzzer on nccl_log.h, and by it on nccl_line.h, nccl_pairs.h and nccl_report.h:
 * the input is a log.  It is read twice, as a file and as what three ranks write in
 * turns, in parts of any size. */
#include "fuzz.h"

#include "launcher/output/nccl_log.h"
#include "launcher/output/nccl_report.h"

enum { RANKS = 3, ROW_COLUMNS = 100 };

/* Rows have their columns, and no text has a byte that moves the cursor. */
static void check_report(struct nccl_log *l)
{
	const struct nccl_pairs *p = nccl_log_pairs(l);
	struct strv texts = { 0 }, hints = { 0 };
	struct str out = { 0 };
	char *line, *rest;

	nccl_report_table(&out, p);
	rest = str_take(&out);
	for (char *at = rest, *next = strchr(at, '\n'); next; at = next) {
		next = strchr(at + 1, '\n');
		if (at != rest &&
		    (next ? next : strchr(at, '\0')) - at > ROW_COLUMNS + 1)
			abort();
	}
	nccl_report_warnings(&texts, &hints, p);
	if (texts.n != hints.n)
		abort();
	for (size_t i = 0; i < texts.n; i++)
		str_addf(&out, "%s%s", texts.v[i], hints.v[i]);
	str_add(&out, rest);
	for (line = out.s; line && *line; line++)
		if (((unsigned char)*line < ' ' && *line != '\n') ||
		    (unsigned char)*line >= 0x7f)
			abort();
	nccl_report_json(&out, p);
	free(rest);
	str_free(&out);
	strv_free(&texts);
	strv_free(&hints);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nccl_log *whole = nccl_log_open(0), *parts = nccl_log_open(RANKS);
	struct fuzz_input in = { data, size };
	struct str show = { 0 };

	nccl_log_put(whole, NCCL_LOG_ALL, 1, NULL, (const char *)data, size, NULL);
	nccl_log_put(whole, NCCL_LOG_ALL, 1, NULL, "\n", 1, NULL);
	for (uint32_t i = 0; in.left; i++) {
		const size_t most = 1 + in.p[0] % 64,
			     n = in.left < most ? in.left : most;
		char *copy = malloc(n);

		memcpy(copy, in.p, n);
		nccl_log_put(parts, i / 8 % RANKS, 1 + i % 3, i % 2 ? "a" : "b", copy,
			     n, i % 3 == 2 ? &show : NULL);
		if (in.p[0] == 'A')
			nccl_log_again(parts, i % RANKS);
		free(copy);
		in.p += n;
		in.left -= n;
	}
	check_report(whole);
	check_report(parts);
	str_free(&show);
	nccl_log_free(whole);
	nccl_log_free(parts);
	return 0;
}
