/* pmix_calls.h - the functions of libpmix.so.2 that a client and a server call, and the
 * functions that it calls.  The layouts are those of pmix_abi.h.
 *
 * It is a file of its own because its test reads it with PMIx's own types in place of
 * ours: tests/unit/test_boot_pmix_abi.c. */
#ifndef BERTH_LIB_PMIX_CALLS_H
#define BERTH_LIB_PMIX_CALLS_H

#include "lib/boot/pmix_abi.h"

typedef void px_op_done(int status, void *ctx);
typedef void px_value_done(int status, struct px_value *v, void *ctx);

/* FUNCTION(result, name, (arguments)) */
#define PX_FUNCTIONS(FUNCTION)                                                         \
	FUNCTION(int, Init, (struct px_proc * me, struct px_info *, size_t))           \
	FUNCTION(int, Finalize, (const struct px_info *, size_t))                      \
	FUNCTION(int, Put, (uint8_t scope, const char *key, struct px_value *))        \
	FUNCTION(int, Commit, (void))                                                  \
	FUNCTION(int, Fence_nb,                                                        \
		 (const struct px_proc *, size_t, const struct px_info *, size_t,      \
		  px_op_done *, void *ctx))                                            \
	FUNCTION(int, Get_nb,                                                          \
		 (const struct px_proc *, const char *key, const struct px_info *,     \
		  size_t, px_value_done *, void *ctx))                                 \
	FUNCTION(const char *, Error_string, (int status))

/* ---- a server ---- */

typedef void px_release(void *ctx);
typedef void px_lookup_done(int status, struct px_pdata *, size_t n, void *ctx);
typedef void px_modex_done(int status, const char *data, size_t n, void *ctx,
			   px_release *, void *release_ctx);
typedef void px_info_done(int status, struct px_info *, size_t n, void *ctx,
			  px_release *, void *release_ctx);
typedef void px_served(int status, char *data, size_t n, void *ctx);

/* Functions that libpmix calls, on a thread of its own.  Each returns PX_SUCCESS if
 * DONE will be called, PX_DONE if it need not be called, or an error.  NULL: not
 * supported. */
struct px_server_module {
	int (*client_connected)(const struct px_proc *, void *, px_op_done *, void *);
	int (*client_finalized)(const struct px_proc *, void *, px_op_done *, void *);
	int (*abort)(const struct px_proc *, void *, int status, const char *text,
		     struct px_proc *, size_t, px_op_done *, void *);
	int (*fence)(const struct px_proc *, size_t, const struct px_info *, size_t,
		     char *data, size_t ndata, px_modex_done *, void *);
	int (*direct_modex)(const struct px_proc *, const struct px_info *, size_t,
			    px_modex_done *, void *);
	int (*publish)(const struct px_proc *, const struct px_info *, size_t,
		       px_op_done *, void *);
	int (*lookup)(const struct px_proc *, char **keys, const struct px_info *,
		      size_t, px_lookup_done *, void *);
	int (*unpublish)(const struct px_proc *, char **keys, const struct px_info *,
			 size_t, px_op_done *, void *);
	void (*spawn)(void);
	int (*connect)(const struct px_proc *, size_t, const struct px_info *, size_t,
		       px_op_done *, void *);
	int (*disconnect)(const struct px_proc *, size_t, const struct px_info *,
			  size_t, px_op_done *, void *);
	int (*register_events)(int *codes, size_t, const struct px_info *, size_t,
			       px_op_done *, void *);
	int (*deregister_events)(int *codes, size_t, px_op_done *, void *);
	void (*listener)(void);
	int (*notify_event)(int code, const struct px_proc *, uint8_t range,
			    struct px_info *, size_t, px_op_done *, void *);
	int (*query)(struct px_proc *, struct px_query *, size_t, px_info_done *,
		     void *);
	void (*tool_connected)(void);
	void (*log)(const struct px_proc *, const struct px_info *, size_t,
		    const struct px_info *, size_t, px_op_done *, void *);
	void (*allocate)(void), (*job_control)(void), (*monitor)(void);
	void (*get_credential)(void), (*validate_credential)(void), (*iof_pull)(void);
	void (*push_stdin)(void);
	int (*group)(unsigned what, char *name, const struct px_proc *, size_t,
		     const struct px_info *, size_t, px_info_done *, void *);
	void (*fabric)(void);
	int (*client_connected2)(const struct px_proc *, void *, struct px_info *,
				 size_t, px_op_done *, void *);
};

/* FUNCTION(result, name, (arguments)) */
#define PX_SERVER_FUNCTIONS(FUNCTION)                                                  \
	FUNCTION(int, server_init,                                                     \
		 (struct px_server_module *, struct px_info *, size_t))                \
	FUNCTION(int, server_register_nspace,                                          \
		 (const char *nspace, int nlocal, struct px_info *, size_t,            \
		  px_op_done *, void *ctx))                                            \
	FUNCTION(int, server_register_client,                                          \
		 (const struct px_proc *, uint32_t uid, uint32_t gid, void *object,    \
		  px_op_done *, void *ctx))                                            \
	FUNCTION(void, server_deregister_client,                                       \
		 (const struct px_proc *, px_op_done *, void *ctx))                    \
	FUNCTION(int, server_setup_fork, (const struct px_proc *, char ***env))        \
	FUNCTION(int, server_dmodex_request,                                           \
		 (const struct px_proc *, px_served *, void *ctx))                     \
	FUNCTION(int, server_generate_locality_string,                                 \
		 (const struct px_cpuset *, char **locality))                          \
	FUNCTION(int, Data_pack,                                                       \
		 (const struct px_proc *, struct px_buffer *, void *, int32_t n,       \
		  uint16_t type))                                                      \
	FUNCTION(int, Data_unpack,                                                     \
		 (const struct px_proc *, struct px_buffer *, void *, int32_t *n,      \
		  uint16_t type))                                                      \
	FUNCTION(int, Notify_event,                                                    \
		 (int code, const struct px_proc *, uint8_t range,                     \
		  const struct px_info *, size_t, px_op_done *, void *ctx))            \
	FUNCTION(const char *, Error_string, (int status))                             \
	FUNCTION(const char *, Get_version, (void))

#endif
