/* agent/pmi/elf.h and mpi_find.h: ELF files made here and real ones, what programs
 * need, where libpmix is.
 * takes_s: 5 */
#include <check.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pmi/elf.h"
#include "agent/pmi/mpi_find.h"

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- an ELF file ---- */

enum { AT_FIRST = 0x10000, AT_STRINGS = 0x90000 }; /* addresses of its two segments */
enum count { BY_HASH, BY_GNU_HASH, BY_SECTIONS, BY_NOTHING };

/* Each list ends with NULL.  Hash tables have the exports and, behind them, the late
 * imports: functions to which a program has pointers. */
struct spec {
	const char *const *needed, *const *imports, *const *exports, *const *late;
	const char *rpath, *runpath;
	unsigned strings_cut; /* bytes by which DT_STRSZ is too small */
	enum count count;
	bool is_narrow, is_static;
};

static const char *const none[] = { NULL };

#define PUT(s, narrow, type, ...)                                                      \
	do {                                                                           \
		if (narrow)                                                            \
			str_addn(s, &(Elf32_##type){ __VA_ARGS__ },                    \
				 sizeof(Elf32_##type));                                \
		else                                                                   \
			str_addn(s, &(Elf64_##type){ __VA_ARGS__ },                    \
				 sizeof(Elf64_##type));                                \
	} while (0)
#define SIZE(narrow, type) ((narrow) ? sizeof(Elf32_##type) : sizeof(Elf64_##type))

static const char *const *list(const char *const *l)
{
	return l ? l : none;
}

/* Where TEXT is in the table of strings; the same text is there once. */
static unsigned in_strings(struct str *strings, const char *text)
{
	const size_t n = strlen(text) + 1;
	const char *old = strings->s ? memmem(strings->s, strings->len, text, n) : NULL;

	if (!old) {
		str_addn(strings, text, n);
		return (unsigned)(strings->len - n);
	}
	return (unsigned)(old - strings->s);
}

static void put_words(struct str *s, const uint32_t *words, size_t n)
{
	str_addn(s, words, n * sizeof *words);
}

/* A table of IMPORTS and EXPORTS symbols, the exports in two buckets. */
static void put_hash(struct str *s, const struct spec *spec, uint32_t imports,
		     uint32_t exports)
{
	const uint32_t first = imports + 1, second = exports > 1 ? first + 1 : 0;

	if (spec->count == BY_HASH)
		put_words(s, (uint32_t[]){ 1, first + exports, 0 }, 3);
	if (spec->count != BY_GNU_HASH)
		return;
	put_words(s, (uint32_t[]){ 2, first, 1, 0, 0 }, 5);
	if (!spec->is_narrow)
		put_words(s, (uint32_t[]){ 0 }, 1);
	put_words(s, (uint32_t[]){ second, exports ? first : 0 }, 2);
	for (uint32_t i = 0; i < exports; i++)
		put_words(s, &(uint32_t){ i == 0 || i + 1 == exports }, 1);
}

static uint32_t put_symbols(struct str *s, struct str *strings, const struct spec *spec,
			    const char *const *names, uint16_t where)
{
	uint32_t n = 0;

	for (; names[n]; n++)
		PUT(s, spec->is_narrow, Sym, .st_name = in_strings(strings, names[n]),
		    .st_shndx = where);
	return n;
}

static void put_dynamic(struct str *s, struct str *strings, const struct spec *spec,
			unsigned symbols, unsigned hash, unsigned strings_n)
{
	const struct {
		int tag;
		unsigned value;
	} rows[] = {
		{ DT_RPATH, spec->rpath ? in_strings(strings, spec->rpath) : 0 },
		{ DT_RUNPATH, spec->runpath ? in_strings(strings, spec->runpath) : 0 },
		{ DT_STRTAB, AT_STRINGS },
		{ DT_STRSZ, strings_n - spec->strings_cut },
		{ DT_SYMTAB, AT_FIRST + symbols },
		{ DT_HASH, spec->count == BY_HASH ? AT_FIRST + hash : 0 },
		{ DT_GNU_HASH, spec->count == BY_GNU_HASH ? AT_FIRST + hash : 0 },
		{ DT_NULL, 0 },
		{ DT_NEEDED, 0xffffff }, /* past the end */
	};

	for (const char *const *n = list(spec->needed); *n; n++)
		PUT(s, spec->is_narrow, Dyn, .d_tag = DT_NEEDED,
		    .d_un.d_val = in_strings(strings, *n));
	for (int i = 0; i < LEN(rows); i++)
		if (rows[i].value || rows[i].tag == DT_NULL)
			PUT(s, spec->is_narrow, Dyn, .d_tag = rows[i].tag,
			    .d_un.d_val = rows[i].value);
}

/* What stands before the parts; the strings come after them, then sections. */
static void put_heads(struct str *s, const struct spec *spec, unsigned dynamic_n,
		      unsigned parts_n, unsigned strings_n)
{
	const bool narrow = spec->is_narrow;
	const unsigned head = (unsigned)(SIZE(narrow, Ehdr) + 3 * SIZE(narrow, Phdr));
	const bool sections = spec->count == BY_SECTIONS;

	PUT(s, narrow, Ehdr,
	    .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3,
			 narrow ? ELFCLASS32 : ELFCLASS64,
			 __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB
								   : ELFDATA2MSB,
			 EV_CURRENT },
	    .e_type = ET_DYN, .e_phoff = (unsigned)SIZE(narrow, Ehdr), .e_phnum = 3,
	    .e_phentsize = (uint16_t)SIZE(narrow, Phdr),
	    .e_shoff = sections ? head + parts_n + strings_n : 0,
	    .e_shnum = sections ? 2 : 0, .e_shentsize = (uint16_t)SIZE(narrow, Shdr));
	PUT(s, narrow, Phdr, .p_type = PT_LOAD, .p_vaddr = AT_FIRST,
	    .p_filesz = head + parts_n);
	PUT(s, narrow, Phdr, .p_type = PT_LOAD, .p_vaddr = AT_STRINGS,
	    .p_offset = head + parts_n, .p_filesz = strings_n);
	PUT(s, narrow, Phdr, .p_type = spec->is_static ? PT_NOTE : PT_DYNAMIC,
	    .p_offset = head, .p_filesz = dynamic_n);
}

/* The file: heads, dynamic segment, symbols, hash table, strings, sections.  The parts
 * are made twice, for the second time with what the first said of their sizes. */
static struct str make(const struct spec *spec)
{
	const bool narrow = spec->is_narrow;
	const size_t head = SIZE(narrow, Ehdr) + 3 * SIZE(narrow, Phdr);
	struct str out = { 0 }, parts = { 0 }, strings = { 0 };
	size_t dynamic_n = 0, hash = 0;

	str_addn(&strings, "\0", 2); /* more than strings_cut */
	for (int i = 0; i < 2; i++) {
		uint32_t imports, exports;

		parts.len = 0;
		put_dynamic(&parts, &strings, spec, (unsigned)(head + dynamic_n),
			    (unsigned)(head + hash), (unsigned)strings.len);
		dynamic_n = parts.len;
		PUT(&parts, narrow, Sym, .st_name = 0);
		imports = put_symbols(&parts, &strings, spec, list(spec->imports), 0);
		exports = put_symbols(&parts, &strings, spec, list(spec->exports), 7);
		exports += put_symbols(&parts, &strings, spec, list(spec->late), 0);
		hash = parts.len;
		put_hash(&parts, spec, imports, exports);
	}
	put_heads(&out, spec, (unsigned)dynamic_n, (unsigned)parts.len,
		  (unsigned)strings.len);
	str_addn(&out, parts.s, parts.len);
	str_addn(&out, strings.s, strings.len);
	PUT(&out, narrow, Shdr, .sh_type = SHT_DYNSYM, .sh_addr = 1, .sh_size = 999);
	PUT(&out, narrow, Shdr, .sh_type = SHT_DYNSYM,
	    .sh_addr = (unsigned)(AT_FIRST + head + dynamic_n),
	    .sh_size = (unsigned)(hash - dynamic_n));
	str_free(&parts);
	str_free(&strings);
	return out;
}

static void same_list(const struct strv *got, const char *const *want)
{
	size_t n = 0;

	for (; want[n]; n++) {
		ck_assert_uint_lt(n, got->n);
		ck_assert_str_eq(got->v[n], want[n]);
	}
	ck_assert_uint_eq(got->n, n);
}

static void nothing_in(const struct elf *e)
{
	ck_assert(!e->is_dynamic);
	ck_assert_uint_eq(e->needed.n + e->folders.n + e->imports.n, 0);
}

static const char *const two_needed[] = { "libberth.so.0.2", "libc.so.6", NULL };
static const char *const three_imports[] = { "puts", "fork", "berth_init", NULL };
static const char *const all_imports[] = { "puts", "fork", "berth_init", "late", NULL };
static const char *const three_exports[] = { "environ", "a", "puts_not", NULL };
static const char *const late_import[] = { "late", NULL };
static const char *const one_folder[] = { "/here/lib", NULL };

static struct spec usual(int i)
{
	return (struct spec){ .needed = two_needed,
			      .imports = three_imports,
			      .exports = i & 4 ? NULL : three_exports,
			      .late = i & 4 ? NULL : late_import,
			      .runpath = "$ORIGIN/lib",
			      .is_narrow = i & 8,
			      .count = i & 3 };
}

static const char *const *usual_imports(int i)
{
	return i & 4 ? three_imports : all_imports;
}

/* ---- elf.h ---- */

START_TEST(parts_of_a_file)
{
	const struct spec spec = usual(_i);
	struct str file = make(&spec);
	struct elf e;

	elf_parse(&e, file.s, file.len, "/here");
	if (spec.count == BY_NOTHING || (spec.count == BY_GNU_HASH && !spec.exports)) {
		ck_assert(!e.is_elf);
		nothing_in(&e);
	} else {
		ck_assert(e.is_elf && e.is_dynamic && !e.folders_first);
		same_list(&e.needed, two_needed);
		same_list(&e.imports, usual_imports(_i));
		same_list(&e.folders, one_folder);
	}
	elf_free(&e);
	ck_assert(!e.is_elf);
	nothing_in(&e);
	str_free(&file);
}
END_TEST

static const struct {
	const char *rpath, *runpath;
	const char *folders[6];
	bool folders_first;
} paths[] = {
	{ NULL, NULL, { NULL }, false },
	{ "", "", { NULL }, false },
	{ "/a", NULL, { "/a" }, true },
	{ "/a", "/b", { "/b" }, false },
	{ NULL, "/a:/b:c", { "/a", "/b", "c" }, false },
	{ NULL, ":/a::/b:", { "/a", "/b" }, false },
	{ NULL, "$ORIGIN", { "/o" }, false },
	{ NULL,
	  "$ORIGIN/../lib:${ORIGIN}x:/a/$ORIGIN",
	  { "/o/../lib", "/ox", "/a//o" },
	  false },
	{ NULL, "$ORIGIN$ORIGIN:${ORIGIN}${ORIGIN}", { "/o/o", "/o/o" }, false },
	{ NULL,
	  "$ORIGINS:$ORIGIN_:${ORIGIN:$ORIGI:$",
	  { "$ORIGINS", "$ORIGIN_", "${ORIGIN", "$ORIGI", "$" },
	  false },
	{ "$LIB:$ORIGIN-1", NULL, { "$LIB", "/o-1" }, true },
};

START_TEST(folders_of_a_file)
{
	const struct spec spec = { .rpath = paths[_i].rpath,
				   .runpath = paths[_i].runpath };
	struct str file = make(&spec);
	struct elf e;

	elf_parse(&e, file.s, file.len, "/o");
	ck_assert(e.is_elf && e.is_dynamic);
	same_list(&e.folders, paths[_i].folders);
	ck_assert(e.folders_first == paths[_i].folders_first);
	elf_free(&e);
	str_free(&file);
}
END_TEST

/* The other byte order, another class, another size of a segment; no ELF file. */
START_TEST(files_of_others)
{
	static const struct {
		size_t at;
		char value;
	} changes[] = { { 0, 'E' },       { 3, 'f' },
			{ EI_CLASS, 0 },  { EI_CLASS, 3 },
			{ EI_DATA, 0 },   { EI_DATA, ELFDATA2LSB + ELFDATA2MSB },
			{ EI_DATA, 127 }, { offsetof(Elf64_Ehdr, e_phentsize), 1 } };
	const struct spec spec = usual(0);
	struct str file = make(&spec);
	struct elf e;

	for (int i = 0; i < LEN(changes); i++) {
		const char old = file.s[changes[i].at];

		file.s[changes[i].at] = changes[i].value;
		elf_parse(&e, file.s, file.len, "/here");
		ck_assert(!e.is_elf);
		nothing_in(&e);
		file.s[changes[i].at] = old;
	}
	file.s[EI_DATA] = ELFDATA2LSB + ELFDATA2MSB - file.s[EI_DATA];
	elf_parse(&e, file.s, file.len, "/here");
	ck_assert(!e.is_elf);
	str_free(&file);
}
END_TEST

/* A string that ends behind the table; a segment of strings that is smaller than the
 * table, or larger than the file. */
START_TEST(parts_past_their_ends)
{
	static const Elf64_Xword sizes[] = { 8, 1 << 20, UINT64_MAX };
	const size_t at_size = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) +
			       offsetof(Elf64_Phdr, p_filesz);
	struct spec spec = usual(BY_HASH);
	struct str file = make(&spec);
	struct elf e;

	for (int i = 0; i < LEN(sizes); i++) {
		memcpy(file.s + at_size, &sizes[i], sizeof sizes[i]);
		elf_parse(&e, file.s, file.len, "/here");
		ck_assert(!e.is_elf);
	}
	str_free(&file);
	spec.strings_cut = 1;
	file = make(&spec);
	elf_parse(&e, file.s, file.len, "/here");
	ck_assert(!e.is_elf);
	str_free(&file);
}
END_TEST

/* N bytes in a block of their own, so that sanitizers see a read past them. */
static struct elf parse_copy(const void *bytes, size_t n)
{
	void *copy = xmalloc(n);
	struct elf e;

	memcpy(copy, bytes, n);
	elf_parse(&e, copy, n, "/here");
	free(copy);
	return e;
}

/* All is there or nothing, and the same is said of a file. */
START_TEST(truncated_at_each_byte)
{
	const struct spec spec = usual(_i);
	struct str file = make(&spec);
	int fd = memfd_create("elf", MFD_CLOEXEC);
	char *path = xasprintf("/proc/self/fd/%d", fd);

	ck_assert_int_eq(write(fd, file.s, file.len), (ssize_t)file.len);
	for (size_t n = file.len + 1; n-- > 0;) {
		struct elf e = parse_copy(file.s, n), f;

		ck_assert_int_eq(ftruncate(fd, (off_t)n), 0);
		elf_read(&f, path);
		ck_assert(e.is_elf == f.is_elf && e.is_dynamic == f.is_dynamic);
		ck_assert_uint_eq(e.imports.n, f.imports.n);
		if (e.is_elf) {
			same_list(&e.needed, two_needed);
			same_list(&f.needed, two_needed);
			same_list(&e.imports, usual_imports(_i));
		} else {
			nothing_in(&e);
		}
		elf_free(&e);
		elf_free(&f);
	}
	close(fd);
	free(path);
	str_free(&file);
}
END_TEST

START_TEST(each_byte_changed)
{
	static const int values[] = { 0, 1, 0x7f, 0x80, 0xff };
	const struct spec spec = usual(_i);
	struct str file = make(&spec);

	for (size_t at = 0; at < file.len; at++) {
		const char old = file.s[at];

		for (int i = 0; i < LEN(values); i++) {
			struct elf e;

			file.s[at] = (char)values[i];
			e = parse_copy(file.s, file.len);
			if (!e.is_elf || !e.is_dynamic)
				nothing_in(&e);
			elf_free(&e);
		}
		file.s[at] = old;
	}
	str_free(&file);
}
END_TEST

/* A small file of which the lists would be large. */
START_TEST(more_than_may_be_kept)
{
	static const char *names[3000];
	char *text = xmalloc(100001), *folder = xmalloc(100001);
	struct spec spec = { .needed = names };
	struct str file;
	struct elf e;

	memset(text, 'x', 100000);
	text[100000] = '\0';
	for (int i = 0; i + 1 < LEN(names); i++)
		names[i] = text;
	file = make(&spec);
	elf_parse(&e, file.s, file.len, "/here");
	ck_assert(!e.is_elf);
	str_free(&file);
	memcpy(folder, text, 100001);
	for (int i = 0; i < 10000; i++)
		memcpy(text + (size_t)i * 10, "$ORIGIN/x:", 10);
	spec = (struct spec){ .runpath = text };
	file = make(&spec);
	elf_parse(&e, file.s, file.len, folder);
	ck_assert(!e.is_elf);
	elf_parse(&e, file.s, file.len, "/");
	ck_assert_uint_eq(e.folders.n, 10000);
	elf_free(&e);
	str_free(&file);
	free(text);
	free(folder);
}
END_TEST

/* ---- files in a folder ---- */

static char root[PATH_MAX];

static void setup(void)
{
	char name[] = "/tmp/berth-elf-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(name));
	ck_assert_ptr_nonnull(realpath(name, root));
}

static void teardown(void)
{
	char *command[] = { "rm", "-rf", root, NULL };
	pid_t pid = fork();

	if (!pid) {
		execvp("rm", command);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

/* ROOT/NAME, of which there are a few at a time. */
static const char *at(const char *name)
{
	static char room[32][PATH_MAX + 64];
	static int next;
	char *path = room[next++ % LEN(room)];

	snprintf(path, sizeof room[0], "%s/%s", root, name);
	return path;
}

/* The file ROOT/NAME, its folders made. */
static const char *put(const char *name, const void *bytes, size_t n)
{
	const char *path = at(name);
	int fd;

	for (char *p = (char *)path + strlen(root) + 1; (p = strchr(p, '/'));
	     *p++ = '/') {
		*p = '\0';
		mkdir(path, 0700);
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	close(fd);
	return path;
}

static const char *put_elf(const char *name, const struct spec *spec)
{
	struct str file = make(spec);
	const char *path = put(name, file.s, file.len);

	str_free(&file);
	return path;
}

/* $ORIGIN is where the file is, whatever name it has. */
START_TEST(origin_behind_a_link)
{
	const struct spec spec = { .runpath = "$ORIGIN/../lib" };
	struct elf e;

	put_elf("real/bin/program", &spec);
	ck_assert_int_eq(symlink("real/bin/program", at("link")), 0);
	elf_read(&e, at("link"));
	same_list(&e.folders, (const char *[]){ at("real/bin/../lib"), NULL });
	elf_free(&e);
}
END_TEST

START_TEST(no_program)
{
	static const char script[] = "#!/bin/sh\nexec true\n";

	ck_assert_int_eq(mkfifo(at("fifo"), 0700), 0);
	ck_assert_int_eq(mpi_need(at("fifo")), MPI_NEED_MAYBE);
	ck_assert_int_eq(mpi_need(at("none")), MPI_NEED_MAYBE);
	ck_assert_int_eq(mpi_need(root), MPI_NEED_MAYBE);
	ck_assert_int_eq(mpi_need(""), MPI_NEED_MAYBE);
	ck_assert_int_eq(mpi_need("/dev/zero"), MPI_NEED_MAYBE);
	/* it says that it is larger than it is, like a file that becomes shorter */
	ck_assert_int_eq(mpi_need("/sys/kernel/mm/transparent_hugepage/enabled"),
			 MPI_NEED_MAYBE);
	ck_assert_int_eq(mpi_need(put("empty", "", 0)), MPI_NEED_MAYBE);
	ck_assert_int_eq(mpi_need(put("script", script, sizeof script - 1)),
			 MPI_NEED_MAYBE);
}
END_TEST

/* Of 1 GiB, most of it a hole: what is not needed is not read. */
START_TEST(large_file)
{
	const struct spec spec = usual(BY_HASH);
	const char *path = put_elf("program", &spec);
	struct elf e;

	ck_assert_int_eq(truncate(path, (off_t)1 << 30), 0);
	elf_read(&e, path);
	ck_assert(e.is_dynamic);
	same_list(&e.imports, all_imports);
	elf_free(&e);
}
END_TEST

/* ---- what programs need ---- */

static const struct {
	const char *needed[4], *imports[4];
	enum mpi_need need;
} needs[] = {
	{ { "libc.so.6" }, { "puts", "fork", "getenv" }, MPI_NEED_NONE },
	{ { "libc.so.6" }, { NULL }, MPI_NEED_NONE },
	{ { NULL }, { NULL }, MPI_NEED_MAYBE }, /* static, at any address */
	{ { "libberth.so.0.2", "libm.so.6", "libc.so.6" }, { "f" }, MPI_NEED_NONE },
	{ { "libpthread.so.0", "libdl.so.2", "librt.so.1" }, { "f" }, MPI_NEED_NONE },
	{ { "libutil.so.1", "libresolv.so.2", "libnsl.so.1" }, { "f" }, MPI_NEED_NONE },
	{ { "libanl.so.1", "libmvec.so.1", "ld-linux-x86-64.so.2" },
	  { "f" },
	  MPI_NEED_NONE },
	{ { "ld-linux-aarch64.so.1", "libgcc_s.so.1", "libstdc++.so.6" },
	  { "f" },
	  MPI_NEED_NONE },
	{ { "libgfortran.so.5", "libgomp.so.1", "libquadmath.so.0" },
	  { "f" },
	  MPI_NEED_NONE },
	{ { "libatomic.so.1", "libasan.so.8", "libubsan.so.1" },
	  { "f" },
	  MPI_NEED_NONE },
	{ { "libtsan.so.2", "liblsan.so.0", "libhwasan.so.0" },
	  { "f" },
	  MPI_NEED_NONE },
	{ { "libcrypt.so.1", "libc.so.6" }, { "f" }, MPI_NEED_MAYBE },
	{ { "libc.so.6", "libc.so" }, { "f" }, MPI_NEED_MAYBE },
	{ { "./libc.so.6" }, { "f" }, MPI_NEED_MAYBE },
	{ { "libmpi.so.12", "libc.so.6" }, { "f" }, MPI_NEED_MAYBE },
	{ { "libmpi.so.400", "libc.so.6" }, { "f" }, MPI_NEED_MAYBE },
	{ { "libmpi.so.40", "libc.so.6" }, { "f" }, MPI_NEED_PMIX },
	{ { "libc.so.6", "libpmix.so.2" }, { "f" }, MPI_NEED_PMIX },
	{ { "libc.so.6", "libfoo.so.1", "libmpi.so.40" }, { "dlopen" }, MPI_NEED_PMIX },
	{ { "libc.so.6" }, { "a", "b", "dlopen" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "dlmopen" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execv" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execve" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execvp" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execvpe" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execl" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execle" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execlp" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "execveat" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "fexecve" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "posix_spawn" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "posix_spawnp" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "pidfd_spawn" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "pidfd_spawnp" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" },
	  { "syst"
	    "em" },
	  MPI_NEED_MAYBE }, /* banned.h */
	{ { "libc.so.6" },
	  { "pop"
	    "en" },
	  MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "wordexp" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "wordexp@GLIBC_2.2.5" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "dlopen@@GLIBC_2.34" }, MPI_NEED_MAYBE },
	{ { "libc.so.6" }, { "dlopener", "my_dlopen", "dlclose" }, MPI_NEED_NONE },
	{ { "libc.so.6" },
	  { "posix_spawnattr_init", "systems", "dlsym" },
	  MPI_NEED_NONE },
};

START_TEST(program_to_its_need)
{
	const struct spec spec = { .needed = needs[_i].needed,
				   .imports = needs[_i].imports };

	ck_assert_int_eq(mpi_need(put_elf("program", &spec)), needs[_i].need);
}
END_TEST

START_TEST(static_program)
{
	const struct spec spec = { .needed = two_needed, .is_static = true };
	const char *path = put_elf("program", &spec);
	struct elf e;

	elf_read(&e, path);
	ck_assert(e.is_elf);
	nothing_in(&e);
	ck_assert_int_eq(mpi_need(path), MPI_NEED_MAYBE);
}
END_TEST

/* This program, of which we know what it takes; a shell executes programs. */
START_TEST(real_programs)
{
	char *real = realpath("/bin/true", NULL);
	bool libc = false, mine = false;
	struct elf e;

	elf_read(&e, "/proc/self/exe");
	ck_assert(e.is_elf && e.is_dynamic);
	for (size_t i = 0; i < e.needed.n; i++)
		libc |= !strcmp(e.needed.v[i], "libc.so.6");
	for (size_t i = 0; i < e.imports.n; i++)
		mine |= !strcmp(e.imports.v[i], "memfd_create");
	ck_assert(libc && mine);
	elf_free(&e);
	ck_assert_int_eq(mpi_need("/bin/sh"), MPI_NEED_MAYBE);
	elf_read(&e, "/bin/true");
	/* in some systems it is a name of a program that does more, or a script */
	if (real && !strcmp(strrchr(real, '/'), "/true") && e.is_dynamic)
		ck_assert_int_eq(mpi_need(real), MPI_NEED_NONE);
	elf_free(&e);
	free(real);
}
END_TEST

/* ---- libpmix ---- */

static const char *const of_openmpi[] = { "libmpi.so.40", "libc.so.6", NULL };
static const char *const of_pmix[] = { "libpmix.so.2", NULL };

static void finds(const char *program, const char *library_path,
		  const char *const *want)
{
	struct strv got = { 0 };

	mpi_find_libpmix(&got, program, NULL, library_path);
	same_list(&got, want);
	strv_free(&got);
}

START_TEST(chosen_alone)
{
	struct strv got = { 0 };

	put("lib/libpmix.so.2", "", 0);
	mpi_find_libpmix(&got, "/bin/true", "chosen.so", at("lib"));
	same_list(&got, (const char *[]){ "chosen.so", NULL });
	strv_free(&got);
	mpi_find_libpmix(&got, "/bin/true", "", at("lib"));
	same_list(&got,
		  (const char *[]){ at("lib/libpmix.so.2"), "libpmix.so.2", NULL });
	strv_free(&got);
}
END_TEST

START_TEST(no_library)
{
	finds(at("none"), NULL, (const char *[]){ "libpmix.so.2", NULL });
	finds(at("none"), "", (const char *[]){ "libpmix.so.2", NULL });
	finds("/bin/true", at("lib"), (const char *[]){ "libpmix.so.2", NULL });
}
END_TEST

/* The program's libmpi first, then each folder once; no relative one, no folder of the
 * library's name. */
START_TEST(order_of_places)
{
	const struct spec program = { .needed = of_openmpi,
				      .rpath = "$ORIGIN/../none:$ORIGIN/../lib" };
	const struct spec lib = { .runpath = "$ORIGIN:$ORIGIN/../pmix:/none" };
	const char *path = put_elf("bin/program", &program);
	char *library_path;

	put_elf("lib/libmpi.so.40", &lib);
	put("lib/libpmix.so.2", "", 0);
	put("lib/openmpi/libpmix.so.2", "", 0);
	put("pmix/libpmix.so.2", "", 0);
	put("a/libpmix.so.2", "", 0);
	put("b/libpmix.so.2", "", 0);
	put("c/libpmix.so.2/x", "", 0);
	put("d/libpmix.so.2", "", 0);
	ck_assert_int_eq(symlink("a", at("link")), 0);
	library_path = xasprintf(":%s:%s;%s:%s::d:%s:%s", at("b"), at("a"), at("c"),
				 at("link"), at("lib"), at("a"));
	ck_assert_int_eq(chdir(root), 0);
	finds(path, library_path,
	      (const char *[]){
		      at("bin/../lib/libpmix.so.2"),
		      at("bin/../lib/openmpi/libpmix.so.2"),
		      at("lib/../pmix/libpmix.so.2"),
		      at("b/libpmix.so.2"),
		      at("a/libpmix.so.2"),
		      "libpmix.so.2",
		      NULL,
	      });
	free(library_path);
}
END_TEST

/* As the Python package openmpi has them: libpmix only in openmpi/. */
START_TEST(beside_the_library_behind_a_link)
{
	const struct spec program = { .needed = of_openmpi, .rpath = at("lib") };
	const char *path = put_elf("program", &program);

	put("real/libmpi.so.40.1", "", 0);
	put("real/openmpi/libpmix.so.2", "", 0);
	mkdir(at("lib"), 0700);
	ck_assert_int_eq(symlink("../real/libmpi.so.40.1", at("lib/libmpi.so.40")), 0);
	finds(path, NULL,
	      (const char *[]){ at("real/openmpi/libpmix.so.2"), "libpmix.so.2",
				NULL });
}
END_TEST

/* As in the loader: LD_LIBRARY_PATH comes before DT_RUNPATH, after DT_RPATH. */
START_TEST(order_of_the_loader)
{
	const struct spec rpath = { .needed = of_openmpi, .rpath = "$ORIGIN/lib" };
	const struct spec runpath = { .needed = of_openmpi, .runpath = "$ORIGIN/lib" };

	put("lib/libmpi.so.40", "", 0);
	put("lib/libpmix.so.2", "", 0);
	put("other/libmpi.so.40", "", 0);
	put("other/openmpi/libpmix.so.2", "", 0);
	finds(put_elf("program", &rpath), at("other"),
	      (const char *[]){ at("lib/libpmix.so.2"), "libpmix.so.2", NULL });
	finds(put_elf("program", &runpath), at("other"),
	      (const char *[]){ at("other/openmpi/libpmix.so.2"), "libpmix.so.2",
				NULL });
}
END_TEST

START_TEST(program_of_pmix)
{
	const struct spec program = { .needed = of_pmix, .runpath = "$ORIGIN/pmix" };
	const struct spec other = { .needed = two_needed, .runpath = "$ORIGIN/pmix" };

	put("pmix/libpmix.so.2", "", 0);
	finds(put_elf("program", &program), NULL,
	      (const char *[]){ at("pmix/libpmix.so.2"), "libpmix.so.2", NULL });
	finds(put_elf("other", &other), NULL, (const char *[]){ "libpmix.so.2", NULL });
}
END_TEST

/* ---- names ---- */

static const struct {
	const char *needed[3];
	const char *name, *file;
} names_of[] = {
	{ { "libmpi.so.40", "libc.so.6" }, "Open MPI", "libmpi.so.40" },
	{ { "libc.so.6", "libmpi.so.12" }, "MPICH or Intel MPI", "libmpi.so.12" },
	{ { "libmpi.so.40", "libc.so.6" }, "Open MPI", NULL },
	{ { "libmpi.so.20", "libc.so.6" }, NULL, "libmpi.so.20" },
	{ { "libc.so.6" }, NULL, "libmpi.so.40" },
};

START_TEST(name_of_an_mpi)
{
	const struct spec spec = { .needed = names_of[_i].needed,
				   .runpath = "$ORIGIN" };
	const char *path = put_elf("program", &spec), *name;
	struct str file = { 0 };

	if (names_of[_i].file)
		put(names_of[_i].file, "", 0);
	name = mpi_name(path, &file);
	ck_assert_pstr_eq(name, names_of[_i].name);
	ck_assert_str_eq(str_text(&file),
			 name && names_of[_i].file ? at(names_of[_i].file) : "");
	str_free(&file);
	ck_assert_ptr_null(mpi_name(at("none"), &file));
	ck_assert_uint_eq(file.len, 0);
}
END_TEST

static TCase *pure_case(void)
{
	TCase *c = tcase_create("elf");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, parts_of_a_file, 0, 16);
	tcase_add_loop_test(c, folders_of_a_file, 0, LEN(paths));
	tcase_add_test(c, files_of_others);
	tcase_add_test(c, parts_past_their_ends);
	tcase_add_loop_test(c, truncated_at_each_byte, 0, 16);
	tcase_add_loop_test(c, each_byte_changed, 0, 16);
	tcase_add_test(c, more_than_may_be_kept);
	return c;
}

int main(void)
{
	Suite *s = suite_create("mpi_find");
	TCase *c = tcase_create("files");
	SRunner *r;
	int failed;

	suite_add_tcase(s, pure_case());
	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, origin_behind_a_link);
	tcase_add_test(c, no_program);
	tcase_add_test(c, large_file);
	tcase_add_loop_test(c, program_to_its_need, 0, LEN(needs));
	tcase_add_test(c, static_program);
	tcase_add_test(c, real_programs);
	tcase_add_test(c, chosen_alone);
	tcase_add_test(c, no_library);
	tcase_add_test(c, order_of_places);
	tcase_add_test(c, beside_the_library_behind_a_link);
	tcase_add_test(c, order_of_the_loader);
	tcase_add_test(c, program_of_pmix);
	tcase_add_loop_test(c, name_of_an_mpi, 0, LEN(names_of));
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
