/* pmix_folder.h - the folders of a PMIx server: one for its files and for those of the
 * ranks, one in /dev/shm for memory that ranks share (of Open MPI).  Both are 0700.
 *
 * Whatever is left removes them: the agent at the end of the epoch, else the guardian,
 * else the next agent of this user.  A folder in use is locked by its agent.  A folder
 * that another user has put in the place of one stays: what is removed is that which is
 * known by its device and inode, by descriptors, and no link is followed. */
#ifndef BERTH_AGENT_PMI_PMIX_FOLDER_H
#define BERTH_AGENT_PMI_PMIX_FOLDER_H

#include <sys/types.h>

#include "common/err.h"

struct pmix_folder_id {
	dev_t device;
	ino_t inode; /* 0: not known */
};

/* In memory that agent and guardian share.  "": there is none. */
struct pmix_folders {
	char files[256], memory[64];
	struct pmix_folder_id files_id, memory_id;
};

/* NULL without such memory. */
struct pmix_folders *pmix_folders_shared(void);
/* Make both, and remove what dead agents left.  Where others could exchange a folder in
 * TMPDIR, FILES is in /tmp.  Returns a descriptor that holds the
 * locks of FILES, *MEMORY_LOCK that of the other or -1; both the caller's to close; -1
 * with E.  Without /dev/shm there is no second folder. */
int pmix_folders_make(struct pmix_folders *f, int *memory_lock, struct err *e);
/* Remove what dead agents of this user left. */
void pmix_folders_sweep(void);
/* The folders that are at the two paths now are those to empty and to remove. */
void pmix_folders_know(struct pmix_folders *f);
/* pmix_folders_empty() removes all that is in them, pmix_folders_remove() also the
 * folders.  The latter forgets them, but for one to which a process that dies slowly
 * has added a file meanwhile: the guardian removes that.  Both take NULL. */
void pmix_folders_empty(const struct pmix_folders *f);
void pmix_folders_remove(struct pmix_folders *f);

#endif
