/* Ranks that die.  Their mutexes tell, before the kernel has freed their memory, closed
 * their sockets and told their parent.  A call of exec ends the threads of a process,
 * too, so a look at all of its threads follows. */
#include "agent/pmi/server_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file.h"
#include "common/loop.h"

/* ---- is it true? ---- */

/* Does thread TID of process PID exit?  One that is gone has.  *CODE: the status of the
 * process, as far as its thread has set it. */
static bool thread_exits(pid_t pid, pid_t tid, long *code)
{
	enum { EXITING = 0x4 /* PF_EXITING of the kernel's linux/sched.h */ };
	char path[64], text[1024], *end;
	unsigned long flags = 0;

	*code = 0;
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	if (file_start(path, text, sizeof text) <= 0)
		return true;
	end = strrchr(text, ')');
	if (!end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) != 1)
		return false;
	*code = strtol(strrchr(text, ' '), NULL, 10); /* the last of them */
	return flags & EXITING;
}

/* The first thread comes last, since one that calls exec takes its place, and its own
 * is gone then.  While that one begins to run, it may call exec again.  So a status
 * counts, too: threads that exec ends have 0, as has a process that ends well. */
bool dying_exits(pid_t pid)
{
	char path[64];
	struct dirent *d;
	bool all = true;
	long code;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	dir = pid > 0 ? opendir(path) : NULL;
	if (!dir)
		return false;
	while (all && (d = readdir(dir)))
		if (*d->d_name != '.')
			all = thread_exits(pid, (pid_t)strtol(d->d_name, NULL, 10),
					   &code);
	closedir(dir);
	return all && thread_exits(pid, pid, &code) && code;
}

/* ---- looks ---- */

bool dying_look(struct member *m)
{
	const bool again = m->may_die;

	m->may_die = m->alive && atomic_load(m->alive) & BOOT_DIED;
	return m->may_die && again && dying_exits(m->pid);
}

void dying_forget(struct member *m)
{
	if (m->alive)
		munmap(m->alive, BOOT_ALIVE_BYTES);
	m->alive = NULL;
	m->may_die = false;
}

/* The descriptor of a sealed memory, mapped at *AT; or -1. */
static int dying_memory(void **at)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("berth alive", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	*at = MAP_FAILED;
	if (fd >= 0 && !ftruncate(fd, BOOT_ALIVE_BYTES) &&
	    !fcntl(fd, F_ADD_SEALS, seals))
		*at = mmap(NULL, BOOT_ALIVE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (*at != MAP_FAILED)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

char *dying_watch(struct client *c)
{
	struct member *m = client_member(c);
	void *at;
	const int fd = dying_memory(&at);
	bool sent;

	if (fd < 0) { /* the rank goes on without one */
		client_send(c, BOOT_ALIVE, "", 0);
		return NULL;
	}
	sent = client_send_fd(c, BOOT_ALIVE, "", 0, fd);
	close(fd);
	if (!sent) {
		munmap(at, BOOT_ALIVE_BYTES);
		return xstrdup("the rank does not read the answers");
	}
	dying_forget(m);
	m->alive = at;
	m->pid = c->pid;
	loop_after_ms(c->s->dying, DYING_LOOK_MS);
	return NULL;
}
