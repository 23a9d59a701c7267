/* libfork.so - preloaded into an agent under an emulator: does without what that lacks.
 *
 * valgrind and qemu-user have no children on our memory: clone() is fork().  What such
 * a child reports there is lost: one whose exec fails has started, and ended with 125.
 * qemu-user has no subreapers: that is all right where nobody is orphaned. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The ranks may be of another machine.  The emulator itself passes it on. */
__attribute__((constructor)) static void begin(void)
{
	if (!strncmp(program_invocation_short_name, "berth-agent", 11))
		unsetenv("LD_PRELOAD");
}

int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	pid_t pid = fork();

	(void)stack;
	(void)flags;
	if (!pid)
		_exit(fn(arg));
	return pid;
}

int prctl(int option, ...)
{
	long arg;
	va_list ap;
	int rc;

	va_start(ap, option);
	arg = va_arg(ap, long);
	va_end(ap);
	rc = (int)syscall(SYS_prctl, option, arg, 0L, 0L, 0L);
	return rc && option == PR_SET_CHILD_SUBREAPER && errno == EINVAL ? 0 : rc;
}
