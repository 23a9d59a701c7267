#include "agent/ranks/stack_tool.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/ranks/stack.h"
#include "common/file.h"
#include "common/trust.h"

enum {
	ENVIRONMENT_MOST = 256 << 10,
	PRINTS_MOST = 1 << 20,
	LINE_MOST = 1100,
	KILL_MS = 100
};

/* ---- which tool ---- */

/* It is ours in all respects: not one that has taken another user's rights. */
static bool is_own(pid_t pid)
{
	char path[64], status[4096] = "", *at;
	unsigned uid[4] = { 0 };

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	file_start(path, status, sizeof status);
	at = strstr(status, "\nUid:");
	if (!at ||
	    sscanf(at, "\nUid: %u %u %u %u", &uid[0], &uid[1], &uid[2], &uid[3]) != 4)
		return false;
	for (int i = 0; i < 4; i++)
		if (uid[i] != geteuid())
			return false;
	return true;
}

/* NAME in the folders of LIST, "a:b"; or NULL. */
static char *find_in(const char *list, const char *name)
{
	for (const char *p = list; *p;) {
		const size_t n = strcspn(p, ":");
		char *path = xasprintf("%.*s/%s", (int)n, p, name);
		struct str why = { 0 };
		const bool good = *p == '/' && !access(path, X_OK) &&
				  trust_path(AT_FDCWD, path, 0, &why) == 1;

		str_free(&why);
		if (good)
			return path;
		free(path);
		p += n + (p[n] == ':');
	}
	return NULL;
}

/* The PATH with which process PID was started, or "". */
static void read_path(pid_t pid, struct str *out)
{
	char *name = xasprintf("/proc/%d/environ", (int)pid);
	struct str all = { 0 };

	if (!file_read(&all, name, ENVIRONMENT_MOST, false))
		for (size_t at = 0; at < all.len; at += strlen(all.s + at) + 1)
			if (!strncmp(all.s + at, "PATH=", 5)) {
				str_add(out, all.s + at + 5);
				break;
			}
	str_free(&all);
	free(name);
}

/* ---- it runs ---- */

static _Noreturn void tool_exec(char *const *words, int out)
{
	/* no debuginfod: it would ask a server for symbols */
	static char *const env[] = { "LC_ALL=C.UTF-8", NULL };
	const struct rlimit file = { PRINTS_MOST, PRINTS_MOST };
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setrlimit(RLIMIT_FSIZE, &file);
	if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0)
		_exit(1);
	execve(words[0], words, env);
	_exit(1);
}

bool stack_tool_start(struct stack_tool *t, pid_t of)
{
	struct str path = { 0 };
	char number[64], exe[1024] = "", *tool = NULL;
	const pid_t agent = getpid();

	*t = (struct stack_tool){ .of = of };
	if (is_own(of))
		read_path(of, &path);
	snprintf(number, sizeof number, "/proc/%d/exe", (int)of);
	if (path.len && readlink(number, exe, sizeof exe - 1) > 0 &&
	    strstr(exe, "/python"))
		tool = find_in(str_text(&path), "py-spy");
	t->is_py_spy = tool != NULL;
	if (path.len && !tool)
		tool = find_in(str_text(&path), "eu-stack");
	str_free(&path);
	t->fd = tool ? memfd_create("berth-tool", MFD_CLOEXEC) : -1;
	if (t->fd >= 0) {
		char *const spy[] = { tool,   "dump",          "--pid",
				      number, "--nonblocking", "--full-filenames",
				      NULL };
		char *const eu[] = { tool, "-1", "-s", "-n", "10", "-p", number, NULL };

		snprintf(number, sizeof number, "%d", (int)of);
		t->pid = fork();
		if (!t->pid && getppid() == agent)
			tool_exec(t->is_py_spy ? spy : eu, t->fd);
		if (!t->pid)
			_exit(1);
		if (t->pid < 0)
			close(t->fd);
	}
	free(tool);
	if (t->pid <= 0)
		*t = (struct stack_tool){ 0 };
	return t->pid > 0;
}

bool stack_tool_ended(struct stack_tool *t)
{
	/* ranks_reap() may have been first */
	return waitpid(t->pid, NULL, WNOHANG) != 0;
}

void stack_tool_take(struct stack_tool *t, struct str *out)
{
	const struct timespec nap = { 0, 1000000 };
	char *text;
	ssize_t n;

	if (!t->pid)
		return;
	if (!stack_tool_ended(t)) {
		kill(t->pid, SIGKILL);
		for (int i = 0; i < KILL_MS && !stack_tool_ended(t); i++)
			nanosleep(&nap, NULL);
		/* eu-stack has stopped the process, and the kernel leaves it so */
		kill(t->of, SIGCONT);
	}
	text = xmalloc(PRINTS_MOST + 1);
	n = pread(t->fd, text, PRINTS_MOST, 0);
	text[n > 0 ? n : 0] = '\0';
	stack_tool_pick(text, t->is_py_spy, out);
	free(text);
	close(t->fd);
	*t = (struct stack_tool){ 0 };
}

/* ---- what it says ---- */

/* `    next_batch (/a/train.py:3)` as `/a/train.py:3 next_batch`. */
static bool add_py_spy(struct str *out, const char *line, size_t n)
{
	const char *open = NULL;

	if (n < 8 || n > LINE_MOST || memcmp(line, "    ", 4) != 0 ||
	    line[n - 1] != ')')
		return false;
	for (const char *p = line + 4; p + 1 < line + n; p++)
		if (p[0] == ' ' && p[1] == '(')
			open = p;
	if (!open)
		return false;
	str_addn(out, open + 2, (size_t)(line + n - 1 - (open + 2)));
	str_add(out, " ");
	str_addn(out, line + 4, (size_t)(open - line - 4));
	str_add(out, "\n");
	return true;
}

static void pick_py_spy(const char *text, struct str *out)
{
	const char *thread = strstr(text, "\nThread "),
		   *named = strstr(text, "\"MainThread\""), *p, *next;
	size_t frames = 0;

	/* the main thread, else the first one */
	p = named ? named : thread ? thread + 1 : "";
	for (p = strchr(p, '\n'); p && frames < STACK_FRAMES && out->len < STACK_BYTES;
	     p = next) {
		next = strchr(++p, '\n');
		if (!add_py_spy(out, p, next ? (size_t)(next - p) : strlen(p)))
			break;
		frames++;
	}
}

/* `#1  0x000055 read_data`, and perhaps `    /a/train.c:2:102` below it, as
 * `/a/train.c:2 read_data`; without that as `?? read_data`. */
static void add_eu_stack(struct str *out, const char *line, size_t n, const char *below,
			 size_t nbelow)
{
	const char *name = memchr(line, ' ', n), *colon;

	while (name && name < line + n && *name == ' ')
		name++;
	name = name ? memchr(name, ' ', (size_t)(line + n - name)) : NULL;
	colon = nbelow > 4 && !memcmp(below, "    ", 4)
			? memrchr(below, ':', nbelow) /* before the column */
			: NULL;
	if (colon)
		str_addn(out, below + 4, (size_t)(colon - below - 4));
	else
		str_add(out, "??");
	if (name)
		str_addn(out, name, (size_t)(line + n - name));
	str_add(out, "\n");
}

static void pick_eu_stack(const char *text, struct str *out)
{
	size_t frames = 0;

	for (const char *p = text, *next;
	     p && frames < STACK_FRAMES && out->len < STACK_BYTES; p = next) {
		const size_t n = strcspn(p, "\n");
		const char *below = p + n + (p[n] == '\n');
		const size_t nbelow = strcspn(below, "\n");

		next = p[n] ? below : NULL;
		if (*p != '#' || n > LINE_MOST || nbelow > LINE_MOST)
			continue;
		add_eu_stack(out, p, n, below, nbelow);
		frames++;
	}
}

void stack_tool_pick(const char *text, bool is_py_spy, struct str *out)
{
	if (is_py_spy)
		pick_py_spy(text, out);
	else
		pick_eu_stack(text, out);
}
