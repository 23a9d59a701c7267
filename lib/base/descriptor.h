/* descriptor.h - sockets that a child of fork(2) does not keep.  Peers see that this
 * process has ended when its sockets are closed, and a child's copies would keep them
 * open. */
#ifndef BERTH_LIB_DESCRIPTOR_H
#define BERTH_LIB_DESCRIPTOR_H

/* As socket(2), accept4(2) and close(2).  Sockets are closed on exec. */
int descriptor_socket(int domain, int type, int protocol);
/* It does not block: LISTENER has O_NONBLOCK. */
int descriptor_accept(int listener, int flags);
void descriptor_close(int fd);

/* Before fork(2), and after it in the parent: no other thread opens or closes one
 * meanwhile. */
void descriptor_lock(void);
void descriptor_unlock(void);
/* After fork(2) in the child: closes all of them. */
void descriptor_in_child(void);

#endif
