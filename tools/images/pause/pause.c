/* What runs in a pod's sandbox: it holds the namespaces, reaps orphans when it is process 1 of a shared PID
 * namespace, and ends on SIGTERM or SIGINT. In C because there is one per pod: 100 of them cost less than one in Go. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig) {
	(void)sig;
	_exit(0);
}

static void reap(int sig) {
	(void)sig;
	while (waitpid(-1, 0, WNOHANG) > 0) {
	}
}

int main(void) {
	struct sigaction a = {0};
	a.sa_handler = end;
	if (sigaction(SIGINT, &a, 0) != 0 || sigaction(SIGTERM, &a, 0) != 0)
		return 1;
	a.sa_handler = reap;
	a.sa_flags = SA_NOCLDSTOP | SA_RESTART;
	if (sigaction(SIGCHLD, &a, 0) != 0)
		return 2;
	for (;;)
		pause();
}
