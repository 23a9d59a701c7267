#include "launcher/transport/agent_install.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sodium/crypto_hash_sha256.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/wire.h"
#include "launcher/transport/install_scripts.h"

#define MARK "\n:berth: "
enum { IMAGE_MAX = 64 << 20, QUOTE_MAX = 160 };

/* ---- the agent to send ---- */

struct image {
	const char *path;
	const void *data;
	size_t n;
	char sha256[2 * crypto_hash_sha256_BYTES + 1];
	int error; /* errno; 0: it is here */
};

/* Read when the first host needs it, and kept: all hosts are sent the same bytes. */
static const struct image *own_image(const struct agent_install *a)
{
	static struct image image;
	const char *path = a->setup->own_agent ? a->setup->own_agent : "berth-agent";
	unsigned char hash[crypto_hash_sha256_BYTES];
	struct stat st;
	void *data;
	int fd;

	if (image.path && !strcmp(image.path, path))
		return &image;
	if (image.data && !image.error)
		munmap((void *)image.data, image.n);
	image = (struct image){ .path = path };
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		image.error = errno;
	} else if (!S_ISREG(st.st_mode) || st.st_size < 1 || st.st_size > IMAGE_MAX) {
		image.error = ENOEXEC;
	} else {
		image.n = (size_t)st.st_size;
		data = mmap(NULL, image.n, PROT_READ, MAP_PRIVATE, fd, 0);
		image.error = data == MAP_FAILED ? errno : 0;
		image.data = data;
	}
	if (fd >= 0)
		close(fd);
	if (!image.error) {
		crypto_hash_sha256(hash, image.data, image.n);
		str_hex(image.sha256, hash, sizeof hash);
	}
	return &image;
}

/* ---- tries ---- */

static const char *direct_path(const struct agent_install *a)
{
	const char *path = a->setup->agent ? a->setup->agent : a->setup->own_agent;

	return path && !strchr(path, '\n') ? path : NULL;
}

/* One word for any login shell: a backslash has its meaning in all. */
static void add_word(struct str *command, const char *word)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		"0123456789/._-+=:,@~";

	for (; *word; word++)
		str_addf(command, strchr(plain, *word) ? "%c" : "\\%c", *word);
}

static void begin_direct(struct agent_install *a)
{
	const char *path = direct_path(a), *how = a->setup->agent ? "-ldnL" : "-ldn";

	if (!strchr(path, '/')) { /* the login shell looks in PATH */
		str_add(&a->command, "exec ");
		add_word(&a->command, path);
		return;
	}
	/* bash need not start another shell */
	str_addf(&a->command,
		 "test \"$SHELL\" = /bin/bash && eval 'berth_direct() { %s; }' && "
		 "berth_direct %s ",
		 install_direct, how);
	add_word(&a->command, path);
	str_addf(&a->command, " || exec /bin/sh -c '%s' sh %s ", install_direct, how);
	add_word(&a->command, path);
}

static void begin_script(struct agent_install *a)
{
	const struct image *i = own_image(a);
	const bool send = !a->setup->no_push && !i->error;
	const char *path = direct_path(a);
	struct utsname us;

	uname(&us);
	str_addf(&a->script, "p=%d m=%d n=%zu s=%s k=%d c=%s\n%s",
		 a->stage == INSTALL_SEARCH, send, send ? i->n : 1,
		 *i->sha256 ? i->sha256 : "none",
		 a->stage == INSTALL_SEARCH && a->failed, us.machine, install_search);
	str_addf(&a->command, "exec /bin/sh -c 'eval \"$(head -c %zu)\"' sh ",
		 a->script.len);
	if (path && *path == '/')
		add_word(&a->command, path);
}

static void begin_try(struct agent_install *a, enum install_stage stage)
{
	str_free(&a->command);
	str_free(&a->script);
	buf_free(&a->in);
	str_free(&a->noise);
	a->stage = stage;
	a->script_sent = a->image_sent = 0;
	a->answered = a->asked = false;
	if (stage == INSTALL_DIRECT)
		begin_direct(a);
	else
		begin_script(a);
}

void agent_install_init(struct agent_install *a, const struct transport_setup *setup,
			const char *where)
{
	*a = (struct agent_install){ .setup = setup, .where = xstrdup(where) };
	begin_try(a, direct_path(a) ? INSTALL_DIRECT : INSTALL_SEARCH);
}

void agent_install_free(struct agent_install *a)
{
	str_free(&a->command);
	str_free(&a->script);
	str_free(&a->noise);
	buf_free(&a->in);
	free(a->where);
	free(a->libc);
	free(a->other);
	free(a->failed);
	free(a->warning);
	*a = (struct agent_install){ 0 };
}

void agent_install_warn(struct agent_install *a, const char *text)
{
	free(a->warning);
	a->warning = xstrdup(text);
}

const char *agent_install_command(struct agent_install *a)
{
	return str_text(&a->command);
}

const void *agent_install_pending(struct agent_install *a, size_t *n)
{
	const struct image *i = a->asked ? own_image(a) : NULL;

	*n = a->script.len - a->script_sent;
	if (*n)
		return a->script.s + a->script_sent;
	*n = i ? i->n - a->image_sent : 0;
	return *n ? (const char *)i->data + a->image_sent : NULL;
}

void agent_install_sent(struct agent_install *a, size_t n)
{
	if (a->script_sent < a->script.len)
		a->script_sent += n;
	else
		a->image_sent += n;
}

static enum install_event install_again(struct agent_install *a,
					enum install_stage stage)
{
	begin_try(a, stage);
	return INSTALL_AGAIN;
}

/* ---- what came back ---- */

char *agent_install_quote(const char *text, size_t n)
{
	const char *end;
	struct str s = { 0 };

	while (n && (unsigned char)*text <= ' ')
		text++, n--;
	end = n ? memchr(text, '\n', n) : NULL;
	if (end)
		n = (size_t)(end - text);
	while (n && (unsigned char)text[n - 1] <= ' ')
		n--;
	for (size_t i = 0; i < n && i < QUOTE_MAX; i++)
		str_addn(&s,
			 (unsigned char)text[i] < ' ' || text[i] == 0x7f ? "?"
									 : text + i,
			 1);
	return str_take(&s);
}

char *agent_install_last_line(const char *text)
{
	size_t n = strlen(text), begin;

	while (n && (unsigned char)text[n - 1] <= ' ')
		n--;
	for (begin = n; begin && text[begin - 1] != '\n';)
		begin--;
	return agent_install_quote(text + begin, n - begin);
}

static enum install_event fail_other(struct agent_install *a)
{
	err_set(&a->err, E_AGENT_OTHER, a->where, a->other, a->other_wire,
		BERTH_VERSION, (unsigned)WIRE_VERSION);
	return INSTALL_FAILED;
}

static enum install_event fail_missing(struct agent_install *a)
{
	const struct image *i = own_image(a);
	struct str tried = { 0 };

	if (a->other)
		return fail_other(a);
	if (a->setup->agent)
		str_addf(&tried, "'%s'", a->setup->agent);
	else if (!a->setup->no_push)
		err_set(&a->err, E_AGENT_IMAGE, a->where, i->path, strerror(i->error));
	else
		str_addf(&tried,
			 "'%s'%s, berth-agent in PATH, and the cache '~/.cache/berth'",
			 a->setup->own_agent ? a->setup->own_agent : "berth-agent",
			 a->unsafe ? " (which another user can replace)" : "");
	if (tried.len)
		err_set(&a->err, E_AGENT_MISSING, a->where, BERTH_VERSION,
			str_text(&tried));
	str_free(&tried);
	return INSTALL_FAILED;
}

/* The agent there has another VERSION: keep that for the message, try the next way. */
static enum install_event install_reject(struct agent_install *a, const char *version,
					 size_t n, uint32_t wire)
{
	free(a->other);
	a->other = agent_install_quote(version, n);
	a->other_wire = wire;
	if (a->setup->agent || a->stage == INSTALL_SEND)
		return fail_other(a);
	return install_again(a, a->stage == INSTALL_DIRECT ? INSTALL_SEARCH
							   : INSTALL_SEND);
}

static void install_add_note(struct buf *out, enum log_level level, enum err_id id,
			     const char *text)
{
	const struct wire_log note = {
		.level = level, .id = err_name(id), .text = text, .hint = ""
	};

	wire_pack_log(out, &note);
}

/* The stream as the caller sees it: notes of this module follow the agent's hello. */
static enum install_event come_up(struct agent_install *a, size_t hello_bytes)
{
	const unsigned char *p = buf_head(&a->in);
	const size_t n = a->in.len, head = WIRE_MAGIC_BYTES + hello_bytes;
	char *quote = agent_install_quote(str_text(&a->noise), a->noise.len), *text;
	struct buf out = { 0 };

	buf_add(&out, p, head);
	if (a->warning)
		install_add_note(&out, LOG_WARNING, ERR_NONE, a->warning);
	if (*quote) {
		text = xasprintf("the login there prints '%s'", quote);
		install_add_note(&out, LOG_NOTE, E_LOGIN_NOISE, text);
		free(text);
	}
	if (a->unsafe) {
		text = xasprintf("'%s' there was not started: another user can "
				 "replace it",
				 direct_path(a));
		install_add_note(&out, LOG_NOTE, E_AGENT_UNSAFE, text);
		free(text);
	}
	if (a->asked)
		install_add_note(&out, LOG_NOTE, ERR_NONE,
				 "the agent was sent there, as none was found");
	buf_add(&out, p + head, n - head);
	buf_free(&a->in);
	a->in = out;
	free(quote);
	return INSTALL_UP;
}

/* a->in begins with WIRE_MAGIC.  The hello of any version begins alike, and of another
 * version nothing else is read. */
static enum install_event read_hello(struct agent_install *a)
{
	struct view v = { buf_head(&a->in) + WIRE_MAGIC_BYTES,
			  a->in.len - WIRE_MAGIC_BYTES, false };
	uint32_t payload = view_u32(&v), len, wire;
	const unsigned char *type = view_bytes(&v, 1);
	const char *version;

	if (v.failed)
		return INSTALL_WAIT;
	if (*type != WIRE_hello || payload > 65536)
		return install_reject(a, "unknown", 7, 0);
	if (v.left < payload)
		return INSTALL_WAIT;
	v.left = payload;
	len = view_u32(&v);
	version = view_bytes(&v, (size_t)len + 1);
	wire = view_u32(&v);
	if (v.failed)
		return install_reject(a, "unknown", 7, 0);
	if (wire != WIRE_VERSION ||
	    strncmp(version, BERTH_VERSION, (size_t)len + 1) != 0)
		return install_reject(a, version, len, wire);
	return come_up(a, WIRE_HEAD_BYTES + payload);
}

static enum install_event fail_start(struct agent_install *a, int status,
				     const char *said)
{
	char *quote = agent_install_last_line(said);

	err_set(&a->err, E_AGENT_START, a->where, status, (int)strlen(quote), quote);
	free(quote);
	return INSTALL_FAILED;
}

/* One line of the script's. */
static enum install_event on_line(struct agent_install *a, const char *line)
{
	const char *path = own_image(a)->path;
	struct utsname us;
	size_t n;

	if (!strcmp(line, "unsafe")) { /* the direct try's; it ends now */
		a->unsafe = true;
		if (a->setup->agent)
			err_set(&a->err, E_AGENT_UNSAFE, a->where, direct_path(a));
		return a->setup->agent ? INSTALL_FAILED : INSTALL_WAIT;
	}
	if (a->stage == INSTALL_DIRECT)
		return INSTALL_WAIT;
	a->answered = true;
	if (!strcmp(line, "missing"))
		return fail_missing(a);
	if (!strcmp(line, "failed") && a->failed)
		return fail_start(a, a->failed_status, a->failed);
	if (!strncmp(line, "need ", 5)) { /* MACHINE LIBC */
		line += 5;
		n = strcspn(line, " ");
		free(a->libc);
		a->libc = xstrdup(line[n] ? line + n + 1 : "unknown");
		uname(&us);
		a->asked = strlen(us.machine) == n && !memcmp(us.machine, line, n);
		if (!a->asked)
			err_set(&a->err, E_AGENT_ARCH, a->where,
				*line ? line : "unknown", path, us.machine);
	} else if (!strncmp(line, "nowhere ", 8)) {
		err_set(&a->err, E_AGENT_NOEXEC, a->where, path, line + 8);
	} else if (!strncmp(line, "norun ", 6)) {
		err_set(&a->err, E_AGENT_LIBC, a->where, path,
			a->libc ? a->libc : "unknown", gnu_get_libc_version(),
			line + 6);
	} else if (!strncmp(line, "fail ", 5)) {
		err_set(&a->err, E_AGENT_SEND, a->where, path, line + 5);
	}
	return a->err.id == ERR_NONE ? INSTALL_WAIT : INSTALL_FAILED;
}

/* Move the first N bytes of a->in to the noise. */
static void drop_noise(struct agent_install *a, size_t n)
{
	str_addn(&a->noise, buf_head(&a->in), n);
	buf_drop(&a->in, n);
}

static enum install_event fail_noise(struct agent_install *a)
{
	char *quote;

	drop_noise(a, a->in.len);
	quote = agent_install_quote(str_text(&a->noise), a->noise.len);
	err_set(&a->err, E_LOGIN_NOISE, a->where, quote);
	free(quote);
	return INSTALL_FAILED;
}

enum install_event agent_install_bytes(struct agent_install *a, const void *data,
				       size_t n)
{
	enum install_event got = INSTALL_WAIT;
	const char *p, *mark, *text, *end;
	char *line;
	long at;

	buf_add(&a->in, data, n);
	while (got == INSTALL_WAIT && a->in.len) {
		p = (const char *)buf_head(&a->in);
		mark = memmem(p, a->in.len, MARK, strlen(MARK));
		text = mark ? mark + strlen(MARK) : NULL;
		end = mark ? memchr(text, '\n', a->in.len - (size_t)(text - p)) : NULL;
		if (!end)
			break;
		line = xstrndup(text, (size_t)(end - text));
		n = (size_t)(end - mark); /* its newline may begin the next mark */
		drop_noise(a, (size_t)(mark - p));
		buf_drop(&a->in, n);
		got = on_line(a, line);
		free(line);
	}
	if (got != INSTALL_WAIT)
		return got;
	at = wire_find_magic(buf_head(&a->in), a->in.len);
	if (at >= 0) {
		drop_noise(a, (size_t)at);
		return read_hello(a);
	}
	return a->in.len + a->noise.len > INSTALL_NOISE_MAX ? fail_noise(a)
							    : INSTALL_WAIT;
}

/* ---- the end of a try ---- */

enum install_event agent_install_ended(struct agent_install *a, int status,
				       const char *said)
{
	char *quote;

	if (a->setup->agent)
		return status == 126 || status == 127 ? fail_missing(a)
						      : fail_start(a, status, said);
	if (a->stage == INSTALL_DIRECT) {
		/* The login may have failed, or the agent, or it is another machine's:
		 * the script says which. */
		if (status != 126 && status != 127) {
			a->failed = xstrdup(said);
			a->failed_status = status;
		}
		return install_again(a, INSTALL_SEARCH);
	}
	if (a->asked || (a->answered && a->stage == INSTALL_SEND))
		return fail_start(a, status, said);
	if (a->answered) /* the agent in PATH does not run: send this one */
		return install_again(a, INSTALL_SEND);
	/* the login took the command and ran something else, or nothing */
	drop_noise(a, a->in.len);
	quote = *said ? agent_install_last_line(said)
		      : agent_install_quote(str_text(&a->noise), a->noise.len);
	if (*quote && !*said && status <= 0) {
		free(quote);
		return fail_noise(a);
	}
	err_set(&a->err, E_LOGIN_SHELL, a->where, status,
		*quote ? quote : "it printed nothing");
	free(quote);
	return INSTALL_FAILED;
}

void agent_install_late(struct agent_install *a)
{
	const bool begun =
		a->answered || wire_find_magic(buf_head(&a->in), a->in.len) >= 0;
	char *quote;

	drop_noise(a, a->in.len);
	quote = agent_install_quote(str_text(&a->noise), a->noise.len);
	if (*quote && !begun)
		err_set(&a->err, E_LOGIN_NOISE, a->where, quote);
	else
		err_set(&a->err, E_START_TIMEOUT, a->where,
			a->asked ? "the agent was being sent"
			: begun  ? "the agent there was starting"
				 : "the login there did not finish");
	free(quote);
}
