#include "launcher/transport/known_hosts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium/utils.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/transport/name_hash.h"
#include "launcher/transport/pattern.h"

enum {
	NAMES_MAX = 1023, /* of longer lists ssh takes only a part */
	KEY_MAX = 8192,   /* bytes; an RSA key of 16384 bits has 2100 */
	RSA_MIN = 128,    /* ssh ignores a shorter modulus */
	FILE_MAX = 256 << 20
};

/* ---- names ---- */

char *known_name(const char *host, int port)
{
	char *name = port == 22 ? xstrdup(host) : xasprintf("[%s]:%d", host, port);

	for (char *p = name; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return name;
}

/* ---- keys ---- */

static const struct {
	const char *name, *algorithms;
	unsigned point; /* bytes of an ECDSA point */
} types[KNOWN_TYPES] = {
	[KNOWN_ED25519] = { "ssh-ed25519", "ssh-ed25519", 0 },
	[KNOWN_ECDSA_256] = { "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256", 65 },
	[KNOWN_ECDSA_384] = { "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384", 97 },
	[KNOWN_ECDSA_521] = { "ecdsa-sha2-nistp521", "ecdsa-sha2-nistp521", 133 },
	[KNOWN_RSA] = { "ssh-rsa", "rsa-sha2-512,rsa-sha2-256", 0 },
};

struct rest {
	const unsigned char *p;
	size_t left;
};

/* The next string of a blob: its bytes and its length *N; NULL if it is cut. */
static const unsigned char *next_string(struct rest *v, size_t *n)
{
	const unsigned char *p = v->p;

	if (v->left < 4)
		return NULL;
	*n = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
	if (*n > v->left - 4)
		return NULL;
	v->p += 4 + *n;
	v->left -= 4 + *n;
	return p + 4;
}

/* Whether the blob is a whole key of TYPE and nothing else. */
static bool is_key(enum known_type type, const unsigned char *blob, size_t n)
{
	const char *name = types[type].name;
	const unsigned char *part[3] = { NULL };
	size_t len[3] = { 0 };
	struct rest v = { blob, n };
	const int parts = type == KNOWN_ED25519 ? 2 : 3;

	for (int i = 0; i < parts; i++) {
		part[i] = next_string(&v, &len[i]);
		if (!part[i])
			return false;
	}
	if (v.left || len[0] != strlen(name) || memcmp(part[0], name, len[0]))
		return false;
	if (type == KNOWN_ED25519)
		return len[1] == 32;
	if (type == KNOWN_RSA) /* a positive number begins with 0 or below 0x80 */
		return len[1] && len[2] > RSA_MIN && !*part[2];
	return len[1] == 8 && !memcmp(part[1], name + 11, 8) && /* "nistp256" */
	       len[2] == types[type].point && *part[2] == 4;
}

size_t known_key_decode(unsigned char *out, size_t most, const char *base64)
{
	size_t n;

	/* ssh skips blanks inside base64, such as the '\r' of a file from Windows */
	if (sodium_base642bin(out, most, base64, strlen(base64), "\r\v\f", &n, NULL,
			      sodium_base64_VARIANT_ORIGINAL))
		return 0;
	return n;
}

/* The key at TEXT, "TYPE BASE64 comment", to KEYS; false if only ssh can judge it. */
static bool hosts_add_key(struct known_keys *keys, const char *text, bool without_port)
{
	const size_t len = strcspn(text, " \t");
	unsigned char blob[KEY_MAX];
	const char *key = text + len + strspn(text + len, " \t");
	char *base64;
	size_t n;

	for (int i = 0; i < KNOWN_TYPES; i++) {
		if (strlen(types[i].name) != len || strncmp(types[i].name, text, len))
			continue;
		base64 = xstrndup(key, strcspn(key, " \t"));
		n = known_key_decode(blob, sizeof blob, base64);
		free(base64);
		if (!is_key((enum known_type)i, blob, n))
			return false;
		keys->v = xreallocarray(keys->v, keys->n + 1, sizeof *keys->v);
		keys->v[keys->n] = (struct known_key){ .type = (enum known_type)i,
						       .without_port = without_port,
						       .blob = xmalloc(n),
						       .n = n };
		memcpy(keys->v[keys->n++].blob, blob, n);
		return true;
	}
	return false;
}

enum known_verdict known_keys_judge(const struct known_keys *keys,
				    const unsigned char *blob, size_t n)
{
	bool at_port = false, without_port = false;

	for (size_t i = 0; i < keys->n; i++) {
		const struct known_key *k = &keys->v[i];
		const bool same = k->n == n && !memcmp(k->blob, blob, n);

		if (same && !k->without_port)
			return KNOWN_OK;
		at_port |= !k->without_port;
		without_port |= same;
	}
	if (at_port)
		return KNOWN_CHANGED;
	return without_port ? KNOWN_OK : KNOWN_NEW;
}

char *known_keys_algorithms(const struct known_keys *keys, const char *more)
{
	bool known[KNOWN_TYPES] = { false };
	struct str out = { 0 };

	for (size_t i = 0; i < keys->n; i++)
		known[keys->v[i].type] |= !keys->v[i].without_port;
	/* ssh leaves its order alone if the best type is known */
	for (int turn = 0; turn < 2; turn++)
		for (int i = 0; i < KNOWN_TYPES; i++)
			if (turn == !(known[i] || known[0]))
				str_addf(&out, "%s%s", out.len ? "," : "",
					 types[i].algorithms);
	str_addf(&out, "%s%s", *more ? "," : "", more);
	return str_take(&out);
}

void known_keys_free(struct known_keys *keys)
{
	for (size_t i = 0; i < keys->n; i++)
		free(keys->v[i].blob);
	free(keys->v);
	str_free(&keys->only_ssh);
	*keys = (struct known_keys){ 0 };
}

/* ---- lines ---- */

struct known_line {
	const char *names;
	const char *key; /* "TYPE BASE64 comment"; of a marked line the marker */
	unsigned number;
	bool hashed;
	struct name_hash hash; /* if hashed */
};

/* One name without a pattern. */
struct known_entry {
	const char *name;
	size_t n;
	uint32_t hash;
	size_t line;
};

struct known_lines {
	struct known_line *v;
	size_t n, room;
};

struct known_file {
	char *name, *text;
	struct known_lines plain, pattern, hashed, marked;
	struct known_entry *entry; /* of the plain lines, sorted by hash */
	size_t n, room;
	bool only_ssh; /* no regular file, or a very large one: not read */

	/* of the files in memory; their lock is held */
	struct stat id;
	unsigned users;
	struct known_file *next;
};

static uint32_t hash_text(const char *text, size_t n)
{
	uint32_t h = 2166136261; /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)tolower((unsigned char)text[i])) * 16777619;
	return h;
}

static int by_hash(const void *a, const void *b)
{
	const struct known_entry *x = a, *y = b;

	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static void hosts_add_line(struct known_lines *l, struct known_line line)
{
	if (l->n == l->room) {
		l->room = l->room ? 2 * l->room : 64;
		l->v = xreallocarray(l->v, l->room, sizeof *l->v);
	}
	l->v[l->n++] = line;
}

static void add_entries(struct known_file *f, const char *names)
{
	while (*names) {
		const size_t n = strcspn(names, ",");

		if (f->n == f->room) {
			f->room = f->room ? 2 * f->room : 64;
			f->entry = xreallocarray(f->entry, f->room, sizeof *f->entry);
		}
		f->entry[f->n++] = (struct known_entry){ names, n, hash_text(names, n),
							 f->plain.n - 1 };
		names += n;
		names += names[0] == ',';
	}
}

/* The word at *P, ended by a NUL; *P moves to the next word. */
static char *cut_word(char **p)
{
	char *word = *p, *end = word + strcspn(word, " \t");

	*p = end + strspn(end, " \t");
	if (*end)
		*end = '\0';
	return word;
}

static void parse_line(struct known_file *f, char *p, unsigned number)
{
	struct known_line line = { .number = number };

	p += strspn(p, " \t");
	if (!*p || *p == '#')
		return;
	if (*p == '@')
		line.key = cut_word(&p);
	line.names = cut_word(&p);
	line.hashed = *line.names == '|';
	if (line.hashed && !name_hash_read(&line.hash, line.names))
		return; /* damaged: ssh ignores it as well */
	if (line.key) {
		hosts_add_line(&f->marked, line);
		return;
	}
	line.key = p;
	if (line.hashed) {
		hosts_add_line(&f->hashed, line);
	} else if (strpbrk(line.names, "*?!") || strlen(line.names) >= NAMES_MAX) {
		hosts_add_line(&f->pattern, line);
	} else {
		hosts_add_line(&f->plain, line);
		add_entries(f, line.names);
	}
}

struct known_file *known_file_parse(const char *name, char *text, size_t n)
{
	struct known_file *f = xcalloc(1, sizeof *f);
	char *p = text, *end;

	f->name = xstrdup(name);
	f->text = text;
	f->users = 1;
	for (unsigned number = 1; p < text + n; number++, p = end + 1) {
		end = memchr(p, '\n', (size_t)(text + n - p));
		end = end ? end : text + n;
		*end = '\0';
		parse_line(f, p, number);
	}
	if (f->n)
		qsort(f->entry, f->n, sizeof *f->entry, by_hash);
	return f;
}

static void take_line(const struct known_file *f, const struct known_line *line,
		      bool without_port, struct known_keys *keys)
{
	if (!hosts_add_key(keys, line->key, without_port) && !keys->only_ssh.len)
		str_addf(&keys->only_ssh, "the key in %s:%u", f->name, line->number);
}

void known_file_find(const struct known_file *f, const char *name, bool without_port,
		     struct known_keys *keys)
{
	const uint32_t hash = hash_text(name, strlen(name));
	size_t low = 0, high = f->n, before = (size_t)-1;

	known_file_marks(f, name, &keys->only_ssh);
	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (f->entry[mid].hash < hash)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < f->n && f->entry[low].hash == hash; low++) {
		const struct known_entry *e = &f->entry[low];

		if (e->line == before || !pattern_match(e->name, e->n, name, true))
			continue;
		before = e->line;
		take_line(f, &f->plain.v[e->line], without_port, keys);
	}
	for (size_t i = 0; i < f->pattern.n; i++)
		if (pattern_list(f->pattern.v[i].names, name, true))
			take_line(f, &f->pattern.v[i], without_port, keys);
	for (size_t i = 0; i < f->hashed.n; i++)
		if (name_hash_match(&f->hashed.v[i].hash, name))
			take_line(f, &f->hashed.v[i], without_port, keys);
}

void known_file_marks(const struct known_file *f, const char *name, struct str *why)
{
	if (f->only_ssh && !why->len)
		str_add(why, f->name);
	for (size_t i = 0; i < f->marked.n && !why->len; i++) {
		const struct known_line *line = &f->marked.v[i];

		if (line->hashed ? name_hash_match(&line->hash, name)
				 : pattern_list(line->names, name, true))
			str_addf(why, "%s in %s:%u", line->key, f->name, line->number);
	}
}

/* ---- files ---- */

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known_file *files;

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The first MOST bytes of PATH and a NUL. */
static char *hosts_read_text(const char *path, size_t most, size_t *n)
{
	const int fd = most ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char *text = xmalloc(most + 1);
	ssize_t got = 1;

	*n = 0;
	while (fd >= 0 && got > 0 && *n < most) {
		got = read(fd, text + *n, most - *n);
		*n += got > 0 ? (size_t)got : 0;
	}
	text[*n] = '\0';
	if (fd >= 0)
		close(fd);
	return text;
}

/* The lock is held. */
static void hosts_unref(struct known_file *f)
{
	if (--f->users)
		return;
	free(f->plain.v);
	free(f->pattern.v);
	free(f->hashed.v);
	free(f->marked.v);
	free(f->entry);
	free(f->name);
	free(f->text);
	free(f);
}

struct known_file *known_file_get(const char *path)
{
	struct known_file **at = &files, *f;
	struct stat now;
	bool readable;
	char *text;
	size_t n;

	if (stat(path, &now))
		now = (struct stat){ 0 };
	/* of a folder and of /dev/null ssh reads nothing, of a pipe it would */
	readable = S_ISREG(now.st_mode) && now.st_size < FILE_MAX;
	pthread_mutex_lock(&files_lock);
	while (*at && strcmp((*at)->name, path))
		at = &(*at)->next;
	f = *at;
	if (f && !is_same(&f->id, &now)) {
		*at = f->next;
		hosts_unref(f);
		f = NULL;
	}
	if (!f) {
		text = hosts_read_text(path, readable ? (size_t)now.st_size : 0, &n);
		f = known_file_parse(path, text, n);
		f->id = now;
		f->only_ssh = !readable && now.st_mode && !S_ISDIR(now.st_mode) &&
			      !S_ISCHR(now.st_mode);
		f->next = files;
		files = f;
	}
	f->users++;
	pthread_mutex_unlock(&files_lock);
	return f;
}

void known_file_drop(struct known_file *f)
{
	pthread_mutex_lock(&files_lock);
	hosts_unref(f);
	pthread_mutex_unlock(&files_lock);
}

int known_hosts_add(const char *path, const char *ssh_dir, const char *name,
		    const char *type, const char *base64, bool hashed)
{
	char *hidden = hashed ? name_hash_new(name) : NULL, *line, last = '\n';
	const char *slash = strrchr(path, '/');
	struct stat st;
	int fd, error = 0;
	size_t n;

	if (slash && !strncmp(path, ssh_dir, strlen(ssh_dir)))
		mkdir(ssh_dir, 0700);
	fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd < 0)
		error = errno;
	else if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size &&
		 pread(fd, &last, 1, st.st_size - 1) != 1)
		last = '\n';
	line = xasprintf("%s%s %s %s\n", last == '\n' ? "" : "\n",
			 hidden ? hidden : name, type, base64);
	n = strlen(line);
	errno = ENOSPC;                                  /* of a write that is cut */
	if (fd >= 0 && write(fd, line, n) != (ssize_t)n) /* one: a whole line */
		error = errno;
	if (fd >= 0)
		close(fd);
	free(line);
	free(hidden);
	errno = error;
	return error ? -1 : 0;
}
