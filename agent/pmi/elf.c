#include "agent/pmi/elf.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { OUR_ORDER = ELFDATA2LSB };
#else
enum { OUR_ORDER = ELFDATA2MSB };
#endif

/* Memory for a string of a list besides its bytes; words of a chain read at a time. */
enum { STRING_COST = 64, CHAIN_WORDS = 1024 };

/* A piece of the file, kept until all is parsed. */
struct block {
	struct block *next;
	uint8_t bytes[];
};

struct image {
	const uint8_t *bytes; /* the file; NULL: it is read from FD */
	int fd;
	uint64_t size;
	uint64_t left; /* bytes that may still be read and kept */
	struct block *blocks;
	const char *folder;

	bool is_wide; /* 64 bits */
	Elf64_Ehdr head;
	const uint8_t *segments, *dynamic, *strings;
	uint64_t dynamic_n, strings_n;
	uint64_t symbols, hash, gnu_hash; /* addresses, 0: none */
};

#define SIZE_OF(f, type)                                                               \
	((uint64_t)((f)->is_wide ? sizeof(Elf64_##type) : sizeof(Elf32_##type)))

static bool elf_spend(struct image *f, uint64_t n)
{
	if (n > f->left)
		return false;
	f->left -= n;
	return true;
}

static const uint8_t *read_block(struct image *f, uint64_t at, uint64_t n)
{
	struct block *b = xmalloc(sizeof *b + (size_t)n);
	size_t have = 0;
	ssize_t got;

	b->next = f->blocks;
	f->blocks = b;
	while (have < n) {
		got = pread(f->fd, b->bytes + have, (size_t)n - have,
			    (off_t)(at + have));
		if (got <= 0)
			return NULL;
		have += (size_t)got;
	}
	return b->bytes;
}

/* N bytes of the file from AT on.  NULL: it has fewer, or they are too many. */
static const uint8_t *elf_part(struct image *f, uint64_t at, uint64_t n)
{
	if (at > f->size || n > f->size - at || !elf_spend(f, n))
		return NULL;
	return f->bytes ? f->bytes + at : read_block(f, at, n);
}

static uint32_t elf_word(const uint8_t *p)
{
	uint32_t w;

	memcpy(&w, p, sizeof w);
	return w;
}

/* ---- structs of both sizes, as those of 64 bits ---- */

static bool read_head(struct image *f)
{
	const uint8_t *p = elf_part(f, 0, sizeof(Elf32_Ehdr));
	Elf32_Ehdr h;

	if (!p || memcmp(p, ELFMAG, SELFMAG) || p[EI_DATA] != OUR_ORDER)
		return false;
	f->is_wide = p[EI_CLASS] == ELFCLASS64;
	if (f->is_wide) {
		p = elf_part(f, 0, sizeof f->head);
		if (p)
			memcpy(&f->head, p, sizeof f->head);
		return p && f->head.e_phentsize == sizeof(Elf64_Phdr);
	}
	memcpy(&h, p, sizeof h);
	f->head = (Elf64_Ehdr){ .e_phoff = h.e_phoff,
				.e_phnum = h.e_phnum,
				.e_shoff = h.e_shoff,
				.e_shnum = h.e_shnum,
				.e_shentsize = h.e_shentsize };
	return p[EI_CLASS] == ELFCLASS32 && h.e_phentsize == sizeof(Elf32_Phdr);
}

static Elf64_Phdr elf_segment(const struct image *f, size_t i)
{
	const uint8_t *p = f->segments + i * SIZE_OF(f, Phdr);
	Elf64_Phdr wide;
	Elf32_Phdr h;

	if (f->is_wide) {
		memcpy(&wide, p, sizeof wide);
		return wide;
	}
	memcpy(&h, p, sizeof h);
	return (Elf64_Phdr){ .p_type = h.p_type,
			     .p_offset = h.p_offset,
			     .p_vaddr = h.p_vaddr,
			     .p_filesz = h.p_filesz };
}

static Elf64_Dyn elf_dynamic(const struct image *f, size_t i)
{
	const uint8_t *p = f->dynamic + i * SIZE_OF(f, Dyn);
	Elf64_Dyn wide;
	Elf32_Dyn d;

	if (f->is_wide) {
		memcpy(&wide, p, sizeof wide);
		return wide;
	}
	memcpy(&d, p, sizeof d);
	return (Elf64_Dyn){ .d_tag = d.d_tag, .d_un.d_val = d.d_un.d_val };
}

static Elf64_Sym elf_symbol(const struct image *f, const uint8_t *symbols, size_t i)
{
	const uint8_t *p = symbols + i * SIZE_OF(f, Sym);
	Elf64_Sym wide;
	Elf32_Sym s;

	if (f->is_wide) {
		memcpy(&wide, p, sizeof wide);
		return wide;
	}
	memcpy(&s, p, sizeof s);
	return (Elf64_Sym){ .st_name = s.st_name, .st_shndx = s.st_shndx };
}

static Elf64_Shdr elf_section(const struct image *f, const uint8_t *sections, size_t i)
{
	const uint8_t *p = sections + i * SIZE_OF(f, Shdr);
	Elf64_Shdr wide;
	Elf32_Shdr s;

	if (f->is_wide) {
		memcpy(&wide, p, sizeof wide);
		return wide;
	}
	memcpy(&s, p, sizeof s);
	return (Elf64_Shdr){ .sh_type = s.sh_type,
			     .sh_addr = s.sh_addr,
			     .sh_size = s.sh_size };
}

/* ---- addresses ---- */

/* Where in the file the byte is that will be at ADDRESS, and the ROOM from there to the
 * end of its segment. */
static bool elf_locate(const struct image *f, uint64_t address, uint64_t *at,
		       uint64_t *room)
{
	for (size_t i = 0; i < f->head.e_phnum; i++) {
		const Elf64_Phdr s = elf_segment(f, i);

		if (s.p_type != PT_LOAD || address < s.p_vaddr ||
		    address - s.p_vaddr >= s.p_filesz)
			continue;
		if (s.p_offset > f->size || s.p_filesz > f->size - s.p_offset)
			return false;
		*at = s.p_offset + (address - s.p_vaddr);
		*room = s.p_filesz - (address - s.p_vaddr);
		return true;
	}
	return false;
}

static const uint8_t *part_at_address(struct image *f, uint64_t address, uint64_t n)
{
	uint64_t at, room;

	if (!elf_locate(f, address, &at, &room) || n > room)
		return NULL;
	return elf_part(f, at, n);
}

/* ---- strings ---- */

/* The string AT in the string table, to be kept.  NULL: there is none that ends. */
static const char *elf_string(struct image *f, uint64_t at)
{
	const char *text, *end;
	uint64_t most;

	if (at >= f->strings_n)
		return NULL;
	text = (const char *)f->strings + at;
	most = f->strings_n - at < f->left ? f->strings_n - at : f->left;
	end = memchr(text, '\0', (size_t)most);
	if (!end || !elf_spend(f, (uint64_t)(end - text) + STRING_COST))
		return NULL;
	return text;
}

static bool add_string(struct image *f, struct strv *out, uint64_t at)
{
	const char *text = elf_string(f, at);

	if (text)
		strv_add(out, text);
	return text;
}

/* How many of the N bytes at P are "$ORIGIN" or "${ORIGIN}". */
static size_t origin_bytes(const char *p, size_t n)
{
	static const char plain[] = "$ORIGIN", braced[] = "${ORIGIN}";
	const size_t a = sizeof plain - 1, b = sizeof braced - 1;

	if (n >= b && !memcmp(p, braced, b))
		return b;
	if (n < a || memcmp(p, plain, a) != 0)
		return 0;
	return n > a && (isalnum((unsigned char)p[a]) || p[a] == '_') ? 0 : a;
}

/* The N bytes of TEXT are one folder. */
static bool elf_add_folder(struct image *f, struct strv *out, const char *text,
			   size_t n)
{
	struct str s = { 0 };

	if (!elf_spend(f, STRING_COST))
		return false;
	for (size_t i = 0, origin; i < n; i += origin ? origin : 1) {
		origin = origin_bytes(text + i, n - i);
		if (origin && !elf_spend(f, strlen(f->folder))) {
			str_free(&s);
			return false;
		}
		if (origin)
			str_add(&s, f->folder);
		else
			str_addn(&s, text + i, 1);
	}
	strv_take(out, str_take(&s));
	return true;
}

/* An empty folder is the one in which a rank runs, which we do not know. */
static bool add_folders(struct image *f, struct strv *out, uint64_t at)
{
	const char *text = elf_string(f, at);

	if (!text)
		return false;
	while (*text) {
		const size_t n = strcspn(text, ":");

		if (n && !elf_add_folder(f, out, text, n))
			return false;
		text += n + (text[n] == ':');
	}
	return true;
}

/* ---- the dynamic segment ---- */

/* The addresses that the entries name; of several alike the last, as in the loader. */
static bool read_dynamic(struct image *f, const Elf64_Phdr *where)
{
	uint64_t strings = 0;

	f->dynamic = elf_part(f, where->p_offset, where->p_filesz);
	if (!f->dynamic)
		return false;
	for (; f->dynamic_n < where->p_filesz / SIZE_OF(f, Dyn); f->dynamic_n++) {
		const Elf64_Dyn d = elf_dynamic(f, f->dynamic_n);

		if (d.d_tag == DT_NULL)
			break;
		else if (d.d_tag == DT_STRTAB)
			strings = d.d_un.d_ptr;
		else if (d.d_tag == DT_STRSZ)
			f->strings_n = d.d_un.d_val;
		else if (d.d_tag == DT_SYMTAB)
			f->symbols = d.d_un.d_ptr;
		else if (d.d_tag == DT_HASH)
			f->hash = d.d_un.d_ptr;
		else if (d.d_tag == DT_GNU_HASH)
			f->gnu_hash = d.d_un.d_ptr;
	}
	f->strings = part_at_address(f, strings, f->strings_n);
	return f->strings;
}

static bool read_needed(struct image *f, struct elf *out)
{
	uint64_t rpath = 0, runpath = 0; /* 0: none, or an empty one */

	for (size_t i = 0; i < f->dynamic_n; i++) {
		const Elf64_Dyn d = elf_dynamic(f, i);

		if (d.d_tag == DT_NEEDED && !add_string(f, &out->needed, d.d_un.d_val))
			return false;
		if (d.d_tag == DT_RPATH)
			rpath = d.d_un.d_val;
		if (d.d_tag == DT_RUNPATH)
			runpath = d.d_un.d_val;
	}
	out->folders_first = rpath && !runpath;
	if (!runpath)
		runpath = rpath;
	return !runpath || add_folders(f, &out->folders, runpath);
}

/* ---- symbols ---- */

/* The number behind the last symbol of the chain that begins with symbol I.  AT: the
 * word of I, with ROOM bytes from there on; the last word of a chain is odd. */
static uint64_t chain_end(struct image *f, uint64_t i, uint64_t at, uint64_t room)
{
	while (room >= 4) {
		const uint64_t n = room / 4 < CHAIN_WORDS ? room / 4 : CHAIN_WORDS;
		const uint8_t *p = elf_part(f, at, 4 * n);

		if (!p)
			return 0;
		for (uint64_t k = 0; k < n; k++, i++)
			if (elf_word(p + 4 * k) & 1)
				return i + 1;
		at += 4 * n;
		room -= 4 * n;
	}
	return 0;
}

/* The table has the symbols from FIRST on, in the order of their buckets.  It says
 * nothing of their number if it has none of them, as that of most programs. */
static uint64_t count_by_gnu_hash(struct image *f)
{
	uint64_t at, room, skip, buckets, first, last = 0;
	const uint8_t *p;

	if (!f->gnu_hash || !elf_locate(f, f->gnu_hash, &at, &room) || room < 16)
		return 0;
	p = elf_part(f, at, 16);
	if (!p)
		return 0;
	buckets = elf_word(p);
	first = elf_word(p + 4);
	skip = 16 + (uint64_t)elf_word(p + 8) * (f->is_wide ? 8 : 4);
	if (skip > room || 4 * buckets > room - skip)
		return 0;
	p = elf_part(f, at + skip, 4 * buckets);
	for (uint64_t i = 0; p && i < buckets; i++)
		last = elf_word(p + 4 * i) > last ? elf_word(p + 4 * i) : last;
	skip += 4 * buckets;
	if (!last || last < first || 4 * (last - first) > room - skip)
		return 0;
	skip += 4 * (last - first);
	return chain_end(f, last, at + skip, room - skip);
}

static uint64_t count_by_sections(struct image *f)
{
	const uint8_t *p = NULL;

	if (f->head.e_shentsize == SIZE_OF(f, Shdr))
		p = elf_part(f, f->head.e_shoff, f->head.e_shnum * SIZE_OF(f, Shdr));
	for (size_t i = 0; p && i < f->head.e_shnum; i++) {
		const Elf64_Shdr s = elf_section(f, p, i);

		if (s.sh_type == SHT_DYNSYM && s.sh_addr == f->symbols)
			return s.sh_size / SIZE_OF(f, Sym);
	}
	return 0;
}

/* Symbol 0 is there always, so no table has 0 of them. */
static bool read_imports(struct image *f, struct strv *out)
{
	/* its words have 32 bits, but for s390x and Alpha */
	const uint8_t *p = f->hash ? part_at_address(f, f->hash, 8) : NULL;
	uint64_t n = p ? elf_word(p + 4) : 0;

	if (!n)
		n = count_by_gnu_hash(f);
	if (!n)
		n = count_by_sections(f);
	p = n && n <= f->size ? part_at_address(f, f->symbols, n * SIZE_OF(f, Sym))
			      : NULL;
	for (size_t i = 1; p && i < n; i++) {
		const Elf64_Sym s = elf_symbol(f, p, i);

		if (s.st_shndx != SHN_UNDEF || !s.st_name)
			continue;
		if (!add_string(f, out, s.st_name))
			return false;
	}
	return p;
}

/* ---- the file ---- */

static void elf_parse_image(struct image *f, struct elf *out)
{
	Elf64_Phdr where = { .p_type = PT_NULL };

	*out = (struct elf){ 0 };
	f->left = ELF_MOST_BYTES;
	if (!read_head(f))
		return;
	f->segments = elf_part(f, f->head.e_phoff, f->head.e_phnum * SIZE_OF(f, Phdr));
	if (!f->segments)
		return;
	out->is_elf = true;
	for (size_t i = 0; i < f->head.e_phnum && where.p_type != PT_DYNAMIC; i++)
		where = elf_segment(f, i);
	if (where.p_type != PT_DYNAMIC)
		return;
	out->is_dynamic = true;
	if (!read_dynamic(f, &where) || !read_needed(f, out) ||
	    !read_imports(f, &out->imports))
		elf_free(out);
}

void elf_parse(struct elf *out, const void *bytes, size_t n, const char *folder)
{
	elf_parse_image(&(struct image){ .bytes = bytes, .size = n, .folder = folder },
			out);
}

void elf_read(struct elf *out, const char *path)
{
	/* To open a FIFO without a writer would block. */
	struct image f = { .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
	struct stat st;

	*out = (struct elf){ 0 };
	if (f.fd < 0)
		return;
	if (!fstat(f.fd, &st) && S_ISREG(st.st_mode)) {
		/* without symbolic links: so the loader replaces $ORIGIN */
		char *real = realpath(path, NULL),
		     *slash = real ? strrchr(real, '/') : NULL;

		if (slash)
			slash[slash == real] = '\0';
		f.folder = real ? real : ".";
		f.size = (uint64_t)st.st_size;
		elf_parse_image(&f, out);
		free(real);
	}
	while (f.blocks) {
		struct block *next = f.blocks->next;

		free(f.blocks);
		f.blocks = next;
	}
	close(f.fd);
}

void elf_free(struct elf *e)
{
	strv_free(&e->needed);
	strv_free(&e->folders);
	strv_free(&e->imports);
	*e = (struct elf){ 0 };
}
