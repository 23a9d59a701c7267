#include "agent/pmi/mpi_find.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include "agent/pmi/elf.h"

static const char openmpi[] = "libmpi.so.40", libpmix[] = "libpmix.so.2";

static bool is_one_of(const char *name, const char *const *patterns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!fnmatch(patterns[i], name, 0))
			return true;
	return false;
}

/* ---- what a program needs ---- */

/* The C library, the compiler's, and ours: none of them loads an MPI. */
static bool is_harmless(const char *library)
{
	static const char *const names[] = {
		"libc.so.6",      "libm.so.6",       "libpthread.so.0",
		"libdl.so.2",     "librt.so.1",      "libutil.so.1",
		"libresolv.so.2", "libnsl.so.1",     "libanl.so.1",
		"libmvec.so.1",   "ld-linux-*.so.*", "libgcc_s.so.1",
		"libstdc++.so.6", "libgomp.so.1",    "libgfortran.so.*",
		"libatomic.so.1", "libasan.so.*",    "libquadmath.so.0",
		"libtsan.so.*",   "liblsan.so.*",    "libubsan.so.*",
		"libhwasan.so.*", "libberth.so.*",
	};

	return is_one_of(library, names, sizeof names / sizeof *names);
}

/* Whether it loads a library, or begins another program, which may be one of MPI. */
static bool is_way_out(const char *symbol)
{
	static const char *const names[] = {
		"dlopen",       "dlmopen",      "exec*",       "fexecve",
		"posix_spawn",  "posix_spawnp", "pidfd_spawn", "popen",
		"pidfd_spawnp", "system",       "wordexp",
	};
	const size_t n = strcspn(symbol, "@"); /* "dlopen@GLIBC_2.34" */
	char bare[32];

	if (n >= sizeof bare)
		return !strncmp(symbol, "exec", 4);
	memcpy(bare, symbol, n);
	bare[n] = '\0';
	return is_one_of(bare, names, sizeof names / sizeof *names);
}

/* A Fortran program may need nothing else of Open MPI: libmpi_mpifh.so.40 ... */
static bool needs_fortran_of_openmpi(const struct elf *e)
{
	static const char end[] = ".so.40";

	for (size_t i = 0; i < e->needed.n; i++) {
		const char *name = e->needed.v[i];
		const size_t n = strlen(name);

		if (!strncmp(name, "libmpi_", 7) && n > sizeof end - 1 &&
		    !strcmp(name + n - (sizeof end - 1), end))
			return true;
	}
	return false;
}

static enum mpi_need need_of(const struct elf *e)
{
	if (strv_has(&e->needed, openmpi) || strv_has(&e->needed, libpmix) ||
	    needs_fortran_of_openmpi(e))
		return MPI_NEED_PMIX;
	if (!e->needed.n) /* a static program has an MPI inside, perhaps */
		return MPI_NEED_MAYBE;
	for (size_t i = 0; i < e->needed.n; i++)
		if (!is_harmless(e->needed.v[i]))
			return MPI_NEED_MAYBE;
	for (size_t i = 0; i < e->imports.n; i++)
		if (is_way_out(e->imports.v[i]))
			return MPI_NEED_MAYBE;
	return MPI_NEED_NONE;
}

enum mpi_need mpi_need(const char *path)
{
	enum mpi_need need;
	struct elf e;

	elf_read(&e, path);
	need = need_of(&e);
	elf_free(&e);
	return need;
}

/* ---- files in folders ---- */

/* The file NAME in FOLDER, of N bytes, or NULL.  The caller frees it. */
static char *file_in(const char *folder, size_t n, const char *name)
{
	struct stat st;
	char *path;

	if (*folder != '/')
		return NULL;
	path = xasprintf("%.*s/%s", (int)n, folder, name);
	if (!stat(path, &st) && S_ISREG(st.st_mode))
		return path;
	free(path);
	return NULL;
}

static char *file_in_folders(const struct strv *folders, const char *name)
{
	char *path = NULL;

	for (size_t i = 0; !path && i < folders->n; i++)
		path = file_in(folders->v[i], strlen(folders->v[i]), name);
	return path;
}

/* The file of the library NAME that E needs, as the loader finds it, but for what the
 * system's search would find; or NULL.  The caller frees it. */
static char *library_of(const struct elf *e, const char *name, const char *library_path)
{
	char *path = e->folders_first ? file_in_folders(&e->folders, name) : NULL;

	while (library_path && *library_path && !path) {
		const size_t n = strcspn(library_path, ":;"); /* as the loader has it */

		path = file_in(library_path, n, name);
		library_path += n + (library_path[n] != '\0');
	}
	return path ? path : file_in_folders(&e->folders, name);
}

/* ---- libpmix ---- */

/* Takes PATH, or NULL. */
static void add_once(struct strv *out, char *path)
{
	struct stat x, y;

	for (size_t i = 0; path && i < out->n; i++)
		if (!strcmp(out->v[i], path) ||
		    (!stat(out->v[i], &x) && !stat(path, &y) && x.st_dev == y.st_dev &&
		     x.st_ino == y.st_ino)) {
			free(path);
			return;
		}
	if (path)
		strv_take(out, path);
}

static void add_from_folders(struct strv *out, const struct strv *folders)
{
	for (size_t i = 0; i < folders->n; i++)
		add_once(out, file_in(folders->v[i], strlen(folders->v[i]), libpmix));
}

static void add_beside(struct strv *out, const char *libmpi)
{
	const size_t n = (size_t)(strrchr(libmpi, '/') - libmpi);

	add_once(out, file_in(libmpi, n, libpmix));
	add_once(out, file_in(libmpi, n, "openmpi/libpmix.so.2"));
}

/* LIBMPI: its file.  The name may be a symbolic link to where the rest of it is. */
static void add_for_libmpi(struct strv *out, const char *libmpi)
{
	char *real = realpath(libmpi, NULL);
	struct elf e;

	add_beside(out, libmpi);
	if (real)
		add_beside(out, real);
	free(real);
	elf_read(&e, libmpi);
	add_from_folders(out, &e.folders);
	elf_free(&e);
}

static const char *libmpi_of(const struct elf *e)
{
	for (size_t i = 0; i < e->needed.n; i++)
		if (!fnmatch("libmpi.so*", e->needed.v[i], 0))
			return e->needed.v[i];
	return NULL;
}

void mpi_find_libpmix(struct strv *out, const char *program, const char *chosen,
		      const char *library_path)
{
	const char *name;
	struct elf e;

	if (chosen && *chosen) {
		strv_add(out, chosen);
		return;
	}
	elf_read(&e, program);
	name = libmpi_of(&e);
	if (name) {
		char *libmpi = library_of(&e, name, library_path);

		if (libmpi)
			add_for_libmpi(out, libmpi);
		free(libmpi);
	}
	if (strv_has(&e.needed, libpmix))
		add_from_folders(out, &e.folders);
	elf_free(&e);
	while (library_path && *library_path) {
		const size_t n = strcspn(library_path, ":;");

		add_once(out, file_in(library_path, n, libpmix));
		library_path += n + (library_path[n] != '\0');
	}
	strv_add(out, libpmix);
}

/* ---- for a report ---- */

const char *mpi_name(const char *program, struct str *path)
{
	const char *name, *words = NULL;
	struct elf e;
	char *libmpi;

	elf_read(&e, program);
	name = libmpi_of(&e);
	if (name && !strcmp(name, openmpi))
		words = "Open MPI";
	else if (name && !strcmp(name, "libmpi.so.12"))
		words = "MPICH or Intel MPI";
	libmpi = words ? library_of(&e, name, NULL) : NULL;
	if (libmpi)
		str_add(path, libmpi);
	free(libmpi);
	elf_free(&e);
	return words;
}
