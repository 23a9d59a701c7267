#include "launcher/trace/trace_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "common/str.h"
#include "launcher/output/own_file.h"

enum { BUFFER_BYTES = 1 << 16 };

struct trace_file {
	char *path;
	gzFile gz;
	int error; /* errno of the first write that failed */
	size_t used;
	char buffer[BUFFER_BYTES];
};

bool trace_file_ends(const char *path, const char *end)
{
	const size_t n = strlen(path), most = strlen(end);

	return n > most && !strcmp(path + n - most, end);
}

int trace_file_open(struct trace_file **f, const char *path, struct err *e)
{
	struct str why = { 0 };
	const int fd = own_file_open(path, OWN_FILE_REPLACE, &why);
	/* level 1: 6 is slower, for files that are little smaller; T: as it is */
	gzFile gz = fd >= 0 ? gzdopen(fd, trace_file_ends(path, ".gz") ? "wb1" : "wbT")
			    : NULL;

	if (!gz) {
		err_set(e, E_TRACE_WRITE, path,
			fd < 0 ? str_text(&why) : strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	str_free(&why);
	if (!gz)
		return -1;
	gzbuffer(gz, BUFFER_BYTES);
	*f = xmalloc(sizeof **f);
	(*f)->path = xstrdup(path);
	(*f)->gz = gz;
	(*f)->error = 0;
	(*f)->used = 0;
	return 0;
}

static void file_write(struct trace_file *f, const void *bytes, size_t n)
{
	if (n && !f->error && gzwrite(f->gz, bytes, (unsigned)n) <= 0)
		f->error = errno ? errno : EIO;
}

void trace_file_add(struct trace_file *f, const void *bytes, size_t n)
{
	if (f->used + n > BUFFER_BYTES) {
		file_write(f, f->buffer, f->used);
		f->used = 0;
	}
	if (n > BUFFER_BYTES) {
		file_write(f, bytes, n);
		return;
	}
	memcpy(f->buffer + f->used, bytes, n);
	f->used += n;
}

int trace_file_close(struct trace_file *f, struct err *e)
{
	int error;

	file_write(f, f->buffer, f->used);
	errno = 0;
	if (gzclose_w(f->gz) != Z_OK && !f->error)
		f->error = errno ? errno : EIO;
	error = f->error;
	if (error)
		err_set(e, E_TRACE_WRITE, f->path, strerror(error));
	free(f->path);
	free(f);
	return error ? -1 : 0;
}
