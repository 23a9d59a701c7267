/* lib/boot/pmix_abi.h and pmix_calls.h against PMIx's own headers, where they are
 * installed: what differs does not compile, or fails here. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/boot/pmix_abi.h"

#if __has_include(<pmix.h>)
#include <pmix.h>
#include <pmix_server.h>

#define SAME(a, b) _Static_assert((a) == (b), #a " is " #b)
#define SAME_MEMBER(ours, our, theirs, their)                                          \
	SAME(offsetof(struct ours, our), offsetof(theirs, their));                     \
	SAME(sizeof(((struct ours *)0)->our), sizeof(((theirs *)0)->their))

SAME(sizeof(struct px_proc), sizeof(pmix_proc_t));
SAME_MEMBER(px_proc, nspace, pmix_proc_t, nspace);
SAME_MEMBER(px_proc, rank, pmix_proc_t, rank);
SAME(sizeof(struct px_value), sizeof(pmix_value_t));
SAME_MEMBER(px_value, type, pmix_value_t, type);
SAME_MEMBER(px_value, data, pmix_value_t, data);
SAME_MEMBER(px_value, data.flag, pmix_value_t, data.flag);
SAME_MEMBER(px_value, data.uint32, pmix_value_t, data.uint32);
SAME_MEMBER(px_value, data.bytes, pmix_value_t, data.bo);
SAME_MEMBER(px_value, data.bytes.bytes, pmix_value_t, data.bo.bytes);
SAME_MEMBER(px_value, data.bytes.size, pmix_value_t, data.bo.size);
SAME(sizeof(struct px_info), sizeof(pmix_info_t));
SAME_MEMBER(px_info, key, pmix_info_t, key);
SAME_MEMBER(px_info, flags, pmix_info_t, flags);
SAME_MEMBER(px_info, value, pmix_info_t, value);
SAME(PX_SUCCESS, PMIX_SUCCESS);
SAME(PX_DONE, PMIX_OPERATION_SUCCEEDED);
SAME(PX_BOOL, PMIX_BOOL);
SAME(PX_UINT32, PMIX_UINT32);
SAME(PX_BYTES, PMIX_BYTE_OBJECT);
SAME(PX_GLOBAL, PMIX_GLOBAL);
SAME(PX_RANK_ALL, PMIX_RANK_WILDCARD);
SAME(sizeof(pmix_scope_t), 1);
SAME(sizeof(pmix_status_t), sizeof(int));

/* ---- a server ---- */

SAME(PX_ERROR, PMIX_ERROR);
SAME(PX_BAD_PARAM, PMIX_ERR_BAD_PARAM);
SAME(PX_OUT_OF_RESOURCE, PMIX_ERR_OUT_OF_RESOURCE);
SAME(PX_NOT_FOUND, PMIX_ERR_NOT_FOUND);
SAME(PX_NOT_SUPPORTED, PMIX_ERR_NOT_SUPPORTED);
SAME(PX_PARTIAL_SUCCESS, PMIX_ERR_PARTIAL_SUCCESS);
SAME(PX_DUPLICATE_KEY, PMIX_ERR_DUPLICATE_KEY);
SAME(PX_LOST_CONNECTION, PMIX_ERR_LOST_CONNECTION);
SAME(PX_PROC_TERM_WO_SYNC, PMIX_ERR_PROC_TERM_WO_SYNC);
SAME(PX_STRING, PMIX_STRING);
SAME(PX_SIZE, PMIX_SIZE);
SAME(PX_UINT16, PMIX_UINT16);
SAME(PX_STATUS, PMIX_STATUS);
SAME(PX_VALUE, PMIX_VALUE);
SAME(PX_PROC, PMIX_PROC);
SAME(PX_INFO, PMIX_INFO);
SAME(PX_ARRAY, PMIX_DATA_ARRAY);
SAME(PX_RANK, PMIX_PROC_RANK);
SAME(PX_REGEX, PMIX_REGEX);
SAME(PX_RANGE_RM, PMIX_RANGE_RM);
SAME(PX_RANGE_LOCAL, PMIX_RANGE_LOCAL);
SAME(PX_RANGE_NAMESPACE, PMIX_RANGE_NAMESPACE);
SAME(PX_RANGE_PROC_LOCAL, PMIX_RANGE_PROC_LOCAL);
SAME(PX_PERSIST_FIRST_READ, PMIX_PERSIST_FIRST_READ);
SAME((int)PX_GROUP_CONSTRUCT, (int)PMIX_GROUP_CONSTRUCT);
SAME((int)PX_GROUP_DESTRUCT, (int)PMIX_GROUP_DESTRUCT);
SAME_MEMBER(px_value, data.size, pmix_value_t, data.size);
SAME_MEMBER(px_value, data.byte, pmix_value_t, data.byte);
SAME_MEMBER(px_value, data.uint16, pmix_value_t, data.uint16);
SAME_MEMBER(px_value, data.string, pmix_value_t, data.string);
SAME_MEMBER(px_value, data.array, pmix_value_t, data.darray);
SAME_MEMBER(px_value, data.proc, pmix_value_t, data.proc);
SAME(sizeof(pmix_persistence_t), sizeof(((struct px_value *)0)->data.byte));
SAME(sizeof(pmix_data_range_t), sizeof(uint8_t));
SAME(sizeof(struct px_array), sizeof(pmix_data_array_t));
SAME_MEMBER(px_array, type, pmix_data_array_t, type);
SAME_MEMBER(px_array, size, pmix_data_array_t, size);
SAME_MEMBER(px_array, v, pmix_data_array_t, array);
SAME(sizeof(struct px_cpuset), sizeof(pmix_cpuset_t));
SAME_MEMBER(px_cpuset, source, pmix_cpuset_t, source);
SAME_MEMBER(px_cpuset, bitmap, pmix_cpuset_t, bitmap);
SAME(sizeof(struct px_query), sizeof(pmix_query_t));
SAME_MEMBER(px_query, keys, pmix_query_t, keys);
SAME_MEMBER(px_query, info, pmix_query_t, qualifiers);
SAME_MEMBER(px_query, n, pmix_query_t, nqual);
SAME(sizeof(struct px_pdata), sizeof(pmix_pdata_t));
SAME_MEMBER(px_pdata, proc, pmix_pdata_t, proc);
SAME_MEMBER(px_pdata, key, pmix_pdata_t, key);
SAME_MEMBER(px_pdata, value, pmix_pdata_t, value);
SAME(sizeof(struct px_buffer), sizeof(pmix_data_buffer_t));
SAME_MEMBER(px_buffer, base, pmix_data_buffer_t, base_ptr);
SAME_MEMBER(px_buffer, pack, pmix_data_buffer_t, pack_ptr);
SAME_MEMBER(px_buffer, unpack, pmix_data_buffer_t, unpack_ptr);
SAME_MEMBER(px_buffer, allocated, pmix_data_buffer_t, bytes_allocated);
SAME_MEMBER(px_buffer, used, pmix_data_buffer_t, bytes_used);
START_TEST(keys)
{
	ck_assert_str_eq(PX_JOB_SIZE, PMIX_JOB_SIZE);
	ck_assert_str_eq(PX_COLLECT_DATA, PMIX_COLLECT_DATA);
	ck_assert_str_eq(PX_SERVER_TMPDIR, PMIX_SERVER_TMPDIR);
	ck_assert_str_eq(PX_SYSTEM_TMPDIR, PMIX_SYSTEM_TMPDIR);
	ck_assert_str_eq(PX_SERVER_NSPACE, PMIX_SERVER_NSPACE);
	ck_assert_str_eq(PX_SERVER_RANK, PMIX_SERVER_RANK);
	ck_assert_str_eq(PX_SHARE_TOPOLOGY, PMIX_SERVER_SHARE_TOPOLOGY);
	ck_assert_str_eq(PX_HOSTNAME, PMIX_HOSTNAME);
	ck_assert_str_eq(PX_NODE_MAP, PMIX_NODE_MAP);
	ck_assert_str_eq(PX_PROC_MAP, PMIX_PROC_MAP);
	ck_assert_str_eq(PX_ANL_MAP, PMIX_ANL_MAP);
	ck_assert_str_eq(PX_JOBID, PMIX_JOBID);
	ck_assert_str_eq(PX_UNIV_SIZE, PMIX_UNIV_SIZE);
	ck_assert_str_eq(PX_MAX_PROCS, PMIX_MAX_PROCS);
	ck_assert_str_eq(PX_NUM_NODES, PMIX_NUM_NODES);
	ck_assert_str_eq(PX_JOB_NUM_APPS, PMIX_JOB_NUM_APPS);
	ck_assert_str_eq(PX_NPROC_OFFSET, PMIX_NPROC_OFFSET);
	ck_assert_str_eq(PX_MAPBY, PMIX_MAPBY);
	ck_assert_str_eq(PX_RANKBY, PMIX_RANKBY);
	ck_assert_str_eq(PX_BINDTO, PMIX_BINDTO);
	ck_assert_str_eq(PX_KEEP_FQDN, PMIX_HOSTNAME_KEEP_FQDN);
	ck_assert_str_eq(PX_TMPDIR, PMIX_TMPDIR);
	ck_assert_str_eq(PX_NSDIR, PMIX_NSDIR);
	ck_assert_str_eq(PX_TDIR_RMCLEAN, PMIX_TDIR_RMCLEAN);
	ck_assert_str_eq(PX_SPAWNED, PMIX_SPAWNED);
	ck_assert_str_eq(PX_RM_NAME, PMIX_RM_NAME);
	ck_assert_str_eq(PX_OVERSUBSCRIBED, PMIX_NODE_OVERSUBSCRIBED);
	ck_assert_str_eq(PX_NODE_INFO, PMIX_NODE_INFO_ARRAY);
	ck_assert_str_eq(PX_NODEID, PMIX_NODEID);
	ck_assert_str_eq(PX_NODE_SIZE, PMIX_NODE_SIZE);
	ck_assert_str_eq(PX_LOCAL_SIZE, PMIX_LOCAL_SIZE);
	ck_assert_str_eq(PX_LOCAL_PEERS, PMIX_LOCAL_PEERS);
	ck_assert_str_eq(PX_LOCAL_LEADER, PMIX_LOCALLDR);
	ck_assert_str_eq(PX_APP_INFO, PMIX_APP_INFO_ARRAY);
	ck_assert_str_eq(PX_APPNUM, PMIX_APPNUM);
	ck_assert_str_eq(PX_APP_SIZE, PMIX_APP_SIZE);
	ck_assert_str_eq(PX_APP_LEADER, PMIX_APPLDR);
	ck_assert_str_eq(PX_APP_ARGV, PMIX_APP_ARGV);
	ck_assert_str_eq(PX_WDIR, PMIX_WDIR);
	ck_assert_str_eq(PX_PROC_INFO, PMIX_PROC_INFO_ARRAY);
	ck_assert_str_eq(PX_KEY_RANK, PMIX_RANK);
	ck_assert_str_eq(PX_LOCAL_RANK, PMIX_LOCAL_RANK);
	ck_assert_str_eq(PX_NODE_RANK, PMIX_NODE_RANK);
	ck_assert_str_eq(PX_GLOBAL_RANK, PMIX_GLOBAL_RANK);
	ck_assert_str_eq(PX_APP_RANK, PMIX_APP_RANK);
	ck_assert_str_eq(PX_CPUSET, PMIX_CPUSET);
	ck_assert_str_eq(PX_LOCALITY, PMIX_LOCALITY_STRING);
	ck_assert_str_eq(PX_PROCDIR, PMIX_PROCDIR);
	ck_assert_str_eq(PX_REINCARNATION, PMIX_REINCARNATION);
	ck_assert_str_eq(PX_LOCAL_STATUS, PMIX_LOCAL_COLLECTIVE_STATUS);
	ck_assert_str_eq(PX_LOG_STDERR, PMIX_LOG_STDERR);
	ck_assert_str_eq(PX_LOG_STDOUT, PMIX_LOG_STDOUT);
	ck_assert_str_eq(PX_GROUP_ASSIGN_ID, PMIX_GROUP_ASSIGN_CONTEXT_ID);
	ck_assert_str_eq(PX_GROUP_ID, PMIX_GROUP_CONTEXT_ID);
	ck_assert_str_eq(PX_GROUP_MEMBERS, PMIX_GROUP_MEMBERSHIP);
	ck_assert_str_eq(PX_GROUP_ENDPOINTS, PMIX_GROUP_ENDPT_DATA);
	ck_assert_str_eq(PX_GROUP_LOCAL_ONLY, PMIX_GROUP_LOCAL_ONLY);
	ck_assert_str_eq(PX_WAIT, PMIX_WAIT);
	ck_assert_str_eq(PX_TIMEOUT, PMIX_TIMEOUT);
	ck_assert_str_eq(PX_PERSISTENCE, PMIX_PERSISTENCE);
	ck_assert_str_eq(PX_AFFECTED, PMIX_EVENT_AFFECTED_PROC);
	ck_assert_str_eq(PX_NAMESPACES, PMIX_QUERY_NAMESPACES);
	ck_assert_str_eq(PX_NUM_PSETS, PMIX_QUERY_NUM_PSETS);
	ck_assert_str_eq(PX_PSET_NAMES, PMIX_QUERY_PSET_NAMES);
}
END_TEST

/* ---- functions: ours, read with PMIx's types in place of ours ---- */

#define px_proc pmix_proc
#define px_value pmix_value
#define px_info pmix_info
#define px_pdata pmix_pdata
#define px_query pmix_query
#define px_buffer pmix_data_buffer
#include "lib/boot/pmix_calls.h"

#define ALIKE(a, b) __builtin_types_compatible_p(a, b)
#define SAME_CALL(result, name, arguments)                                             \
	_Static_assert(ALIKE(result arguments, __typeof__(PMIx_##name)), #name);

/* A structure without a name cannot be put in place of ours, and the module is compared
 * below: these two take ours. */
_Static_assert(ALIKE(pmix_status_t(const pmix_cpuset_t *, char **),
		     __typeof__(PMIx_server_generate_locality_string)),
	       "server_generate_locality_string");
_Static_assert(ALIKE(pmix_status_t(pmix_server_module_t *, pmix_info_t *, size_t),
		     __typeof__(PMIx_server_init)),
	       "server_init");
pmix_status_t PMIx_our_locality(const struct px_cpuset *, char **);
pmix_status_t PMIx_our_init(struct px_server_module *, pmix_info_t *, size_t);
#define PMIx_server_generate_locality_string PMIx_our_locality
#define PMIx_server_init PMIx_our_init
PX_FUNCTIONS(SAME_CALL)
PX_SERVER_FUNCTIONS(SAME_CALL)

#define SAME_DONE(ours, theirs) _Static_assert(ALIKE(ours *, theirs), #ours)
SAME_DONE(px_op_done, pmix_op_cbfunc_t);
SAME_DONE(px_value_done, pmix_value_cbfunc_t);
SAME_DONE(px_release, pmix_release_cbfunc_t);
SAME_DONE(px_lookup_done, pmix_lookup_cbfunc_t);
SAME_DONE(px_modex_done, pmix_modex_cbfunc_t);
SAME_DONE(px_info_done, pmix_info_cbfunc_t);
SAME_DONE(px_served, pmix_dmodex_response_fn_t);

#define SAME_PLACE(our, their)                                                         \
	SAME_MEMBER(px_server_module, our, pmix_server_module_t, their)
#define SAME_UPCALL(our, their)                                                        \
	SAME_PLACE(our, their);                                                        \
	_Static_assert(ALIKE(__typeof__(((struct px_server_module *)0)->our),          \
			     __typeof__(((pmix_server_module_t *)0)->their)),          \
		       #our)
SAME(sizeof(struct px_server_module), sizeof(pmix_server_module_t));
SAME_UPCALL(client_connected, client_connected);
SAME_UPCALL(client_finalized, client_finalized);
SAME_UPCALL(abort, abort);
SAME_UPCALL(fence, fence_nb);
SAME_UPCALL(direct_modex, direct_modex);
SAME_UPCALL(publish, publish);
SAME_UPCALL(lookup, lookup);
SAME_UPCALL(unpublish, unpublish);
SAME_UPCALL(connect, connect);
SAME_UPCALL(disconnect, disconnect);
SAME_UPCALL(register_events, register_events);
SAME_UPCALL(deregister_events, deregister_events);
SAME_UPCALL(notify_event, notify_event);
SAME_UPCALL(query, query);
SAME_UPCALL(log, log);
SAME_PLACE(group, group);
/* of an enumeration without a name */
_Static_assert(ALIKE(pmix_server_grp_fn_t,
		     pmix_status_t (*)(pmix_group_operation_t, char *,
				       const pmix_proc_t *, size_t, const pmix_info_t *,
				       size_t, pmix_info_cbfunc_t, void *)) &&
		       ALIKE(__typeof__(((struct px_server_module *)0)->group),
			     pmix_status_t (*)(unsigned, char *, const pmix_proc_t *,
					       size_t, const pmix_info_t *, size_t,
					       pmix_info_cbfunc_t, void *)) &&
		       sizeof(pmix_group_operation_t) == sizeof(unsigned),
	       "group");
SAME_UPCALL(client_connected2, client_connected2);

int main(void)
{
	Suite *s = suite_create("pmix_abi");
	TCase *c = tcase_create("pmix_abi");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	tcase_add_test(c, keys);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
#else
int main(void)
{
	const char *tap = getenv("CK_TAP_LOG_FILE_NAME");
	FILE *f = fopen(tap ? tap : "/dev/stdout", "w");

	fputs("1..0 # skip: no headers of PMIx (tests/deps launchers installs them)\n",
	      f ? f : stderr);
	return f && fclose(f);
}
#endif
