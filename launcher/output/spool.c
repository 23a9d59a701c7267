#include "launcher/output/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/file.h"
#include "common/str.h"

/* In front of the bytes of a piece. */
struct spool_head {
	uint64_t next; /* place of the rank's next piece; 0: none yet */
	struct spool_piece piece;
};

enum { SPOOL_BEGIN = 8 }; /* of the first piece: 0 stands for none */

struct spool {
	int fd;
	uint32_t np, rank; /* the rank that is read */
	uint64_t end, left;
	struct spool_ends {
		uint64_t first, last; /* its pieces; 0: none */
	} * ends;
	struct spool_head head; /* of the piece that is read, if AT is not 0 */
	uint64_t at;            /* its next byte; 0: no piece is read */
};

int spool_open(struct spool **s, uint32_t np, struct err *e)
{
	const int fd = file_nameless();

	if (fd < 0)
		return err_set(e, E_SORT_FILE, file_tmp_folder(), strerror(errno));
	*s = xcalloc(1, sizeof **s);
	**s = (struct spool){ .fd = fd,
			      .np = np,
			      .end = SPOOL_BEGIN,
			      .ends = xcalloc(np, sizeof *(*s)->ends) };
	return 0;
}

void spool_free(struct spool *s)
{
	if (!s)
		return;
	close(s->fd);
	free(s->ends);
	free(s);
}

int spool_add(struct spool *s, const struct spool_piece *p, const void *bytes)
{
	struct spool_head head = { 0, *p };
	struct spool_ends *ends = &s->ends[p->rank];
	const struct iovec parts[] = { { &head, sizeof head },
				       { (void *)bytes, p->n } };
	const ssize_t n = pwritev(s->fd, parts, 2, (off_t)s->end);

	if (n != (ssize_t)(sizeof head + p->n))
		return n < 0 ? errno : ENOSPC;
	if (ends->last &&
	    pwrite(s->fd, &s->end, sizeof s->end, (off_t)ends->last) != sizeof s->end)
		return errno ? errno : EIO;
	if (!ends->first)
		ends->first = s->end;
	ends->last = s->end;
	s->end += sizeof head + p->n;
	s->left += p->n;
	return 0;
}

const struct spool_piece *spool_next(struct spool *s)
{
	while (s->rank < s->np) {
		const uint64_t place = s->at ? s->head.next : s->ends[s->rank].first;

		if (s->at && s->head.piece.n)
			return &s->head.piece;
		s->at = 0;
		if (!place) {
			s->rank++;
		} else if (pread(s->fd, &s->head, sizeof s->head, (off_t)place) ==
			   sizeof s->head) {
			s->at = place + sizeof s->head;
		} else {
			s->rank = s->np;
			s->left = 0;
		}
	}
	return NULL;
}

int spool_read(struct spool *s, void *bytes, size_t most, size_t *n)
{
	ssize_t some;

	*n = most < s->head.piece.n ? most : s->head.piece.n;
	some = pread(s->fd, bytes, *n, (off_t)s->at);
	if (some != (ssize_t)*n) {
		s->rank = s->np;
		s->left = 0;
		return some < 0 ? errno : EIO;
	}
	s->at += *n;
	s->head.piece.n -= (uint32_t)*n;
	s->left -= *n;
	return 0;
}

size_t spool_left(const struct spool *s)
{
	return s->left;
}

void spool_empty(struct spool *s)
{
	if (!ftruncate(s->fd, 0)) /* else what comes stands behind what was read */
		s->end = SPOOL_BEGIN;
	memset(s->ends, 0, s->np * sizeof *s->ends);
	s->left = s->at = s->rank = 0;
}
