#include "agent/ranks/listener.h"

#include <ctype.h>
#include <inttypes.h>

#include "agent/ranks/procs.h"
#include "common/file.h"

/* A line is "0: ADDRESS:PORT PEER:PORT STATE queues timer retransmits UID timeout INODE
 * ..."; the first one names the columns. */
bool listener_find(struct listener *l, const char *text, uint32_t port)
{
	enum { LISTENS = 0x0a };

	for (const char *line = text; *line; line += *line == '\n') {
		unsigned number, state;

		if (sscanf(line,
			   " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s "
			   "%" SCNu32 " %*u %" SCNu64,
			   &number, &state, &l->uid, &l->inode) == 4 &&
		    number == port && state == LISTENS)
			return true;
		line += strcspn(line, "\n");
	}
	return false;
}

static bool find_in_file(struct listener *l, const char *path, uint32_t port)
{
	enum { MOST_BYTES = 16 << 20 }; /* 100000 sockets */
	struct str text = { 0 };
	bool found;

	file_read(&text, path, MOST_BYTES, false);
	found = listener_find(l, str_text(&text), port);
	str_free(&text);
	return found;
}

static char wanted[40];

static bool is_wanted(const char *path)
{
	return !strcmp(path, wanted);
}

/* A process below us that has the socket is the job's own. */
bool listener_is_stranger(struct str *who, uint32_t port)
{
	struct procs all, below;
	struct listener l;
	bool own = false;

	if (!port || (!find_in_file(&l, "/proc/net/tcp", port) &&
		      !find_in_file(&l, "/proc/net/tcp6", port)))
		return false;
	snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", l.inode);
	str_addf(who, "uid %u", l.uid);
	procs_load_below(&below);
	procs_load(&all);
	for (size_t i = 0; i < all.n && !own; i++) {
		struct proc *p = &all.v[i];

		if (!proc_has_open(p->pid, is_wanted))
			continue;
		own = procs_find(&below, p->pid);
		for (char *c = p->comm; *c; c++)
			*c = isprint((unsigned char)*c) ? *c : '?';
		str_addf(who, ", pid %d (%s)", (int)p->pid, p->comm);
		break;
	}
	procs_free(&all);
	procs_free(&below);
	return !own;
}
