/* ours.h - checks that something belongs to the user of this process, if other users
 * have access, too. */
#ifndef BERTH_LIB_OURS_H
#define BERTH_LIB_OURS_H

#include <stdbool.h>
#include <stddef.h>

/* Does the process that connected or listened on the other side of FD belong to our
 * user?  FD is a connected UNIX socket.  All users can take the name of an abstract
 * socket. */
bool ours_peer(int fd);

/* A descriptor for writing to the file PATH, or -1 with WHY.  The file is new or cut
 * off.  If other users may write there, they may have put something at PATH.  So a link
 * is not followed.  Only a regular file of ours that has no other name is cut off. */
int ours_create(const char *path, char *why, size_t why_bytes);

#endif
