/* topo.h - this machine as hwloc sees it, reduced to what placement needs.
 *
 * Live: CPUs, caches and NUMA nodes only, no plugins and no I/O objects, for which
 * hwloc reads each PCI function's configuration space (1.2 ms in all; with I/O 1 ms
 * and more for each function).  From an XML file (HWLOC_XMLFILE, or a path): PCI
 * objects too.  No hwloc type leaves topo.c. */
#ifndef BERTH_AGENT_PLACEMENT_TOPO_H
#define BERTH_AGENT_PLACEMENT_TOPO_H

#include "agent/placement/cpuset.h"
#include "common/str.h"

enum node_type {
	NODE_MACHINE,
	NODE_PACKAGE,
	NODE_GROUP,
	NODE_DIE,
	NODE_L3,
	NODE_CACHE, /* any other */
	NODE_CORE,
	NODE_OTHER
};

/* One object of hwloc's normal tree (no NUMA nodes, no I/O, no PUs below cores). node[]
 * is in depth-first order: the nodes below I are node[I+1..end). */
struct topo_node {
	enum node_type type;
	int parent;    /* index, -1 for the machine */
	int end;       /* first index after its subtree */
	int depth;     /* 0 for the machine */
	char name[24]; /* "Package#1" by OS index, "L3Cache#2" by logical index if the
			* OS has none, "NUMANode#6" for a group or cache that is the
			* same */
	uint32_t first_core,
		ncores;     /* usable cores: core[first_core..+ncores), logical order */
	struct cpuset cpus; /* all its PUs */
};

struct topo_core {
	int node;     /* its topo_node */
	int numa;     /* index of the NUMA node it belongs to, -1: none */
	uint32_t *pu; /* allowed PUs, OS indexes, ascending */
	uint32_t npu; /* at least 1 */
};

struct topo_numa {
	int os_index;
	int node;           /* nearest normal object above it */
	struct cpuset cpus; /* empty for memory-only nodes and for GPU memory */
};

/* Where a PCI function sits. */
struct gpu_address {
	uint32_t domain;
	uint8_t bus, dev, func;
};

/* A PCI function of an XML topology.  A live machine has none here. */
struct topo_pci {
	struct gpu_address address;
	uint16_t vendor, device, class_id; /* class: 0x0302 ... */
	int node;                          /* nearest normal object above it */
	char model[64], uuid[96];          /* from its OS devices, or "" */
};

struct topo {
	struct topo_node
		*node; /* node[0] is the machine; parents come before children */
	size_t nnode;
	struct topo_core
		*core; /* cores with at least one allowed PU, hwloc logical order */
	size_t ncore;
	struct topo_numa *numa;
	size_t nnuma;
	struct topo_pci *pci;
	size_t npci;
	uint64_t *latency; /* nnuma x nnuma NUMALatency, or NULL */
	struct cpuset allowed;
	struct hwloc_topology *loaded; /* hwloc's own */
	uint32_t npu;                  /* allowed PUs */
	bool live; /* this machine, or a file that stands for it (HWLOC_THISSYSTEM=1):
		    * its CPUs can be bound to */
	bool from_xml; /* its GPUs are the file's PCI objects, not sysfs's */
};

/* Load the file XML; if that is NULL, the file HWLOC_XMLFILE or this machine.  Allowed
 * are the CPUs of hwloc's allowed set, and live only those of this process's affinity
 * mask.  0, or -1 with E (E_TOPOLOGY). */
int topo_load(struct topo *t, const char *xml, struct err *e);
/* Only those CPUs stay allowed in T that are in CPUS, too.  There is at least one. */
void topo_restrict(struct topo *t, const struct cpuset *cpus);
void topo_free(struct topo *t);
/* T as hwloc's XML, for other programs.  To be freed; "" if hwloc can't. */
char *topo_xml(const struct topo *t);

/* A rank, where it runs. */
struct topo_rank {
	uint32_t rank;
	const struct cpuset *cpus;
	const char *pci; /* of its GPU, or NULL */
};

/* The machine of topo_load(XML) with PCI devices and V[0..n) in it, for lstopo: CPUs
 * and GPUs that one rank alone has are in its colour.  To be freed; "" if hwloc
 * can't. */
char *topo_draw(const char *xml, const struct topo_rank *v, size_t n);

/* Whether node ABOVE is BELOW or one of its ancestors. */
static inline bool topo_above(const struct topo *t, int above, int below)
{
	return above <= below && below < t->node[above].end;
}

/* The highest node with the CPUs of the smallest object that covers CPUS, up to a
 * package; 0 if CPUS is empty. */
int topo_covering(const struct topo *t, const struct cpuset *cpus);

/* Where placement starts for a device that hangs from NODE: the nearest object upwards
 * with usable cores that is neither a core nor a private cache. */
int topo_home(const struct topo *t, int node);

/* NUMA nodes of CPUS as a list string of OS indexes; nodes without CPUs do not
 * count. */
void topo_add_numa(struct str *s, const struct topo *t, const struct cpuset *cpus);

/* NUMA nodes that have CPUs. */
size_t topo_numa_count(const struct topo *t);

/* The package of NODE, or NODE if it is in none. */
int topo_package(const struct topo *t, int node);

/* Whether one of C's PUs is in CPUS. */
bool topo_core_meets(const struct topo_core *c, const struct cpuset *cpus);
/* The cores below NODE with a PU in CPUS. */
uint32_t topo_cores(const struct topo *t, const struct cpuset *cpus, int node);

/* How many sockets, and NUMA nodes, have CPUs that may be used. */
uint32_t topo_sockets(const struct topo *t);
uint32_t topo_numas(const struct topo *t);

#endif
