/* fuzz.h - what the fuzzers share: the input in parts, as words, a file, a folder.
 *
 * An input of several parts has a line "%%" between them, so that seeds can be written
 * by hand. */
#ifndef BERTH_TESTS_FUZZ_H
#define BERTH_TESTS_FUZZ_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_input {
	const uint8_t *p;
	size_t left;
};

/* What stands before the next "%%", into a block of its own: a read past it is seen.
 * N may be NULL.  The caller frees it. */
static inline char *fuzz_part(struct fuzz_input *in, size_t *n)
{
	const uint8_t *mark = in->left ? memmem(in->p, in->left, "\n%%\n", 4) : NULL;
	size_t len = mark ? (size_t)(mark - in->p) : in->left;
	char *part = xstrndup("", 0);

	part = xreallocarray(part, len + 1, 1);
	if (len)
		memcpy(part, in->p, len);
	part[len] = '\0';
	if (n)
		*n = len;
	len = mark ? len + 4 : len;
	in->p += len;
	in->left -= len;
	return part;
}

/* The lines of TEXT, which it cuts up, at most MOST. */
static inline void fuzz_lines(struct strv *out, char *text, size_t most)
{
	char *line;

	while (out->n < most && (line = strsep(&text, "\n")))
		strv_add(out, line);
}

static inline void fuzz_write(int fd, const void *data, size_t n)
{
	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
}

/* A path under which the N bytes at DATA can be read until the next call. */
static inline const char *fuzz_file(const void *data, size_t n)
{
	static char path[64];
	static int fd = -1;

	if (fd >= 0)
		close(fd);
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	fuzz_write(fd, data, n);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return path;
}

/* The folder that fuzz.sh gives and removes. */
static inline const char *fuzz_folder(void)
{
	const char *path = getenv("FUZZ_DIR");

	if (!path) {
		fprintf(stderr, "no FUZZ_DIR: run tests/fuzz.sh\n");
		_exit(2);
	}
	return path;
}

/* The file NAME under the folder, its folders made. */
static inline void fuzz_put(const char *name, const void *data, size_t n)
{
	char *path = xasprintf("%s/%s", fuzz_folder(), name);
	int fd;

	for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		mkdir(path, 0700);
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	fuzz_write(fd, data, n);
	close(fd);
	free(path);
}

#endif
