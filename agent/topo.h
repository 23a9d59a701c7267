/* topo.h - this machine as hwloc sees it, reduced to what placement needs.
 *
 * Live: CPUs, caches and NUMA nodes only, no plugins and no I/O objects (1.2 ms; with I/O hwloc
 * reads each PCI function's configuration space, 1 ms and more apiece).  From an XML file
 * (HWLOC_XMLFILE, or a path): PCI objects too.  All hwloc types end here. */
#ifndef BERTH_TOPO_H
#define BERTH_TOPO_H

#include "common/str.h"

/* A set of processing units by OS index; NULL words never occur, nwords is the machine's. */
struct cpuset {
	uint64_t *w;
	size_t nwords;
};

enum node_type { NODE_MACHINE, NODE_PACKAGE, NODE_GROUP, NODE_L3, NODE_CACHE, NODE_CORE, NODE_PU, NODE_OTHER };

/* One object of hwloc's normal tree (no NUMA nodes, no I/O, no PUs below cores). */
struct topo_node {
	enum node_type type;
	int os_index;       /* -1: none */
	int parent;         /* index, -1 for the machine */
	int depth;          /* 0 for the machine */
	char name[24];      /* "Package#1", "L3Cache#2", "Machine" */
	uint32_t first_core, ncores; /* its usable cores are core[first_core..+ncores): hwloc logical order */
	struct cpuset cpus; /* all its PUs */
};

struct topo_core {
	int node;            /* its topo_node */
	uint32_t *pu;        /* allowed PUs, OS indexes, ascending as hwloc lists them */
	uint32_t npu;        /* at least 1 */
};

struct topo_numa {
	int os_index;
	int node;            /* nearest normal object above it */
	struct cpuset cpus;  /* empty for memory-only and GPU memory nodes */
};

/* A PCI function of an XML topology; empty for a live machine. */
struct topo_pci {
	uint32_t domain;
	uint8_t bus, dev, func;
	uint16_t vendor, device, class_id; /* class: 0x0302 ... */
	int node;       /* nearest normal object above it */
	char model[64], uuid[64]; /* from OS devices, or "" */
};

struct topo {
	struct topo_node *node; /* node[0] is the machine; parents come before children */
	size_t nnode;
	struct topo_core *core; /* cores with at least one allowed PU, hwloc logical order */
	size_t ncore;
	struct topo_numa *numa;
	size_t nnuma;
	struct topo_pci *pci;
	size_t npci;
	uint64_t *latency; /* nnuma x nnuma NUMALatency, or NULL */
	struct cpuset allowed;
	uint32_t npu;      /* allowed PUs */
	bool live;         /* this machine, not a file: its CPUs can be bound to */
};

/* Load the machine (XML NULL; HWLOC_XMLFILE is obeyed), or the XML file.  Allowed is hwloc's
 * allowed set and, live, this process's own affinity mask.  0, or -1 with E (E_TOPOLOGY). */
int topo_load(struct topo *t, const char *xml, struct err *e);
void topo_free(struct topo *t);

#endif
