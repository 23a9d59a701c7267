#include "agent/nccl_check.h"

#include <sys/resource.h>
#include <unistd.h>

#include "lib/backend/nccl_places.h"

/* ---- the process ---- */

void nccl_check_main(const char *file)
{
	const char *named = getenv("BERTH_NCCL"), *why = NULL;
	int (*ask)(int *) = NULL;
	int version = 0;
	void *lib, *symbol;

	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	if (!*file)
		file = named && *named ? named : NULL;
	lib = nccl_open_found(file);
	if (!lib && file)
		why = dlerror();
	symbol = lib ? dlsym(lib, "ncclGetVersion") : NULL;
	if (lib && !symbol)
		why = dlerror();
	memcpy(&ask, &symbol, sizeof ask);
	if (ask && ask(&version))
		why = "ncclGetVersion() failed";
	if (why)
		printf("%c-%s%c", 0, why, 0);
	else
		printf("%c%d%c", 0, version, 0);
	fflush(stdout);
	_exit(0); /* nothing of the library runs at an exit */
}

/* ---- its answer ---- */

#define BY_HOST "arrays in GPU memory go through the host's memory"

enum check_verdict nccl_check_read(struct str *out, const char **hint,
				   enum trial_end end, const char *text)
{
	const int version = (int)strtol(text, NULL, 10);
	char number[24];

	*hint = "libberth meets the same in each rank: name another library with "
		"BERTH_NCCL";
	if (end == TRIAL_LATE) {
		str_add(out, "the library did not answer in time (--start-timeout)");
		return CHECK_WARNED;
	}
	if (end == TRIAL_SILENT) {
		str_addf(out, "the library ended the process that loaded it%s%s",
			 *text ? ": " : "", text);
		return CHECK_WARNED;
	}
	if (*text == '-') {
		str_add(out, text + 1);
		return CHECK_WARNED;
	}
	*hint = "install NCCL 2.18 or later there (try: pip install "
		"nvidia-nccl-cu13), or name its file with BERTH_NCCL";
	if (!version) {
		str_add(out, "none: " BY_HOST);
		return CHECK_NOTED;
	}
	nccl_version_text(number, version);
	str_addf(out, "%s%s", number,
		 version < NCCL_OLDEST ? ", older than 2.18: " BY_HOST : "");
	return version < NCCL_OLDEST ? CHECK_NOTED : CHECK_OK;
}
