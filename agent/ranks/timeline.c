#include "agent/ranks/timeline.h"

#include <errno.h>
#include <unistd.h>

#include "common/file.h"

int timeline_open(struct rank_timeline *t, uint32_t first, uint32_t last)
{
	const int fd = file_nameless();

	*t = (struct rank_timeline){ .fd = fd };
	if (fd < 0)
		return errno;
	snprintf(t->text, sizeof t->text, "%u-%u:/proc/%d/fd/%d", first, last,
		 (int)getpid(), fd);
	return 0;
}

void timeline_tell(const struct rank_timeline *t, struct env_paths *to)
{
	to->timeline = *t->text ? t->text : NULL;
}

bool timeline_send(struct rank_timeline *t, struct io *io, uint32_t rank)
{
	while (*t->text && t->sent < WIRE_TIMELINE_MAX) {
		const size_t n = io_send_file(io, t->fd, t->sent, rank, WIRE_TIMELINE);

		t->sent += n;
		if (!n)
			return lseek(t->fd, 0, SEEK_END) <= (off_t)t->sent;
	}
	return true;
}

void timeline_again(struct rank_timeline *t)
{
	t->sent = 0;
	if (*t->text && ftruncate(t->fd, 0))
		timeline_free(t);
}

void timeline_free(struct rank_timeline *t)
{
	if (*t->text)
		close(t->fd);
	*t = (struct rank_timeline){ 0 };
}
