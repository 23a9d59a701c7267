/* fakecpus N CMD...: run CMD and its children on a machine that seems to have N cpus.
 *
 * sched_setaffinity and sched_getaffinity of the whole process tree are
 * answered by this process (seccomp user notification), so that static
 * binaries, Go, Python and hwloc (with HWLOC_XMLFILE and HWLOC_THISSYSTEM=1) see
 * masks over N cpus and inheritance works.  What is real stays real: the
 * kernel schedules as it likes, and /proc/PID/status shows the real mask. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 64 /* 4096 cpus */
struct ent {
	pid_t tid;
	unsigned long long start;
	uint64_t mask[WORDS];
};
static struct ent *tab;
static int ntab, cap, ncpu, bytes;
static uint64_t full[WORDS];

/* start time and parent (tgid for a thread, ppid for a leader): a reused tid must not
 * inherit */
static int info(pid_t tid, unsigned long long *start, pid_t *up)
{
	char p[64], b[4096], *q;
	int fd, n;
	long tgid = 0, ppid = 0;

	snprintf(p, sizeof(p), "/proc/%d/stat", tid);
	if ((fd = open(p, O_RDONLY)) < 0)
		return -1;
	n = read(fd, b, sizeof(b) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	b[n] = 0;
	if (!(q = strrchr(b, ')')))
		return -1;
	sscanf(q + 2, "%*c %ld", &ppid);
	q += 2;
	for (int f = 3; f < 22; f++)
		q = strchr(q, ' ') + 1;
	*start = strtoull(q, NULL, 10);
	snprintf(p, sizeof(p), "/proc/%d/status", tid);
	if ((fd = open(p, O_RDONLY)) < 0)
		return -1;
	n = read(fd, b, sizeof(b) - 1);
	close(fd);
	b[n > 0 ? n : 0] = 0;
	if ((q = strstr(b, "\nTgid:")))
		tgid = atol(q + 6);
	*up = tgid && tgid != tid ? tgid : ppid;
	return 0;
}

static struct ent *find(pid_t tid, unsigned long long start)
{
	for (int i = 0; i < ntab; i++)
		if (tab[i].tid == tid) {
			if (tab[i].start == start)
				return &tab[i];
			tab[i] = tab[--ntab];
			i--;
		}
	return NULL;
}

static uint64_t *get(pid_t tid)
{
	unsigned long long st;
	pid_t up;
	struct ent *e;

	for (int hops = 0; tid > 1 && hops < 64; hops++, tid = up) {
		if (info(tid, &st, &up) < 0)
			break;
		if ((e = find(tid, st)))
			return e->mask;
	}
	return full;
}

static void put(pid_t tid, uint64_t *m)
{
	unsigned long long st;
	pid_t up;
	struct ent *e;

	if (info(tid, &st, &up) < 0)
		return;
	if (!(e = find(tid, st))) {
		if (ntab == cap)
			tab = realloc(tab, (cap = cap ? cap * 2 : 256) * sizeof(*tab));
		e = &tab[ntab++];
		e->tid = tid;
		e->start = st;
	}
	memcpy(e->mask, m, sizeof(e->mask));
}

static void answer(int fd)
{
	struct seccomp_notif rq = { 0 };
	struct seccomp_notif_resp rs = { 0 };
	uint64_t m[WORDS] = { 0 };
	struct iovec l = { m, 0 }, r = { 0, 0 };

	if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &rq) < 0)
		return;
	rs.id = rq.id;
	/* the tid argument is in the caller's pid namespace; 0 is itself (the usual
	 * case) */
	pid_t tid = rq.data.args[0] ? (pid_t)rq.data.args[0] : (pid_t)rq.pid;
	size_t len = rq.data.args[1];
	r.iov_base = (void *)rq.data.args[2];
	if (rq.data.nr == __NR_sched_setaffinity) {
		r.iov_len = l.iov_len = len < sizeof(m) ? len : sizeof(m);
		if (process_vm_readv(rq.pid, &l, 1, &r, 1, 0) < 0)
			rs.error = -EFAULT;
		else {
			int any = 0;
			for (int i = 0; i < WORDS; i++) {
				m[i] &= full[i];
				any |= m[i] != 0;
			}
			if (any)
				put(tid, m);
			else
				rs.error = -EINVAL;
		}
	} else {
		if (len * 8 < (size_t)ncpu || (len & 7))
			rs.error = -EINVAL;
		else {
			uint64_t *g = get(tid);
			memcpy(m, g, sizeof(m));
			r.iov_len = l.iov_len = bytes;
			if (process_vm_writev(rq.pid, &l, 1, &r, 1, 0) < 0)
				rs.error = -EFAULT;
			else
				rs.val = bytes;
		}
	}
	ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &rs);
}

/* Put this process under the filter, hand its listener to the parent over S, and exec.
 */
static void run(int s, char **argv)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sched_setaffinity, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sched_getaffinity, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 5, f };
	char c[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec io = { &byte, 1 };
	struct msghdr mh = { .msg_iov = &io,
			     .msg_iovlen = 1,
			     .msg_control = c,
			     .msg_controllen = sizeof c };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
	int fd;

	/* root keeps setuid programs working */
	prctl(PR_SET_NO_NEW_PRIVS, geteuid() ? 1 : 0, 0, 0, 0);
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		     SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
	if (fd < 0) {
		perror("seccomp");
		_exit(126);
	}
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof fd);
	sendmsg(s, &mh, 0);
	close(fd);
	execvp(argv[0], argv);
	perror(argv[0]);
	_exit(127);
}

static int receive(int s)
{
	char c[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec io = { &byte, 1 };
	struct msghdr mh = { .msg_iov = &io,
			     .msg_iovlen = 1,
			     .msg_control = c,
			     .msg_controllen = sizeof c };
	int fd;

	if (recvmsg(s, &mh, 0) != 1)
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&mh)), sizeof fd);
	return fd;
}

/* Answer until no process uses the filter any more. */
static void answer_all(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	while (poll(&p, 1, -1) > 0 && !(p.revents & POLLHUP))
		answer(fd);
}

int main(int argc, char **argv)
{
	int sv[2], fd, st;
	pid_t p;

	if (argc < 3 || (ncpu = atoi(argv[1])) < 1 || ncpu > WORDS * 64)
		return 2;
	bytes = (ncpu + 63) / 64 * 8;
	for (int i = 0; i < ncpu; i++)
		full[i / 64] |= 1ULL << (i % 64);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return 126;
	p = fork();
	if (p == 0)
		run(sv[1], argv + 2);
	close(sv[1]);
	fd = receive(sv[0]);
	if (fd < 0)
		return 126;
	signal(SIGINT, SIG_IGN);
	if (fork() == 0) { /* outlives CMD: its children may be under the filter too */
		prctl(PR_SET_PDEATHSIG, 0);
		answer_all(fd);
		_exit(0);
	}
	close(fd);
	while (waitpid(p, &st, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}
