#include "lib/ops/tf_xla.h"

#include <dlfcn.h>
#include <optional>
#include <string>
#include <string_view>

#ifndef __GLIBCXX__
#error "TensorFlow is built with libstdc++"
#endif

using status_text = std::optional<std::string>; /* XlaCustomCallStatus_ */

/* Whether a status of XLA's is what it is here: its own function looks at two. */
static bool xla_status_fits(void *library)
{
	using get = std::optional<std::string_view>(const void *);
	auto *text = reinterpret_cast<get *>(
		dlsym(library,
		      "_ZN3xla26CustomCallStatusGetMessageEPK20XlaCustomCallStatus_"));
	status_text good, bad("bad");

	return text && !text(&good).has_value() && text(&bad).has_value();
}

const char *tf_xla_register(void *library, const char *name, tf_xla_call *call)
{
	using global = void *();
	using add = void(void *, const std::string &, void *, const std::string &);
	auto *registry = reinterpret_cast<global *>(
		dlsym(library, "_ZN3xla24CustomCallTargetRegistry6GlobalEv"));
	auto *registers = reinterpret_cast<add *>(
		dlsym(library, "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__"
			       "cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPvS8_"));

	if (!registry || !registers || !xla_status_fits(library))
		return "this TensorFlow does not have the registry of XLA's calls";
	registers(registry(), name, reinterpret_cast<void *>(call), "Host");
	return nullptr;
}

void tf_xla_fail(void *status, const char *text)
{
	static_cast<status_text *>(status)->emplace(text);
}
