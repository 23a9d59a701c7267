#include "lib/boot/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define PART_ALIGN ((size_t)2 << 20)
#define HEAP_MOST ((size_t)16 << 40)

/* ---- the layout ---- */

struct layout {
	size_t rank, lost, record, region, heap, part, bytes;
};

static size_t memory_take(size_t *at, size_t bytes)
{
	size_t here = (*at + PAGE - 1) / PAGE * PAGE;

	*at = here + bytes;
	return here;
}

/* Half of the host's memory, up to the next power of two, so that all ranks come to one
 * answer.  The host may gain or lose some memory while its ranks start.  Each rank may
 * have limits of its own. */
static size_t part_bytes(unsigned local_size)
{
	size_t part = PART_ALIGN, most = HEAP_MOST / local_size;
	struct sysinfo i;

	if (sysinfo(&i))
		return part;
	while (part < i.totalram * i.mem_unit / 2)
		part *= 2;
	return (part < most ? part : most) / PART_ALIGN * PART_ALIGN;
}

static struct layout memory_lay_out(unsigned size, unsigned local_size,
				    size_t region_bytes)
{
	struct layout l = { .part = part_bytes(local_size) };
	size_t at = sizeof(struct boot_memory);

	l.rank = memory_take(&at, local_size * sizeof(struct boot_rank));
	l.lost = memory_take(&at, size);
	l.record = memory_take(&at, (size_t)local_size * BOOT_RECORDS *
					    sizeof(struct boot_record));
	l.region = memory_take(&at, region_bytes);
	at = (at + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
	l.heap = memory_take(&at, local_size * l.part);
	l.bytes = at;
	return l;
}

size_t memory_bytes(unsigned size, unsigned local_size, size_t region_bytes)
{
	return memory_lay_out(size, local_size, region_bytes).bytes;
}

/* ---- coming and leaving ---- */

static int memory_lock(int fd, short type, unsigned byte)
{
	struct flock l = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1
	};

	if (!fcntl(fd, F_SETLK, &l))
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		errno = EBUSY;
	return -1;
}

static int memory_map_layout(struct memory *m, const struct layout *l)
{
	const size_t sizes[] = { l->bytes, l->heap };

	for (int i = 0; i < 2; i++) {
		m->bytes = sizes[i];
		m->at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_NORESERVE, m->fd, 0);
		if (m->at != MAP_FAILED)
			break;
	}
	if (m->at == MAP_FAILED)
		return -1;
	madvise(m->at + l->region, m->bytes - l->region, MADV_DONTDUMP);
	m->head = (struct boot_memory *)m->at;
	m->rank = (struct boot_rank *)(m->at + l->rank);
	m->lost = m->at + l->lost;
	m->records = (struct boot_record *)(m->at + l->record) +
		     (size_t)m->local_rank * BOOT_RECORDS;
	m->region = m->at + l->region;
	if (m->bytes == l->bytes) {
		m->heap_at = l->heap;
		m->heap = m->at + l->heap;
		m->heap_bytes = l->bytes - l->heap;
		m->part_bytes = m->parts.bytes = l->part;
	}
	return 0;
}

/* Every rank writes the same, so any rank may be the first. */
static int fill_head(struct memory *m, const struct layout *l)
{
	struct boot_memory *h = m->head;

	if (__atomic_load_n(&h->magic, __ATOMIC_ACQUIRE) &&
	    (h->magic != BOOT_MAGIC || h->version != BOOT_VERSION ||
	     h->size != m->size || h->local_size != m->local_size ||
	     h->bytes != l->bytes)) {
		errno = EPROTO;
		return -1;
	}
	h->version = BOOT_VERSION;
	h->size = m->size;
	h->local_size = m->local_size;
	h->rank_at = l->rank;
	h->lost_at = l->lost;
	h->record_at = l->record;
	h->bytes = l->bytes;
	__atomic_store_n(&h->magic, BOOT_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

/* Closes the descriptor on exec.  Makes it none of the first three, which programs take
 * for theirs.  The lock comes after this, since any close of the memfd lets it go. */
static int memory_keep(int *fd)
{
	int kept;

	if (*fd > 2)
		return fcntl(*fd, F_SETFD, FD_CLOEXEC);
	kept = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
	if (kept < 0)
		return -1;
	close(*fd);
	*fd = kept;
	return 0;
}

static int map_all(struct memory *m, struct boot_world *w, size_t region_bytes)
{
	struct layout l = memory_lay_out(w->size, w->local_size, region_bytes);
	struct boot_rank *me;
	struct stat s;
	int why;

	*m = (struct memory){ .local_rank = w->local_rank,
			      .local_size = w->local_size,
			      .size = w->size,
			      .pid = getpid(),
			      .at = MAP_FAILED };
	if (fstat(w->memory, &s))
		return -1;
	if ((uint64_t)s.st_size < l.bytes) {
		errno = EPROTO;
		return -1;
	}
	if (memory_keep(&w->memory))
		return -1;
	m->fd = w->memory;
	if (memory_map_layout(m, &l) || fill_head(m, &l) ||
	    memory_lock(m->fd, F_WRLCK, m->local_rank)) {
		why = errno;
		if (m->at != MAP_FAILED)
			munmap(m->at, m->bytes);
		errno = why;
		return -1;
	}
	w->memory = -1;
	pthread_mutex_init(&m->lock, NULL);
	me = &m->rank[m->local_rank];
	me->rank = w->rank;
	me->pid = (uint32_t)m->pid;
	atomic_store_explicit(&me->state, BOOT_JOINED, memory_order_release);
	return 0;
}

int memory_map(struct memory *m, struct boot_world *w, size_t region_bytes)
{
	int rc = map_all(m, w, region_bytes), why = errno;

	if (rc)
		*m = (struct memory){ 0 };
	errno = why;
	return rc;
}

void memory_say_left(struct memory *m)
{
	if (m->pid == getpid())
		atomic_store_explicit(&m->rank[m->local_rank].state, BOOT_LEFT,
				      memory_order_release);
}

/* Without m->at, others keep its mapping. */
void memory_unmap(struct memory *m)
{
	if (!m->head)
		return;
	if (m->at) {
		memory_say_left(m);
		munmap(m->at, m->bytes);
	}
	close(m->fd);
	heap_free(&m->parts);
	if (m->pid == getpid())
		pthread_mutex_destroy(&m->lock);
	*m = (struct memory){ 0 };
}

/* ---- the contents ---- */

void *memory_region(const struct memory *m)
{
	return m->region;
}

struct boot_record *memory_records(const struct memory *m, unsigned local)
{
	return m->records + ((ptrdiff_t)local - m->local_rank) * BOOT_RECORDS;
}

static bool is_in(const struct memory *m, unsigned local)
{
	return atomic_load_explicit(&m->rank[local].state, memory_order_acquire) ==
	       BOOT_JOINED;
}

bool memory_is_secondary(const struct memory *m, unsigned rank)
{
	return rank < m->size &&
	       __atomic_load_n(&m->lost[rank], __ATOMIC_RELAXED) == BOOT_SECONDARY;
}

bool memory_is_lost(const struct memory *m, unsigned rank, int local)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	if (rank < m->size && __atomic_load_n(&m->lost[rank], __ATOMIC_RELAXED))
		return true;
	if (local < 0 || (unsigned)local == m->local_rank || !is_in(m, (unsigned)local))
		return false;
	l.l_start = local;
	if (fcntl(m->fd, F_GETLK, &l) || l.l_type != F_UNLCK)
		return false;
	/* a rank that leaves says so before it lets go */
	return is_in(m, (unsigned)local);
}

/* ---- the heap ---- */

static unsigned char *part_of_ours(const struct memory *m)
{
	return (unsigned char *)m->heap + m->local_rank * m->part_bytes;
}

/* A child must not even look at the lock, since another thread of its parent may have
 * held it. */
static bool is_ours(const struct memory *m)
{
	return m->heap && m->pid == getpid();
}

unsigned char *memory_part(const struct memory *m)
{
	return is_ours(m) ? part_of_ours(m) : NULL;
}

static void *take_part(struct memory *m, size_t bytes, bool is_callers)
{
	size_t at;
	bool got;

	if (!is_ours(m))
		return NULL;
	pthread_mutex_lock(&m->lock);
	got = heap_take(&m->parts, bytes, &at);
	if (got)
		heap_find(&m->parts, at)->is_callers = is_callers;
	pthread_mutex_unlock(&m->lock);
	return got ? part_of_ours(m) + at : NULL;
}

void *memory_alloc(struct memory *m, size_t bytes)
{
	return take_part(m, bytes, false);
}

void *memory_give(struct memory *m, size_t bytes)
{
	return take_part(m, bytes, true);
}

void *memory_at(const struct memory *m, uint64_t at, size_t bytes, size_t align)
{
	if (!m->heap || at % align || at > m->heap_bytes || bytes > m->heap_bytes - at)
		return NULL;
	return (unsigned char *)m->heap + at;
}

bool memory_free(struct memory *m, void *p)
{
	const struct heap_part *part;
	size_t at, bytes = 0;
	off_t in_file;

	if (!p || !is_ours(m))
		return false;
	at = (size_t)((unsigned char *)p - part_of_ours(m));
	pthread_mutex_lock(&m->lock);
	part = heap_find(&m->parts, at);
	if (part)
		bytes = part->bytes;
	pthread_mutex_unlock(&m->lock);
	if (!bytes)
		return false;
	/* The kernel drops whole pages and zeroes what is left at both ends (0.4 us,
	 * and 70 us for each MiB that was written). */
	in_file = (off_t)(m->heap_at + (size_t)((char *)p - (char *)m->heap));
	if (bytes < PAGE || fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				      in_file, (off_t)bytes))
		memset(p, 0, bytes);
	pthread_mutex_lock(&m->lock);
	heap_give(&m->parts, at);
	pthread_mutex_unlock(&m->lock);
	return true;
}
