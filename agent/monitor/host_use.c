#include "agent/monitor/host_use.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
