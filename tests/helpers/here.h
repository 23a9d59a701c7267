/* here.h - what the process of a test has: threads and descriptors. */
#ifndef BERTH_TESTS_HERE_H
#define BERTH_TESTS_HERE_H

#include <dirent.h>

static inline int entries_of(const char *folder)
{
	DIR *d = opendir(folder);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n - 2; /* "." and ".." */
}

static inline int threads_here(void)
{
	return entries_of("/proc/self/task");
}

/* But for the folder's own. */
static inline int descriptors_here(void)
{
	return entries_of("/proc/self/fd") - 1;
}

#endif
