#include "lib/ops/tf_done.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

/* std::_Manager_operation */
enum { CLONE_FUNCTOR = 2, DESTROY_FUNCTOR = 3 };

enum { UNSEEN, FITS, DIFFERS };

static atomic_int first_callback = UNSEEN;

bool tf_done_fits(void)
{
	/* ThreadPool::Schedule(std::function<void()>): in libc++ its type is
	 * std::__1::function. */
	static const char *const takers[] = {
		"_ZN3tsl6thread10ThreadPool8ScheduleESt8functionIFvvEE",
		"_ZN10tensorflow6thread10ThreadPool8ScheduleESt8functionIFvvEE",
	};
	void *framework =
		dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
	bool fits = false;

	if (!framework)
		return false;
	for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
		fits = fits || dlsym(framework, takers[i]);
	dlclose(framework);
	return fits;
}

struct search {
	uintptr_t address;
	bool is_code;
};

static int done_search(struct dl_phdr_info *object, size_t size, void *p)
{
	struct search *search = p;

	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t from = object->dlpi_addr + part->p_vaddr;

		if (part->p_type == PT_LOAD && part->p_flags & PF_X &&
		    search->address >= from && search->address < from + part->p_memsz)
			search->is_code = true;
	}
	return search->is_code;
}

/* Whether P is a function of some object.  A word of another layout is none: it is on
 * the heap, on a stack, or a table of functions. */
static bool done_is_code(const void *p)
{
	struct search search = { (uintptr_t)p, false };

	dl_iterate_phdr(done_search, &search);
	return search.is_code;
}

bool tf_done_keep(struct tf_done *kept, const TF_AsyncOpKernelDoneCallback *done)
{
	struct tf_done given;
	int seen = atomic_load_explicit(&first_callback, memory_order_relaxed);

	memcpy(&given, done, sizeof given);
	if (seen == UNSEEN) {
		const void *words[2];

		memcpy(words, &given.manage, sizeof words);
		seen = done_is_code(words[0]) && done_is_code(words[1]) ? FITS
									: DIFFERS;
		atomic_store_explicit(&first_callback, seen, memory_order_relaxed);
	}
	if (seen == DIFFERS)
		return false;
	*kept = given;
	given.manage(kept->functor, done, CLONE_FUNCTOR);
	return true;
}

void tf_done_run(struct tf_done *kept)
{
	TF_RunAsyncOpKernelDoneCallback((TF_AsyncOpKernelDoneCallback *)kept);
	kept->manage(kept->functor, kept->functor, DESTROY_FUNCTOR);
}
