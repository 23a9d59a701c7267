#include "agent/ranks/stack.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/ranks/procs.h"
#include "common/buf.h"
#include "common/file.h"

__asm__(".pushsection .rodata\n"
	"agent_sitecustomize_py:\n"
	".incbin \"agent/ranks/sitecustomize.py\"\n"
	".byte 0\n"
	".popsection\n");
extern const char agent_sitecustomize_py[];

#define STACK_FILE "berth-stack"

enum {
	STACK_MOST = 256 << 10, /* of faulthandler's text */
	FRAME_MOST = 1100,      /* two names of 500 characters */
	QUIET_LOOKS = 2
};

/* ---- the archive ---- */

static void add_number(struct str *out, uint32_t number, int bytes)
{
	for (int i = 0; i < bytes; i++) {
		const char c = (char)(number >> 8 * i);

		str_addn(out, &c, 1);
	}
}

/* The part that both heads of an entry have: stored, 1 January 1980. */
static void add_zip_head(struct str *out, const char *text)
{
	static const char name[] = "sitecustomize.py";
	const uint32_t n = (uint32_t)strlen(text);
	uint32_t crc = ~0u;

	for (uint32_t i = 0; i < n; i++) {
		crc ^= (unsigned char)text[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	add_number(out, 20, 2); /* the version that is needed */
	add_number(out, 0, 6);  /* flags, method, time */
	add_number(out, 33, 2); /* date */
	add_number(out, ~crc, 4);
	add_number(out, n, 4);
	add_number(out, n, 4);
	add_number(out, sizeof name - 1, 2);
}

/* TEXT as the one file of a zip archive. */
static void add_archive(struct str *out, const char *text)
{
	size_t middle, end;

	add_number(out, 0x04034b50, 4);
	add_zip_head(out, text);
	add_number(out, 0, 2); /* nothing extra */
	str_add(out, "sitecustomize.py");
	str_add(out, text);
	middle = out->len;
	add_number(out, 0x02014b50, 4);
	add_number(out, 20, 2); /* the version that made it */
	add_zip_head(out, text);
	add_number(out, 0, 16); /* nothing extra, no comment; mode; where it begins */
	str_add(out, "sitecustomize.py");
	end = out->len;
	add_number(out, 0x06054b50, 4);
	add_number(out, 0, 4);            /* of one disk */
	add_number(out, 1u << 16 | 1, 4); /* one entry of one */
	add_number(out, (uint32_t)(end - middle), 4);
	add_number(out, (uint32_t)middle, 4);
	add_number(out, 0, 2); /* no comment */
}

void stack_hook_open(struct stack_hook *h)
{
	const int fd = memfd_create("berth-python", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct str text = { 0 };
	struct rlimit files;

	*h = (struct stack_hook){ .fd = fd };
	if (fd < 0)
		return;
	/* SIGXFSZ would end this agent here, or the rank that writes its stack. */
	if (getrlimit(RLIMIT_FSIZE, &files) || files.rlim_cur < STACK_MOST) {
		close(fd);
		return;
	}
	add_archive(&text, agent_sitecustomize_py);
	if (!file_write(fd, str_text(&text), text.len) &&
	    !fcntl(fd, F_ADD_SEALS,
		   F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		snprintf(h->path, sizeof h->path, "/proc/%d/fd/%d", (int)getpid(), fd);
	else
		close(fd);
	str_free(&text);
}

void stack_hook_free(struct stack_hook *h)
{
	if (*h->path)
		close(h->fd);
	*h = (struct stack_hook){ 0 };
}

/* ---- the file of a rank ---- */

void stack_open(struct rank_stack *s)
{
	const int fd = memfd_create(STACK_FILE, MFD_CLOEXEC);

	*s = (struct rank_stack){ .fd = fd };
	if (fd >= 0)
		snprintf(s->text, sizeof s->text, "%d:/proc/%d/fd/%d", STACK_SIGNAL,
			 (int)getpid(), fd);
}

void stack_free(struct rank_stack *s)
{
	if (*s->text)
		close(s->fd);
	*s = (struct rank_stack){ 0 };
}

void stack_tell(const struct stack_hook *h, const struct rank_stack *s,
		struct env_paths *to)
{
	to->hook = *h->path ? h->path : NULL;
	to->stack = *s->text ? s->text : NULL;
}

/* ---- one look ---- */

static bool is_stack_file(const char *path)
{
	return !strncmp(path, "/memfd:" STACK_FILE, strlen("/memfd:" STACK_FILE));
}

/* The line NAME of /proc/PID/status has the signal. */
static bool has_signal(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at && strtoull(at + strlen(name), NULL, 16) >> (STACK_SIGNAL - 1) & 1;
}

uint64_t stack_written(const struct rank_stack *s)
{
	struct stat st;

	return s->taken + (*s->text && !fstat(s->fd, &st) ? (uint64_t)st.st_size : 0);
}

uint64_t stack_cpu_ms(const struct rank_stack *s)
{
	const uint64_t now = s->asked ? proc_cpu_ms(s->asked) : 0;

	return s->cpu_ms + (now > s->cpu_before_ms ? now - s->cpu_before_ms : 0);
}

static int stack_empty(struct rank_stack *s)
{
	s->taken = stack_written(s);
	return ftruncate(s->fd, 0);
}

const char *stack_ask(struct rank_stack *s, pid_t pid, char state)
{
	char path[64], status[4096] = "";

	if (!*s->text)
		return "its agent could not make a file for it";
	if (state == 'T' || state == 't')
		return "it is stopped";
	if (state == 'D')
		return "the kernel does not let it go";
	if (state == 'Z' || state == 'X' || !state)
		return "it ends just now";
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	file_start(path, status, sizeof status);
	if (!has_signal(status, "\nSigCgt:") || !proc_has_open(pid, is_stack_file))
		return "it is not Python 3.8 or later, or one without site-packages "
		       "(-S, -I)";
	if (has_signal(status, "\nSigBlk:") || has_signal(status, "\nShdPnd:"))
		return "it blocks the signal";
	s->cpu_before_ms = proc_cpu_ms(pid);
	if (stack_empty(s) || kill(pid, STACK_SIGNAL))
		return "it ends just now";
	s->asked = pid;
	s->state = state;
	s->size = 0;
	s->looks = 0;
	return NULL;
}

bool stack_look(struct rank_stack *s)
{
	struct stat st;

	if (fstat(s->fd, &st) || !st.st_size)
		return false;
	s->looks = st.st_size == s->size ? s->looks + 1 : 0;
	s->size = st.st_size;
	return s->looks >= QUIET_LOOKS;
}

void stack_take(struct rank_stack *s, struct str *out)
{
	const size_t most = s->size < STACK_MOST ? (size_t)s->size : STACK_MOST;
	char *text = xmalloc(most + 1);
	const ssize_t n = pread(s->fd, text, most, 0);

	text[n > 0 ? n : 0] = '\0';
	stack_pick(text, out);
	free(text);
	s->cpu_ms = stack_cpu_ms(s);
	s->asked = 0;
	if (stack_empty(s))
		stack_free(s); /* it cannot be used again */
}

/* `  File "a.py", line 3 in f` as `a.py:3 f`.  False: LINE is no frame. */
static bool add_frame(struct str *out, const char *line, size_t n)
{
	static const char head[] = "  File \"", middle[] = "\", line ",
			  warm[] = "<berth warm>"; /* launcher/job/warm.py */
	const char *name = line + sizeof head - 1, *end = line + n, *at, *in;

	if (n < sizeof head || n > FRAME_MOST ||
	    memcmp(line, head, sizeof head - 1) != 0)
		return false;
	if (!strncmp(name, warm, sizeof warm - 1))
		return false;
	at = memmem(name, (size_t)(end - name), middle, sizeof middle - 1);
	if (!at)
		return false;
	in = at + sizeof middle - 1;
	str_addn(out, name, (size_t)(at - name));
	str_add(out, ":");
	for (; in < end && isdigit((unsigned char)*in); in++)
		str_addn(out, in, 1);
	if (end - in > 4 && !memcmp(in, " in ", 4)) {
		str_add(out, " ");
		str_addn(out, in + 4, (size_t)(end - in - 4));
	}
	str_add(out, "\n");
	return true;
}

/* The kernel gives a signal to the main thread, if it can: it is the current one.  Else
 * it is the last one, as Python lists the newest first. */
void stack_pick(const char *text, struct str *out)
{
	const char *thread = NULL, *next;
	size_t frames = 0;

	for (const char *p = text; p && *p; p = next ? next + 1 : NULL) {
		next = strchr(p, '\n');
		if (!strncmp(p, "Thread 0x", 9))
			thread = p;
		if (strncmp(p, "Current thread 0x", 17) != 0)
			continue;
		thread = p;
		break;
	}
	for (const char *p = thread ? strchr(thread, '\n') : NULL;
	     p && frames < STACK_FRAMES && out->len < STACK_BYTES; p = next) {
		next = strchr(++p, '\n');
		if (!add_frame(out, p, next ? (size_t)(next - p) : strlen(p)))
			break;
		frames++;
	}
}
