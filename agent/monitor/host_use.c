#include "agent/monitor/host_use.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"

enum { FILE_BYTES = 64 << 10, PORTS_MOST = 64 };

/* The file PATH below ROOT as TEXT; false: there is nothing. */
static bool host_file(char *text, size_t size, const char *root, const char *path)
{
	char file[512];

	snprintf(file, sizeof file, "%s%s", root, path);
	return file_start(file, text, size) > 0;
}

/* The number behind KEY, wherever it stands in TEXT; 0: nowhere. */
static uint64_t host_number(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" is the first line. */
static uint64_t pressure_us(const char *root, const char *path)
{
	char text[512];

	return host_file(text, sizeof text, root, path) ? host_number(text, "total=")
							: 0;
}

/* "  eth0: bytes packets errs drop fifo frame compressed multicast bytes ..." */
static uint64_t net_bytes(char *text)
{
	enum { SENT = 8 };
	uint64_t sum = 0;
	char *line, *rest;

	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		char *at = strchr(line, ':'), *end;

		if (!at || strstr(line, " lo:") || !strncmp(line, "lo:", 3))
			continue;
		at++;
		for (int field = 0; field <= SENT; field++, at = end) {
			const uint64_t n = strtoull(at, &end, 10);

			sum += field == 0 || field == SENT ? n : 0;
		}
	}
	return sum;
}

/* The traffic of all ports of DEVICE, whose counters count words of 4 bytes. */
static uint64_t ib_device_bytes(const char *root, const char *device)
{
	static const char *const names[] = { "port_rcv_data", "port_xmit_data" };
	uint64_t sum = 0;

	for (int port = 1; port <= PORTS_MOST; port++)
		for (int i = 0; i < 2; i++) {
			char path[400], text[64];

			snprintf(path, sizeof path,
				 "/sys/class/infiniband/%.200s/ports/%d/counters/%s",
				 device, port, names[i]);
			if (!host_file(text, sizeof text, root, path))
				return sum;
			sum += 4 * strtoull(text, NULL, 10);
		}
	return sum;
}

/* The rates of the ports of DEVICE: "100 Gb/sec (4X EDR)". */
static uint32_t ib_device_mbit(const char *root, const char *device)
{
	char path[400], text[128];
	double most = 0;

	for (int port = 1; port <= PORTS_MOST; port++) {
		double rate;

		snprintf(path, sizeof path,
			 "/sys/class/infiniband/%.200s/ports/%d/rate", device, port);
		if (!host_file(text, sizeof text, root, path))
			break;
		rate = 1000 * strtod(text, NULL);
		snprintf(path, sizeof path,
			 "/sys/class/infiniband/%.200s/ports/%d/state", device, port);
		/* "4: ACTIVE"; what is down has the lowest rate */
		if (!host_file(text, sizeof text, root, path) ||
		    !strstr(text, "ACTIVE"))
			continue;
		most = rate > most && rate < 1e8 ? rate : most;
	}
	return (uint32_t)most;
}

/* The speed of the network card NAME, as its driver says.  Bridges, tunnels and pairs
 * of virtual cards have no device; some invent a speed. */
static uint32_t net_card_mbit(const char *root, const char *name)
{
	enum { MBIT_MOST = 100000000 };
	char path[512], text[64];
	long mbit;

	snprintf(path, sizeof path, "%s/sys/class/net/%.200s/device", root, name);
	if (access(path, F_OK))
		return 0;
	snprintf(path, sizeof path, "/sys/class/net/%.200s/operstate", name);
	if (!host_file(text, sizeof text, root, path) || strncmp(text, "up", 2) != 0)
		return 0;
	snprintf(path, sizeof path, "/sys/class/net/%.200s/speed", name);
	if (!host_file(text, sizeof text, root, path)) /* or an error: unknown */
		return 0;
	mbit = strtol(text, NULL, 10);
	return mbit > 0 && mbit < MBIT_MOST ? (uint32_t)mbit : 0;
}

uint32_t host_link_mbit(const char *root)
{
	static const struct {
		const char *folder;
		uint32_t (*mbit)(const char *root, const char *name);
	} kinds[] = { { "infiniband", ib_device_mbit }, { "net", net_card_mbit } };
	uint32_t most = 0;

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct dirent *entry;
		char path[512];
		DIR *dir;

		snprintf(path, sizeof path, "%s/sys/class/%s", root, kinds[i].folder);
		dir = opendir(path);
		while (dir && (entry = readdir(dir))) {
			const uint32_t mbit =
				*entry->d_name == '.'
					? 0
					: kinds[i].mbit(root, entry->d_name);

			most = mbit > most ? mbit : most;
		}
		if (dir)
			closedir(dir);
	}
	return most;
}

void host_use_read(struct wire_host_use *m, const char *root)
{
	char text[FILE_BYTES], path[512];
	struct dirent *entry;
	DIR *dir;

	m->cpu_us = pressure_us(root, "/proc/pressure/cpu");
	m->io_us = pressure_us(root, "/proc/pressure/io");
	m->memory_us = pressure_us(root, "/proc/pressure/memory");
	if (host_file(text, sizeof text, root, "/proc/vmstat"))
		m->oom_kills = host_number(text, "\noom_kill ");
	if (host_file(text, sizeof text, root, "/proc/meminfo"))
		m->free_bytes = 1024 * host_number(text, "MemAvailable:");
	if (host_file(text, sizeof text, root, "/proc/net/dev"))
		m->net_bytes = net_bytes(text);
	snprintf(path, sizeof path, "%s/sys/class/infiniband", root);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (*entry->d_name != '.')
			m->ib_bytes += ib_device_bytes(root, entry->d_name);
	if (dir)
		closedir(dir);
}
