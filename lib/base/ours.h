/* ours.h - what belongs to the user of this process, where other users have a say. */
#ifndef BERTH_LIB_OURS_H
#define BERTH_LIB_OURS_H

#include <stdbool.h>
#include <stddef.h>

/* The process that connected or listened on the other side of FD, a connected UNIX
 * socket, is of our user: names of abstract sockets can be taken by all users. */
bool ours_peer(int fd);

/* A descriptor for writing to the file PATH, which is new or cut off, or -1 with WHY.
 * Where other users may write, they may have put something at PATH: a link is not
 * followed, and only a regular file of ours that has no other name is cut off. */
int ours_create(const char *path, char *why, size_t why_bytes);

#endif
