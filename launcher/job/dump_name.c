#include "launcher/job/dump_name.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CALLERS_WAIT = 8, ID_MOST = 64 };

static size_t name_of(char *name, size_t size, const char *job_id)
{
	return (size_t)snprintf(name, size, "berth-dump-%u-%.*s", (unsigned)geteuid(),
				ID_MOST, job_id);
}

/* A socket, and where it listens. */
static int socket_of(struct sockaddr_un *a, socklen_t *bytes, const char *job_id)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			     name_of(a->sun_path + 1, sizeof a->sun_path - 1, job_id));
	/* a stranger's socket whose queue is full would hold connect() up */
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int dump_name_listen(const char *job_id)
{
	struct sockaddr_un a;
	socklen_t bytes;
	const int fd = socket_of(&a, &bytes, job_id);

	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&a, bytes) || listen(fd, CALLERS_WAIT))) {
		close(fd); /* keeps errno */
		return -1;
	}
	return fd;
}

int dump_name_dial(const char *job_id)
{
	struct ucred owner;
	struct sockaddr_un a;
	socklen_t bytes, size = sizeof owner;
	const int fd = socket_of(&a, &bytes, job_id);

	if (fd >= 0 && !connect(fd, (struct sockaddr *)&a, bytes) &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size) &&
	    owner.uid == geteuid())
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

void dump_name_list(struct strv *jobs, const char *prefix)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char name[sizeof((struct sockaddr_un *)NULL)->sun_path + 1] = "@", *line = NULL;
	const size_t begin = 1 + name_of(name + 1, sizeof name - 1, "");
	size_t room = 0;

	while (f && jobs->n < DUMP_JOBS_MOST && getline(&line, &room, f) > 0) {
		const char *at = strstr(line, name);
		int fd;

		line[strcspn(line, "\n")] = '\0';
		if (!at || strncmp(at + begin, prefix, strlen(prefix)) != 0 ||
		    strv_has(jobs, at + begin)) /* connections have that name, too */
			continue;
		fd = dump_name_dial(at + begin);
		if (fd >= 0) {
			strv_add(jobs, at + begin);
			close(fd);
		}
	}
	free(line);
	if (f)
		fclose(f);
}
