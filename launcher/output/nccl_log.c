#include "launcher/output/nccl_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "launcher/output/nccl_report.h"

enum { STREAMS = 3, LINE_MAX_BYTES = 4096, READ_BYTES = 65536 };

struct nccl_log {
	struct nccl_pairs *pairs;
	struct str *begun; /* [STREAMS * rank + stream - 1]; the last one is of all */
	size_t nstreams;
};

/* The N bytes at P are a line of FROM. */
static void log_line(struct nccl_log *l, const struct nccl_origin *from, const char *p,
		     size_t n, struct str *show)
{
	struct nccl_line line;

	if (!n || !memmem(p, n, "CCL ", 4))
		return;
	nccl_line_read(&line, p, n);
	nccl_pairs_add(l->pairs, from, &line);
	if (!show || (line.says != NCCL_WARN && line.says != NCCL_VERSION))
		return;
	if (line.says == NCCL_WARN) /* as NCCL has it */
		str_add(show, "\n");
	str_addn(show, p, n);
	str_add(show, "\n");
}

/* Only the end of a line that is too long is kept: NCCL's text may follow it. */
static void keep_begun(struct str *begun, const char *p, size_t n)
{
	if (n > LINE_MAX_BYTES) {
		p += n - LINE_MAX_BYTES;
		n = LINE_MAX_BYTES;
	}
	if (begun->len + n > 2 * LINE_MAX_BYTES) {
		memmove(begun->s, begun->s + begun->len - LINE_MAX_BYTES,
			LINE_MAX_BYTES);
		begun->len = LINE_MAX_BYTES;
	}
	if (n)
		str_addn(begun, p, n);
}

static void log_bytes(struct nccl_log *l, struct str *begun,
		      const struct nccl_origin *from, const char *p, size_t n,
		      struct str *show)
{
	const char *end = p + n, *at = NULL;
	const char *nl = n ? memchr(p, '\n', n) : NULL;

	if (begun->len && nl) {
		keep_begun(begun, p, (size_t)(nl - p));
		log_line(l, from, begun->s, begun->len, show);
		begun->len = 0;
		p = nl + 1;
	}
	while (nl && p < end && (at = memmem(p, (size_t)(end - p), "CCL ", 4))) {
		/* lines of others in front of it */
		if ((nl = memrchr(p, '\n', (size_t)(at - p))))
			p = nl + 1;
		nl = memchr(at, '\n', (size_t)(end - at));
		if (nl) {
			log_line(l, from, p, (size_t)(nl - p), show);
			p = nl + 1;
		}
	}
	if (p < end && !at && (nl = memrchr(p, '\n', (size_t)(end - p))))
		p = nl + 1;
	keep_begun(begun, p, (size_t)(end - p));
}

struct nccl_log *nccl_log_open(uint32_t np)
{
	struct nccl_log *l = xcalloc(1, sizeof *l);

	l->pairs = nccl_pairs_open();
	l->nstreams = STREAMS * (size_t)np + 1;
	l->begun = xcalloc(l->nstreams, sizeof *l->begun);
	return l;
}

void nccl_log_put(struct nccl_log *l, uint32_t rank, unsigned stream, const char *host,
		  const char *p, size_t n, struct str *show)
{
	const struct nccl_origin from = { rank, host };
	const size_t i = rank == NCCL_LOG_ALL ? l->nstreams - 1
					      : STREAMS * (size_t)rank + stream - 1;

	log_bytes(l, &l->begun[i], &from, p, n, show);
}

void nccl_log_again(struct nccl_log *l, uint32_t rank)
{
	for (size_t i = 0; i < STREAMS; i++)
		l->begun[STREAMS * (size_t)rank + i].len = 0;
}

const struct nccl_pairs *nccl_log_pairs(struct nccl_log *l)
{
	nccl_pairs_settle(l->pairs);
	return l->pairs;
}

void nccl_log_free(struct nccl_log *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->nstreams; i++)
		str_free(&l->begun[i]);
	free(l->begun);
	nccl_pairs_free(l->pairs);
	free(l);
}

/* ---- files ---- */

static int read_log(struct nccl_log *l, const char *path, struct err *e)
{
	const bool is_stdin = !strcmp(path, "-");
	const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	char *bytes = xmalloc(READ_BYTES);
	ssize_t n = fd < 0 ? -1 : 1;
	int error;

	while (n > 0) {
		n = read(fd, bytes, READ_BYTES);
		if (n > 0)
			nccl_log_put(l, NCCL_LOG_ALL, 1, NULL, bytes, (size_t)n, NULL);
		else if (n < 0 && errno == EINTR)
			n = 1;
	}
	error = errno;
	nccl_log_put(l, NCCL_LOG_ALL, 1, NULL, "\n", 1, NULL); /* it may have no end */
	free(bytes);
	if (fd >= 0 && !is_stdin)
		close(fd);
	return n < 0 ? err_set(e, E_NCCL_LOG, path, strerror(error)) : 0;
}

int nccl_log_files(const struct strv *files, struct err *e)
{
	struct nccl_log *l = nccl_log_open(0);
	struct strv texts = { 0 }, hints = { 0 };
	struct str out = { 0 };
	int rc = 0;

	for (size_t i = 0; i < files->n && !rc; i++)
		rc = read_log(l, files->v[i], e);
	if (!rc) {
		nccl_report_table(&out, nccl_log_pairs(l));
		puts(str_text(&out));
		nccl_report_warnings(&texts, &hints, nccl_log_pairs(l));
		for (size_t i = 0; i < texts.n; i++) {
			printf("warning: %s\n", texts.v[i]);
			if (*hints.v[i])
				printf("hint: %s\n", hints.v[i]);
		}
		rc = texts.n > 0;
	}
	str_free(&out);
	strv_free(&texts);
	strv_free(&hints);
	nccl_log_free(l);
	return rc;
}
