#include "lib/boot/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

int boot_memfd(size_t bytes, char *why)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("berth", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct rlimit l;

	/* Beyond a limit (ulimit -f) ftruncate() would end the process with SIGXFSZ. */
	if (fd >= 0 && !getrlimit(RLIMIT_FSIZE, &l) && bytes > l.rlim_cur)
		errno = EFBIG;
	else if (fd >= 0 && !ftruncate(fd, (off_t)bytes) &&
		 !fcntl(fd, F_ADD_SEALS, seals))
		return fd;
	snprintf(why, BOOT_WHY_BYTES, "cannot make shared memory of %zu bytes: %s",
		 bytes, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

void boot_world_free(struct boot_world *w)
{
	for (unsigned i = 0; w->host_name && i < w->hosts; i++)
		free(w->host_name[i]);
	free(w->host_name);
	free(w->host);
	if (w->memory >= 0)
		close(w->memory);
	explicit_bzero(w->key, sizeof w->key);
	*w = (struct boot_world){ .memory = -1 };
}

berth_result boot_out_of_memory(char *why)
{
	snprintf(why, BOOT_WHY_BYTES, "out of memory");
	return BERTH_MEMORY;
}

const char *boot_host_name(const struct boot_world *w, unsigned rank)
{
	return w->host_name && w->host_name[w->host[rank]] ? w->host_name[w->host[rank]]
							   : "?";
}
