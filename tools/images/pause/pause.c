/* What runs in a pod's sandbox: it holds the namespaces, reaps orphans when it is process 1 of a shared PID
 * namespace, and ends on SIGTERM or SIGINT. In C because there is one per pod: 100 of them cost less than one in Go. */
#include <signal.h>
#include <string.h>
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

int main(int argc, char **argv) {
	struct sigaction a = {0};
	/* With -v it says what it is and ends: kubeadm upgrade runs that as a Job, to see whether pods run. */
	if (argc > 1 && strcmp(argv[1], "-v") == 0)
		return write(STDOUT_FILENO, "pause\n", 6) != 6;
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
