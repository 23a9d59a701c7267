/* libFuzzer on the file of a user's program (agent/pmi/elf.c): from memory and from a
 * file, which must say the same. */
#include "fuzz.h"

#include "agent/pmi/elf.h"

static void check(bool good)
{
	if (!good)
		abort();
}

/* The bytes of LIST. */
static size_t bytes_of(const struct strv *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++)
		n += strlen(list->v[i]) + 1;
	return n;
}

static void check_same(const struct strv *a, const struct strv *b)
{
	check(a->n == b->n);
	for (size_t i = 0; i < a->n; i++)
		check(!strcmp(a->v[i], b->v[i]));
}

static void check_sound(const struct elf *e)
{
	const size_t n = e->needed.n + e->folders.n + e->imports.n;

	check(e->is_elf || !e->is_dynamic);
	check(e->is_dynamic || !n);
	check(bytes_of(&e->needed) + bytes_of(&e->folders) + bytes_of(&e->imports) <=
	      ELF_MOST_BYTES);
	for (size_t i = 0; i < e->folders.n; i++)
		check(*e->folders.v[i] && !strchr(e->folders.v[i], ':'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf bytes, file;

	elf_parse(&bytes, data, size, "/some/folder");
	check_sound(&bytes);
	elf_read(&file, fuzz_file(data, size));
	check_sound(&file);
	check(bytes.is_elf == file.is_elf && bytes.is_dynamic == file.is_dynamic);
	check(bytes.folders_first == file.folders_first);
	check_same(&bytes.needed, &file.needed);
	check_same(&bytes.imports, &file.imports);
	check(bytes.folders.n == file.folders.n); /* whose $ORIGIN differs */
	elf_free(&bytes);
	elf_free(&file);
	return 0;
}
