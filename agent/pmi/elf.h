/* elf.h - what the dynamic part of an ELF file says: which libraries it needs, where
 * they are looked for, and which symbols it takes from them.
 *
 * A user names the file, so it may be broken, or made to harm.  Each offset and count
 * is checked, and no more than ELF_MOST_BYTES are read and kept, however large the file
 * is.  The file is read, not mapped: a mapped file that becomes shorter ends its reader
 * by SIGBUS.
 *
 * Understood are files of 64 and 32 bits in the byte order of this machine.  Of the
 * number of dynamic symbols an ELF file says nothing: it follows from a hash table, as
 * in the loader, or from the section headers.  Source of the method: the System V ABI;
 * for DT_GNU_HASH, elf/dl-lookup.c in glibc. */
#ifndef BERTH_AGENT_PMI_ELF_H
#define BERTH_AGENT_PMI_ELF_H

#include <stdbool.h>

#include "common/str.h"

enum { ELF_MOST_BYTES = 64 << 20 };

/* All is empty unless is_dynamic. */
struct elf {
	bool is_elf;        /* false: no ELF file, or none that we understand */
	bool is_dynamic;    /* has a PT_DYNAMIC; a static program may have one, too */
	bool folders_first; /* DT_RPATH: LD_LIBRARY_PATH comes after the folders */
	struct strv needed; /* DT_NEEDED */
	/* DT_RUNPATH, else DT_RPATH; $ORIGIN is replaced by the folder of the file. */
	struct strv folders;
	struct strv imports; /* the names of undefined dynamic symbols */
};

/* Pure: the file's N BYTES.  FOLDER: where the file is. */
void elf_parse(struct elf *out, const void *bytes, size_t n, const char *folder);
/* The file PATH, as exec would open it.  What cannot be read is no ELF file. */
void elf_read(struct elf *out, const char *path);
void elf_free(struct elf *e);

#endif
