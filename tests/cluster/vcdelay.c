/* vcdelay NETNS MS [JITTER_MS [MATCH]]: hold every packet that eth0 receives for MS, or
 * those that iptables' MATCH says.
 * Not every kernel has netem; this does its delay with NFQUEUE: an iptables
 * rule in NETNS queues the packets, this process gives the verdict when due.  FIFO, so
 * jitter never reorders.  On input, not output: a packet held on output still counts
 * against its socket (TCP small queues) and TCP crawls at 3 Mbit/s.  The rule has
 * "bypass": when this process dies, packets flow again at once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <libnetfilter_queue/libnetfilter_queue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CAP 65536
static struct {
	uint32_t id;
	int64_t due;
} q[CAP];
static unsigned head, tail;
static int64_t delay_ns, jitter_ns, last;
static volatile sig_atomic_t stop;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int cb(struct nfq_q_handle *h, struct nfgenmsg *m, struct nfq_data *d, void *u)
{
	struct nfqnl_msg_packet_hdr *p = nfq_get_msg_packet_hdr(d);
	int64_t due = now() + delay_ns;

	(void)m;
	(void)u;
	if (jitter_ns)
		due += (random() / (double)RAND_MAX * 2 - 1) * jitter_ns;
	if (due < last)
		due = last;
	last = due;
	if (tail - head == CAP) {
		nfq_set_verdict(h, ntohl(p->packet_id), NF_DROP, 0, NULL);
		return 0;
	}
	q[tail % CAP].id = ntohl(p->packet_id);
	q[tail % CAP].due = due;
	tail++;
	return 0;
}

static void on(int s)
{
	(void)s;
	stop = 1;
}

/* Our queue of the packets that NETNS receives; its socket in *FD. */
static struct nfq_q_handle *open_queue(struct nfq_handle **h, int *fd)
{
	const int one = 1;
	struct nfq_q_handle *qh;

	*h = nfq_open();
	qh = *h ? nfq_create_queue(*h, 0, cb, NULL) : NULL;
	if (!qh || nfq_set_mode(qh, NFQNL_COPY_META, 64) < 0)
		return NULL;
	nfq_set_queue_maxlen(qh, CAP);
	nfq_set_queue_flags(qh, NFQA_CFG_F_GSO, NFQA_CFG_F_GSO);
	nfnl_rcvbufsiz(nfq_nfnlh(*h), 8 << 20);
	*fd = nfq_fd(*h);
	setsockopt(*fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &one, sizeof one);
	return qh;
}

static void release(struct nfq_q_handle *qh, int all)
{
	while (head != tail && (all || q[head % CAP].due <= now()))
		nfq_set_verdict(qh, q[head++ % CAP].id, NF_ACCEPT, 0, NULL);
}

static void serve(struct nfq_handle *h, struct nfq_q_handle *qh, int fd)
{
	char buf[65536] __attribute__((aligned));

	while (!stop) {
		struct pollfd p = { fd, POLLIN, 0 };
		struct timespec ts, *tp = NULL;
		int64_t w;
		int n;

		release(qh, 0);
		if (head != tail) {
			w = q[head % CAP].due - now();
			w = w < 0 ? 0 : w;
			ts = (struct timespec){ w / 1000000000, w % 1000000000 };
			tp = &ts;
		}
		if (ppoll(&p, 1, tp, NULL) > 0 &&
		    (n = recv(fd, buf, sizeof buf, MSG_DONTWAIT)) > 0)
			nfq_handle_packet(h, buf, n);
	}
}

/* The rule that queues packets: ACTION is -A or -D. */
static int rule(const char *action, const char *match)
{
	char line[512];

	snprintf(line, sizeof line,
		 "iptables %s INPUT -i eth0 %s -j NFQUEUE --queue-num 0 --queue-bypass",
		 action, match);
	return system(line);
}

int main(int argc, char **argv)
{
	const char *match = argc > 4 ? argv[4] : "";
	struct nfq_handle *h;
	struct nfq_q_handle *qh;
	char path[256];
	int fd;

	if (argc < 3)
		return 2;
	delay_ns = atof(argv[2]) * 1e6;
	jitter_ns = argc > 3 ? atof(argv[3]) * 1e6 : 0;
	snprintf(path, sizeof path, "/run/netns/%s", argv[1]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
		perror(path);
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1000UL);
	if (nice(-20) == -1) /* a busy machine must not delay more than was asked for */
		perror("nice");
	qh = open_queue(&h, &fd);
	if (!qh) {
		perror("nfqueue");
		return 1;
	}
	/* not nft: not every kernel has its "queue" statement; the xtables target is
	 * there */
	if (rule("-A", match))
		return 1;
	signal(SIGTERM, on);
	signal(SIGINT, on);
	serve(h, qh, fd);
	if (rule("-D", match))
		return 1;
	release(qh, 1);
	return 0;
}
