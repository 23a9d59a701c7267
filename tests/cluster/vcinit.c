/* vcinit: turn a network namespace made by "ip netns add" into a small host.
 *
 *   vcinit NAME STATEDIR NETNS INDEX
 *
 * Makes new mount, UTS, IPC, PID and cgroup namespaces, an overlay root whose
 * upper layer is a tmpfs in memory, private /dev /dev/shm /tmp /run /proc
 * /sys, binds STATEDIR/etc-style files in, brings up lo and eth*, starts sshd
 * and then reaps.  Prints the pid of the new init (as seen by the caller).
 * When that pid is killed, the kernel kills the whole host and every mount
 * made here goes with it: nothing is left in the caller's namespaces. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name;

static void die(const char *fmt, ...)
{
	va_list ap;
	int e = errno;

	fprintf(stderr, "vcinit %s: ", name ? name : "?");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, ": %s\n", strerror(e));
	_exit(1);
}

static char *fmt(const char *f, ...)
{
	static char ring[8][1024];
	static int i;
	char *b = ring[i++ & 7];
	va_list ap;

	va_start(ap, f);
	vsnprintf(b, sizeof(ring[0]), f, ap);
	va_end(ap);
	return b;
}

static void mnt(const char *src, const char *dst, const char *type, unsigned long flags,
		const char *data)
{
	if (mount(src, dst, type, flags, data) < 0)
		die("mount %s on %s (%s)", src, dst, type ? type : "bind");
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die("write %s", path);
	close(fd);
}

static void node(const char *path, int maj, int min, mode_t mode)
{
	if (mknod(path, S_IFCHR | mode, makedev(maj, min)) < 0)
		die("mknod %s", path);
	chmod(path, mode);
}

/* lo up; addresses and link state of eth* are set here as well, because one
 * ioctl costs microseconds and one "ip" process milliseconds. */
static void ifup(int s, const char *dev)
{
	struct ifreq r = { 0 };

	strncpy(r.ifr_name, dev, IFNAMSIZ - 1);
	if (ioctl(s, SIOCGIFFLAGS, &r) < 0)
		die("flags of %s", dev);
	r.ifr_flags |= IFF_UP;
	if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
		die("up %s", dev);
}

static void ifaddr(int s, const char *dev, const char *ip, const char *mask)
{
	struct ifreq r = { 0 };
	struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;

	strncpy(r.ifr_name, dev, IFNAMSIZ - 1);
	a->sin_family = AF_INET;
	inet_pton(AF_INET, ip, &a->sin_addr);
	if (ioctl(s, SIOCSIFADDR, &r) < 0)
		die("address of %s", dev);
	inet_pton(AF_INET, mask, &a->sin_addr);
	if (ioctl(s, SIOCSIFNETMASK, &r) < 0)
		die("netmask of %s", dev);
}

static void net(int idx)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int k;

	ifup(s, "lo");
	for (k = 0; k < 4; k++) {
		char *dev = fmt("eth%d", k);

		if (!if_nametoindex(dev))
			break;
		/* n0 is 10.77.255.254; nK is 10.77.(K-1)/250.(K-1)%250+1 */
		ifaddr(s, dev,
		       idx ? fmt("10.%d.%d.%d", 77 + k, (idx - 1) / 250,
				 (idx - 1) % 250 + 1)
			   : fmt("10.%d.255.254", 77 + k),
		       "255.255.0.0");
		ifup(s, dev);
	}
	close(s);
}

/* VC_CGROUPS: "v1" for a host without version 2, "none" for one whose cgroups are
 * read-only, as in a container. */
static void cgroup(const char *root, const char *name, const char *type,
		   const char *data)
{
	const char *want = getenv("VC_CGROUPS");
	char *d = fmt("%s/sys/fs/cgroup/%s", root, name);

	if (want && !strcmp(want, "v1") && !strcmp(type, "cgroup2"))
		return;
	mkdir(d, 0755);
	if (mount(type, d, type, 0, data) < 0)
		rmdir(d);
	else if (want && !strcmp(want, "none"))
		mnt(NULL, d, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
}

static void cgroups(const char *root)
{
	static const char *v1[] = { "cpu",     "cpuacct", "cpuset", "memory",
				    "devices", "freezer", "blkio",  "pids" };

	mnt("tmpfs", fmt("%s/sys/fs/cgroup", root), "tmpfs", MS_NOSUID, "mode=755");
	for (size_t i = 0; i < sizeof v1 / sizeof *v1; i++)
		cgroup(root, v1[i], "cgroup", v1[i]);
	cgroup(root, "systemd", "cgroup", "none,name=systemd");
	cgroup(root, "unified", "cgroup2", NULL);
}

static pid_t start(char *const argv[], int nullout)
{
	pid_t p = fork();

	if (p == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (nullout) {
			int fd = open("/var/log/vc.log", O_WRONLY | O_CREAT | O_APPEND,
				      0644);

			dup2(fd, 1);
			dup2(fd, 2);
		}
		execv(argv[0], argv);
		_exit(127);
	}
	return p;
}

/* The host's root: this machine's files below, what the host writes above, in memory.
 */
static char *make_root(const char *state)
{
	char *own = strdup(fmt("%s/hosts/%s", state, name)), *root;

	mnt("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	mnt("tmpfs", own, "tmpfs", 0, "mode=755,size=2g");
	mkdir(fmt("%s/up", own), 0755);
	mkdir(fmt("%s/wk", own), 0755);
	mkdir(fmt("%s/root", own), 0755);
	root = strdup(fmt("%s/root", own));
	mnt("overlay", root, "overlay", 0,
	    fmt("lowerdir=/,upperdir=%s/up,workdir=%s/wk", own, own));
	free(own);
	return root;
}

static void devices(const char *root)
{
	static const struct {
		const char *name;
		int major, minor;
	} nodes[] = { { "null", 1, 3 },   { "zero", 1, 5 },    { "full", 1, 7 },
		      { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };
	static const char *const links[][2] = { { "pts/ptmx", "ptmx" },
						{ "/proc/self/fd", "fd" },
						{ "fd/0", "stdin" },
						{ "fd/1", "stdout" },
						{ "fd/2", "stderr" } };

	mkdir(fmt("%s/dev/shm", root), 01777);
	mkdir(fmt("%s/dev/pts", root), 0755);
	mkdir(fmt("%s/dev/mqueue", root), 01777);
	mnt("tmpfs", fmt("%s/dev/shm", root), "tmpfs", MS_NOSUID | MS_NODEV,
	    "mode=1777");
	mnt("devpts", fmt("%s/dev/pts", root), "devpts", 0,
	    "newinstance,ptmxmode=0666,mode=620");
	mnt("mqueue", fmt("%s/dev/mqueue", root), "mqueue", 0, NULL);
	umask(0);
	for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
		node(fmt("%s/dev/%s", root, nodes[i].name), nodes[i].major,
		     nodes[i].minor, 0666);
	umask(022);
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		if (symlink(links[i][0], fmt("%s/dev/%s", root, links[i][1])) < 0)
			die("symlink %s", links[i][1]);
}

static void make_folders(const char *root, const char *path)
{
	for (const char *p = path + 1; (p = strchr(p, '/')); p++)
		mkdir(fmt("%s%.*s", root, (int)(p - path), path), 0755);
	mkdir(fmt("%s%s", root, path), 0755);
}

static void mount_all(const char *root, const char *state)
{
	const char *share = getenv("VC_SHARE");

	mnt("tmpfs", fmt("%s/tmp", root), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	mnt("tmpfs", fmt("%s/run", root), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
	mnt("tmpfs", fmt("%s/dev", root), "tmpfs", MS_NOSUID, "mode=755,size=1m");
	mnt("proc", fmt("%s/proc", root), "proc", 0, NULL);
	mnt("sysfs", fmt("%s/sys", root), "sysfs", 0, NULL);
	cgroups(root);
	devices(root);

	/* shared, as from a file server; last, for it may lie in /home or /tmp */
	mnt(fmt("%s/home", state), fmt("%s/home", root), NULL, MS_BIND, NULL);
	mkdir(fmt("%s/vc", root), 0755);
	mnt(state, fmt("%s/vc", root), NULL, MS_BIND, NULL);
	if (share) {
		make_folders(root, share);
		mnt(share, fmt("%s%s", root, share), NULL, MS_BIND, NULL);
	}
}

static void enter(const char *root)
{
	if (chdir(root) < 0)
		die("chdir");
	mkdir("tmp/.old", 0700);
	if (syscall(SYS_pivot_root, ".", "tmp/.old") < 0)
		die("pivot_root");
	if (chdir("/") < 0 || umount2("/tmp/.old", MNT_DETACH) < 0)
		die("umount old root");
	rmdir("/tmp/.old");
}

/* Names, users, keys, sshd_config: plain files prepared once. */
static void run_rc(void)
{
	char *rc[] = { "/bin/sh", "/vc/rc", (char *)name, NULL };
	int st;

	put("/etc/hostname", fmt("%s\n", name));
	mkdir("/run/sshd", 0755);
	mkdir("/run/lock", 01777);
	waitpid(start(rc, 1), &st, 0);
	if (st)
		fprintf(stderr, "vcinit %s: rc status %#x\n", name, st);
}

static pid_t start_sshd(void)
{
	char ncpu[16] = "";
	char *argv[] = { "/vc/fakecpus", ncpu, "/usr/sbin/sshd",          "-D",
			 "-e",           "-f", "/etc/ssh/vc_sshd_config", NULL };
	int fd = open("/vc/fake", O_RDONLY);

	if (fd < 0)
		return start(argv + 2, 1);
	if (read(fd, ncpu, sizeof(ncpu) - 1) < 0)
		die("/vc/fake");
	ncpu[strcspn(ncpu, "\n")] = 0;
	close(fd);
	return start(argv, 1);
}

/* Ready when port 22 is bound: /proc/net/tcp then has :0016 in state 0A. */
static void wait_for_sshd(pid_t ssh)
{
	int st;

	for (int i = 0; i < 2000; i++) {
		char buf[8192];
		int t = open("/proc/net/tcp", O_RDONLY);
		ssize_t n = read(t, buf, sizeof(buf) - 1);

		close(t);
		buf[n > 0 ? n : 0] = 0;
		if (strstr(buf, ":0016 00000000:0000 0A"))
			return;
		if (waitpid(ssh, &st, WNOHANG) == ssh) {
			fprintf(stderr, "vcinit %s: sshd left with %#x\n", name, st);
			return;
		}
		usleep(5000);
	}
}

static int init(const char *state, int idx, int ready)
{
	char *root;
	pid_t ssh;
	int fd, st;

	if (sethostname(name, strlen(name)) < 0)
		die("sethostname");
	root = make_root(state);
	mount_all(root, state);
	enter(root);
	free(root);
	net(idx);
	run_rc();
	ssh = start_sshd();
	wait_for_sshd(ssh);
	if (write(ready, "1", 1) != 1)
		_exit(1);
	close(ready);
	fd = open("/dev/null", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(fd, i);
	for (;;) {
		pid_t d = wait(&st);

		if (d < 0) /* sshd was stopped: no child, until orphans come */
			usleep(20000);
		if (d == ssh && WIFSIGNALED(st) && access("/run/no-sshd", F_OK) < 0)
			ssh = start_sshd(); /* as systemd would */
	}
}

int main(int argc, char **argv)
{
	int pfd[2], nfd, idx;
	pid_t p;
	char c;

	if (argc != 5)
		return 2;
	close_range(3, ~0U, 0); /* a host must not hold its caller's pipes open */
	name = argv[1];
	idx = atoi(argv[4]);
	nfd = open(fmt("/run/netns/%s", argv[3]), O_RDONLY | O_CLOEXEC);
	if (nfd < 0 || setns(nfd, CLONE_NEWNET) < 0)
		die("setns %s", argv[3]);
	if (pipe(pfd) < 0)
		die("pipe");
	setsid();
	if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID |
		    CLONE_NEWCGROUP) < 0)
		die("unshare");
	p = fork();
	if (p < 0)
		die("fork");
	if (p == 0) {
		close(pfd[0]);
		fcntl(pfd[1], F_SETFD, FD_CLOEXEC);
		init(argv[2], idx, pfd[1]);
		_exit(0);
	}
	close(pfd[1]);
	if (read(pfd[0], &c, 1) != 1) {
		errno = ECHILD;
		die("init did not come up");
	}
	printf("%s %d\n", name, (int)p);
	return 0;
}
