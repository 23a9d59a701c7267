/* pmix_abi.h - the parts of libpmix.so.2's interface that a client and a server need.
 * They are the layouts and numbers that releases 3 to 6 have in common (the server's: 4
 * to 6).  pmix_calls.h has its functions.  They are our own, so that a build needs no
 * headers of PMIx.  If those are installed, tests/unit/test_boot_pmix_abi.c compares
 * with them.
 *
 * Source: the PMIx standard 4.0, chapters 3 (data structures), 4 (initialisation), 7
 * (exchange of data), 16 (server). */
#ifndef BERTH_LIB_PMIX_ABI_H
#define BERTH_LIB_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PX_NSPACE_BYTES = 256,
	PX_KEY_BYTES = 512,
	/* statuses; a negative one is an error, but PX_DONE says that nothing will be
	 * called back */
	PX_SUCCESS = 0,
	PX_DONE = -157,
	PX_ERROR = -1,
	PX_BAD_PARAM = -27,
	PX_OUT_OF_RESOURCE = -29,
	PX_NOT_FOUND = -46,
	PX_NOT_SUPPORTED = -47,
	PX_PARTIAL_SUCCESS = -52,
	PX_DUPLICATE_KEY = -53,
	PX_LOST_CONNECTION = -61,
	PX_PROC_TERM_WO_SYNC = -200,
	/* types of values */
	PX_BOOL = 1,
	PX_STRING = 3,
	PX_SIZE = 4,
	PX_UINT16 = 13,
	PX_UINT32 = 14,
	PX_STATUS = 20,
	PX_VALUE = 21,
	PX_PROC = 22,
	PX_INFO = 24,
	PX_BYTES = 27,
	PX_ARRAY = 39,
	PX_RANK = 40,
	PX_REGEX = 49, /* as PX_BYTES */
	/* scopes of PMIx_Put */
	PX_GLOBAL = 3
};

#define PX_RANK_ALL (UINT32_MAX - 1)

#define PX_JOB_SIZE "pmix.job.size"
#define PX_COLLECT_DATA "pmix.collect"
/* of a server */
#define PX_SERVER_TMPDIR "pmix.srvr.tmpdir"
#define PX_SYSTEM_TMPDIR "pmix.sys.tmpdir"
#define PX_SERVER_NSPACE "pmix.srv.nspace"
#define PX_SERVER_RANK "pmix.srv.rank"
#define PX_SHARE_TOPOLOGY "pmix.srvr.share"
#define PX_HOSTNAME "pmix.hname"
/* of a job */
#define PX_NODE_MAP "pmix.nmap"
#define PX_PROC_MAP "pmix.pmap"
#define PX_ANL_MAP "pmix.anlmap"
#define PX_JOBID "pmix.jobid"
#define PX_UNIV_SIZE "pmix.univ.size"
#define PX_MAX_PROCS "pmix.max.size"
#define PX_NUM_NODES "pmix.num.nodes"
#define PX_JOB_NUM_APPS "pmix.job.napps"
#define PX_NPROC_OFFSET "pmix.offset"
#define PX_MAPBY "pmix.mapby"
#define PX_RANKBY "pmix.rankby"
#define PX_BINDTO "pmix.bindto"
#define PX_KEEP_FQDN "pmix.fqdn"
#define PX_TMPDIR "pmix.tmpdir"
#define PX_NSDIR "pmix.nsdir"
#define PX_TDIR_RMCLEAN "pmix.tdir.rmclean"
#define PX_SPAWNED "pmix.spawned"
#define PX_RM_NAME "pmix.rm.name"
#define PX_OVERSUBSCRIBED "pmix.ndosub"
/* of a host */
#define PX_NODE_INFO "pmix.node.arr"
#define PX_NODEID "pmix.nodeid"
#define PX_NODE_SIZE "pmix.node.size"
#define PX_LOCAL_SIZE "pmix.local.size"
#define PX_LOCAL_PEERS "pmix.lpeers"
#define PX_LOCAL_LEADER "pmix.lldr"
/* of a program */
#define PX_APP_INFO "pmix.app.arr"
#define PX_APPNUM "pmix.appnum"
#define PX_APP_SIZE "pmix.app.size"
#define PX_APP_LEADER "pmix.aldr"
#define PX_APP_ARGV "pmix.app.argv"
#define PX_WDIR "pmix.wdir"
/* of a process */
#define PX_PROC_INFO "pmix.pdata"
#define PX_KEY_RANK "pmix.rank"
#define PX_LOCAL_RANK "pmix.lrank"
#define PX_NODE_RANK "pmix.nrank"
#define PX_GLOBAL_RANK "pmix.grank"
#define PX_APP_RANK "pmix.apprank"
#define PX_CPUSET "pmix.cpuset"
#define PX_LOCALITY "pmix.locstr"
#define PX_PROCDIR "pmix.pdir"
#define PX_REINCARNATION "pmix.reinc"
/* of a request */
#define PX_LOCAL_STATUS "pmix.loc.col.st"
#define PX_LOG_STDERR "pmix.log.stderr"
#define PX_LOG_STDOUT "pmix.log.stdout"
#define PX_GROUP_ASSIGN_ID "pmix.grp.actxid"
#define PX_GROUP_ID "pmix.grp.ctxid"
#define PX_GROUP_MEMBERS "pmix.grp.mbrs"
#define PX_GROUP_ENDPOINTS "pmix.grp.endpt"
#define PX_GROUP_LOCAL_ONLY "pmix.grp.lcl"
#define PX_WAIT "pmix.wait"
#define PX_TIMEOUT "pmix.timeout"
#define PX_PERSISTENCE "pmix.persist"
#define PX_AFFECTED "pmix.evproc"
#define PX_NAMESPACES "pmix.qry.ns"
#define PX_NUM_PSETS "pmix.qry.psetnum"
#define PX_PSET_NAMES "pmix.qry.psets"

struct px_proc {
	char nspace[PX_NSPACE_BYTES];
	uint32_t rank;
};

struct px_bytes {
	char *bytes;
	size_t size;
};

struct px_array {
	uint16_t type;
	size_t size;
	void *v;
};

struct px_value {
	uint16_t type;
	union {
		bool flag;
		char *string;
		size_t size;
		uint8_t byte;
		uint16_t uint16;
		uint32_t uint32;
		struct px_bytes bytes;
		struct px_array *array;
		struct px_proc *proc;
		struct {
			char *name, *value, separator;
		} largest; /* an environment variable */
	} data;
};

struct px_info {
	char key[PX_KEY_BYTES];
	uint32_t flags;
	struct px_value value;
};

/* ---- a server ---- */

/* A set of hwloc or of another library. */
struct px_cpuset {
	char *source;
	void *bitmap;
};

struct px_query {
	char **keys;
	struct px_info *info;
	size_t n;
};

struct px_pdata {
	struct px_proc proc;
	char key[PX_KEY_BYTES];
	struct px_value value;
};

/* Bytes that libpmix packs, the first USED at BASE. */
struct px_buffer {
	char *base, *pack, *unpack;
	size_t allocated, used;
};

/* The processes that are told.  Other ranges tell other processes, too. */
enum px_range {
	PX_RANGE_RM = 1,
	PX_RANGE_LOCAL = 2,
	PX_RANGE_NAMESPACE = 3,
	PX_RANGE_PROC_LOCAL = 7
};
enum { PX_PERSIST_FIRST_READ = 1 };

enum px_group { PX_GROUP_CONSTRUCT, PX_GROUP_DESTRUCT };

#endif
