/* spank.h - what contrib/slurm/berth_spank.c uses of Slurm's header of that name, for
 * its test, which runs where there is no Slurm.  Names and types are those of Slurm's
 * manual, spank(8); the numbers are any. */
#ifndef BERTH_STANDIN_SPANK_H
#define BERTH_STANDIN_SPANK_H

typedef struct spank_handle *spank_t;
typedef enum spank_err {
	ESPANK_SUCCESS,
	ESPANK_ERROR,
	ESPANK_ENV_NOEXIST,
	ESPANK_NOSPACE
} spank_err_t;
typedef enum spank_context {
	S_CTX_ERROR,
	S_CTX_LOCAL,
	S_CTX_REMOTE,
	S_CTX_ALLOCATOR,
	S_CTX_SLURMD,
	S_CTX_JOB_SCRIPT
} spank_context_t;

enum spank_item {
	S_JOB_UID,
	S_JOB_GID,
	S_JOB_ID,
	S_JOB_STEPID,
	S_JOB_NNODES,
	S_JOB_NODEID,
	S_JOB_LOCAL_TASK_COUNT,
	S_JOB_TOTAL_TASK_COUNT,
	S_JOB_LOCAL_TO_GLOBAL_ID,
	S_JOB_SUPPLEMENTARY_GIDS,
	S_STEP_ALLOC_CORES,
	S_TASK_ID
};

struct spank_option {
	char *name, *arginfo, *usage;
	int has_arg, val;
	int (*cb)(int val, const char *value, int remote);
};

#define SPANK_PLUGIN(name, version)                                                    \
	extern const char plugin_name[], plugin_type[];                                \
	extern const unsigned plugin_version;                                          \
	const char plugin_name[] = #name, plugin_type[] = "spank";                     \
	const unsigned plugin_version = version;

spank_context_t spank_context(void);
spank_err_t spank_option_register(spank_t sp, struct spank_option *option);
spank_err_t spank_get_item(spank_t sp, enum spank_item item, ...);
spank_err_t spank_getenv(spank_t sp, const char *name, char *value, int bytes);
spank_err_t spank_setenv(spank_t sp, const char *name, const char *value,
			 int overwrite);
spank_err_t spank_unsetenv(spank_t sp, const char *name);
void slurm_spank_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What a plugin may have, and ours has. */
int slurm_spank_init(spank_t sp, int ac, char **av);
int slurm_spank_user_init(spank_t sp, int ac, char **av);
int slurm_spank_task_init(spank_t sp, int ac, char **av);

#endif
