/* libmunge: a stand-in of libmunge.so.2, without a munged.  A credential is "MUNGE:",
 * then hexadecimal digits of a sum, its time, its user and its bytes, then ":".
 *
 * What it does is in files of the folder $STANDIN_MUNGE:
 *   key      what the munged of all hosts have; without it munged is down
 *   age      seconds by which the clock is ahead where a credential is opened
 *   uid      of the user that makes a credential, if it is not ours
 *   socket   the only socket at which munged answers
 * As the real one it gives what is old, from the future or was opened before, and says
 * that.  Nothing is secret or authentic here: the sum only shows a change. */
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TTL_S = 300, MOST = 1 << 16 };
enum { SUCCESS = 0, NO_SOCKET = 6, BAD_CRED = 8, EXPIRED = 15, REWOUND = 16, REPLAYED };
enum { ENCODE_TIME = 6, DECODE_TIME = 7, SOCKET = 8 };

struct ctx {
	char socket[256];
	time_t made, opened;
	const char *text;
};

struct record {
	uint64_t sum;
	int64_t made;
	uint32_t uid, n;
	unsigned char bytes[MOST];
};

struct ctx *munge_ctx_create(void);
void munge_ctx_destroy(struct ctx *c);
int munge_ctx_set(struct ctx *c, int what, ...);
int munge_ctx_get(struct ctx *c, int what, ...);
const char *munge_ctx_strerror(struct ctx *c);
int munge_encode(char **credential, struct ctx *c, const void *data, int n);
int munge_decode(const char *credential, struct ctx *c, void **data, int *n, uid_t *uid,
		 gid_t *gid);

/* The first line of a file of the folder. */
static int says(const char *name, char *line, int n)
{
	const char *folder = getenv("STANDIN_MUNGE");
	char path[4096];
	FILE *f;

	*line = '\0';
	snprintf(path, sizeof path, "%s/%s", folder ? folder : "/nowhere", name);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (!fgets(line, n, f))
		*line = '\0';
	line[strcspn(line, "\n")] = '\0';
	fclose(f);
	return 1;
}

static int fail(struct ctx *c, int error, const char *text)
{
	c->text = text;
	return error;
}

static int is_up(const struct ctx *c)
{
	char line[256];

	if (!says("key", line, sizeof line))
		return 0;
	return says("socket", line, sizeof line) ? !strcmp(line, c->socket)
						 : !*c->socket;
}

static uint64_t add(uint64_t sum, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;

	while (n--)
		sum = (sum ^ *p++) * 0x100000001b3;
	return sum;
}

static uint64_t sum_of(const struct record *r)
{
	char key[256];

	says("key", key, sizeof key);
	return add(add(0xcbf29ce484222325, key, strlen(key)), &r->made,
		   offsetof(struct record, bytes) - offsetof(struct record, made) +
			   r->n);
}

/* Whether it was opened before. */
static int is_again(uint64_t sum)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof path, "%s/opened.%016jx", getenv("STANDIN_MUNGE"),
		 (uintmax_t)sum);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	return fd < 0;
}

/* ---- what programs call ---- */

struct ctx *munge_ctx_create(void)
{
	return calloc(1, sizeof(struct ctx));
}

void munge_ctx_destroy(struct ctx *c)
{
	free(c);
}

int munge_ctx_set(struct ctx *c, int what, ...)
{
	va_list ap;

	va_start(ap, what);
	if (what == SOCKET)
		snprintf(c->socket, sizeof c->socket, "%s", va_arg(ap, const char *));
	va_end(ap);
	return SUCCESS;
}

int munge_ctx_get(struct ctx *c, int what, ...)
{
	va_list ap;

	va_start(ap, what);
	*va_arg(ap, time_t *) = what == ENCODE_TIME ? c->made : c->opened;
	va_end(ap);
	return SUCCESS;
}

const char *munge_ctx_strerror(struct ctx *c)
{
	return c->text;
}

int munge_encode(char **credential, struct ctx *c, const void *data, int n)
{
	static struct record r;
	const unsigned char *p = (const void *)&r;
	const size_t size = offsetof(struct record, bytes) + (size_t)n;
	char uid[32];
	FILE *out;
	size_t written;

	if (!is_up(c) || n > MOST)
		return fail(c, NO_SOCKET, "the stand-in is down");
	memset(&r, 0, sizeof r);
	r.made = time(NULL);
	r.uid = says("uid", uid, sizeof uid) ? (uint32_t)strtoul(uid, NULL, 10)
					     : geteuid();
	r.n = (uint32_t)n;
	memcpy(r.bytes, data, (size_t)n);
	r.sum = sum_of(&r);
	out = open_memstream(credential, &written);
	if (!out)
		abort();
	fputs("MUNGE:", out);
	for (size_t i = 0; i < size; i++)
		fprintf(out, "%02x", p[i]);
	fputs(":", out);
	fclose(out);
	return SUCCESS;
}

int munge_decode(const char *credential, struct ctx *c, void **data, int *n, uid_t *uid,
		 gid_t *gid)
{
	static struct record r;
	unsigned char *p = (void *)&r;
	size_t size = 0;
	unsigned byte;
	char age[32];

	if (!is_up(c))
		return fail(c, NO_SOCKET, "the stand-in is down");
	memset(&r, 0, sizeof r);
	for (credential += 6; size < sizeof r && sscanf(credential, "%2x", &byte) == 1;
	     credential += 2)
		p[size++] = (unsigned char)byte;
	if (size != offsetof(struct record, bytes) + r.n || r.sum != sum_of(&r))
		return fail(c, BAD_CRED, "the stand-in did not make it");
	says("age", age, sizeof age);
	c->made = (time_t)r.made;
	c->opened = time(NULL) + strtol(age, NULL, 10);
	*data = malloc(r.n + 1);
	if (!*data)
		abort();
	memcpy(*data, r.bytes, r.n);
	*n = (int)r.n;
	*uid = r.uid;
	*gid = getegid();
	if (c->opened - c->made > TTL_S)
		return fail(c, EXPIRED, "it is old");
	if (c->made - c->opened > TTL_S)
		return fail(c, REWOUND, "it is of the future");
	return is_again(r.sum) ? fail(c, REPLAYED, "it was opened before") : SUCCESS;
}
