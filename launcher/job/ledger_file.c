#include "launcher/job/ledger_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "launcher/insight/ledger.h"

enum { LOCK_TRIES = 20, LOCK_MS = 10 };

#define STEPS_S 10 /* shorter jobs tell little */

/* The file, whose folders are made; NULL: there is no place for it. */
static char *ledger_path(void)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path;

	if (state && *state == '/')
		path = xasprintf("%s/berth/ledger", state);
	else if (home && *home == '/')
		path = xasprintf("%s/.local/state/berth/ledger", home);
	else
		return NULL;
	for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(path, 0700); /* else open() says so */
		*at = '/';
	}
	return path;
}

/* The locked file, or -1. */
static int ledger_open(void)
{
	const struct timespec pause = { .tv_nsec = LOCK_MS * 1000000L };
	char *path = ledger_path();
	struct stat st;
	int fd = path ? open(path,
			     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
			     0600)
		      : -1;

	free(path);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    st.st_size <= LEDGER_BYTES)
		for (int i = 0; i < LOCK_TRIES; i++) {
			if (!flock(fd, LOCK_EX | LOCK_NB))
				return fd;
			nanosleep(&pause, NULL);
		}
	close(fd);
	return -1;
}

/* The command and the folder it runs in: "python train.py" is another one elsewhere. */
static uint64_t ledger_command(const struct job *j)
{
	char *folder = getcwd(NULL, 0);
	struct strv where = { 0 };
	uint64_t hash;

	strv_add(&where, folder ? folder : "");
	hash = ledger_hash(0, &where);
	for (size_t i = 0; i < j->request->napp; i++)
		hash = ledger_hash(hash, &j->request->app[i].argv);
	strv_free(&where);
	free(folder);
	return hash;
}

void ledger_file_note(struct job *j)
{
	struct ledger_row row = { .np = j->plan.np,
				  .steps = ledger_steps(&j->account.record, STEPS_S) };
	struct ledger *l;
	char *text;
	struct str out = { 0 };
	ssize_t n;
	int fd;

	/* the ranks must have been as many all the time */
	if (j->request->insight.no_ledger || row.steps <= 0 ||
	    j->account.restarts.all || j->account.record.nranks != row.np)
		return;
	fd = ledger_open();
	if (fd < 0)
		return;
	row.command = ledger_command(j);
	l = xcalloc(1, sizeof *l);
	text = xcalloc(1, LEDGER_BYTES + 1);
	n = pread(fd, text, LEDGER_BYTES, 0);
	if (n >= 0) {
		ledger_read(l, text);
		j->account.fewest = ledger_fewest(l, row.command, row.np);
		ledger_add(l, &row);
		ledger_write(&out, l);
		/* what a full disk cuts is left out when it is read */
		if (!ftruncate(fd, 0) && !lseek(fd, 0, SEEK_SET))
			(void)file_write(fd, str_text(&out), out.len);
	}
	close(fd);
	str_free(&out);
	free(text);
	free(l);
}
