package differ

// Decisions are the classes of intended differences, each with the exact text of the class. If a case shows a class of roots.go, its
// other differences are hidden. The file is long because it is one table.
var Decisions = []Decision{
	{
		Class:  `config of a container: annotations.wherry.dev/spec-hash: upstream "", Wherry "1-ID"`,
		Why:    "The annotation shows an agent after a restart whether a container still matches the pod's spec. Wherry also writes upstream's annotation io.kubernetes.container.hash.",
		Notice: "The output of crictl inspect has one more annotation.",
	},
	{
		Class:  `config of a container: mounts[].selinuxRelabel: upstream "", Wherry "true"`,
		Why:    "A runtime relabels a mount only where SELinux is on. Upstream's kubelet checks itself whether SELinux is on and requests relabelling only then; Wherry leaves the check to the runtime.",
		Notice: "Nothing.",
		Where:  "without SELinux",
	},
	{
		Class:  `config of a container: linux.resources.hugepageLimits[].pageSize: upstream "2MB", Wherry ""`,
		Why:    "Without the hugetlb controller a runtime cannot limit huge pages. With that controller, both agents set the limit of page sizes that the pod does not request to zero.",
		Notice: "Nothing.",
		Where:  "without the hugetlb controller",
	},
	{
		Class:  `config of a container: linux.resources.hugepageLimits[].pageSize: upstream "1GB", Wherry ""`,
		Why:    "As for pages of 2 MB.",
		Notice: "Nothing.",
		Where:  "without the hugetlb controller, with pages of 1 GB",
	},
	{
		Class:  `config of a container of a static pod: linux.resources.oomScoreAdj: upstream "999", Wherry "-997"`,
		Why:    `"Kubelet considers all static pods as critical" (kubernetes#80491): a static pod that names no priority class has system-node-critical here, and "the kubelet sets an oom_score_adj value of -997 for any containers in Pods that have system-node-critical Priority". Upstream's kubelet treats the pod as critical but leaves the class empty, so the scheduler may try in vain to preempt the mirror (kubernetes#133535).`,
		Notice: "A static pod without a class is among the last that the kernel kills when memory runs out. Its mirror has the class system-node-critical.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings in order: upstream "", Wherry "8080 53"`,
		Why:    "A sidecar \"will start and remain running during the entire life of the Pod\", so its ports are ports of the pod, and its hostPort must work. Upstream's kubelet sends only the ports of main containers to the runtime.",
		Notice: "The hostPort of a sidecar works.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings in order: upstream "8080 53", Wherry "8080 53 8080 53"`,
		Why:    "The same ports, field by field.",
		Notice: "As above.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings in order: upstream "8080 53 8080 53", Wherry "8080 53 8080 53 8080 53"`,
		Why:    "The same ports, of a pod with two main containers.",
		Notice: "As above.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings[].containerPort: upstream "", Wherry "53"`,
		Why:    "The same ports, field by field.",
		Notice: "As above.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings[].containerPort: upstream "", Wherry "8080"`,
		Why:    "The same ports, field by field.",
		Notice: "As above.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings[].protocol: upstream "", Wherry "UDP"`,
		Why:    "The same ports, field by field.",
		Notice: "As above.",
	},
	{
		Class:  `message of event Warning FailedPreStopHook: Wherry says more`,
		Why:    "The message begins with upstream's text. Upstream's kubelet does not show the output of the hook to users; Wherry adds the first line of its error output, with a bounded length.",
		Notice: "The event says why the hook failed.",
	},
	{
		Class:  `message of event Warning FailedPostStartHook: Wherry says more`,
		Why:    "As for preStop hooks.",
		Notice: "The event says why the hook failed.",
	},
	{
		Class:  `time of StartContainer of main#2 after an exit, which followed a stop: Wherry is later`,
		Why:    `As after two stops: upstream's kubelet does not count the first restart, because it followed a stop.`,
		Notice: "A container that fails its liveness probe and then exits soon after its start waits 10 s before its second restart.",
	},
	{
		Class:  `time of StartContainer of main#2 after a stop: Wherry is later`,
		Why:    `"The kubelet restarts containers with an exponential back-off delay (10s, 20s, 40s, …)". Upstream's kubelet kills a container that fails its liveness or startup probe and starts it again in one step, before it knows that the container has ended, so the second restart does not wait.`,
		Notice: "A container that fails its liveness probe soon after each start waits 10 s before its second restart, like a container that exits.",
	},
	{
		Class:  `time of StartContainer of main#3 after a stop: Wherry is later`,
		Why:    `As for the second restart. The first restart has no delay, whatever caused it: the loss of the sandbox, or the change of an image before that.`,
		Notice: "As above.",
	},
	{
		Class:  `time of StartContainer of main after a failed start, whose definition is changed: upstream is later`,
		Why:    `"The kubelet restarts containers with an exponential back-off delay": the first start with a changed definition is not a restart. Upstream's kubelet counts it as one, so the first real restart already waits 10 s.`,
		Notice: "After kubectl set image, or a resize, the first restart comes at once, as in a new pod.",
	},
	{
		Class:  `calls of main, which fails a probe with a grace period of its own: only upstream has ["stop(5)"], only Wherry has ["stop(3)"]`,
		Why:    `"When both a pod- and probe-level terminationGracePeriodSeconds are set, the kubelet will use the probe-level value." If no container is left to run after the failure, upstream's kubelet ends the whole pod and uses the pod's value.`,
		Notice: "The grace period of the probe also applies to the last container of a pod.",
	},
	{
		Class:  `calls of main, which fails a probe with a grace period of its own: only upstream has ["stop(8)"], only Wherry has ["stop(3)"]`,
		Why:    "As for a grace period of 5 s.",
		Notice: "The same.",
	},
	{
		Class:  `calls of main, which fails a probe with a grace period of its own: a hook leaves the rest of it only to Wherry`,
		Why:    "As above, for a container whose preStop hook took a part of the grace period.",
		Notice: "The same.",
	},
	{
		Class:  classHookFailsInEnd,
		Why:    `A deletion's gracePeriodSeconds is "the duration in seconds before the object should be deleted". Upstream's kubelet lets the hook run on after the deletion and, when it fails, stops the container with the terminationGracePeriodSeconds of the pod. Wherry cuts the hook short.`,
		Notice: "kubectl delete --grace-period also holds for a container whose postStart hook fails meanwhile.",
	},
	{
		Class:  `message of event Normal Killing spec.containers{main}: upstream "Stopping container main", Wherry "Container main failed liveness probe"`,
		Why:    "Upstream's kubelet ends the whole pod where nothing is left to run after the failure, and no longer says for what.",
		Notice: "The event says which probe failed, as it does of every other container.",
	},
	{
		Class:  `message of event Normal Killing spec.containers{main}: upstream "Stopping container main", Wherry "Container main failed startup probe"`,
		Why:    "Upstream's kubelet ends the whole pod where nothing is left to run after the failure, and no longer says for what.",
		Notice: "The event says which probe failed, as it does of every other container.",
	},
	{
		Class:  `time of StopContainer of main#0, in a pod with a postStart hook: upstream is later`,
		Why:    `"As soon as the kubelet sees that a Pod has been marked as terminating because a graceful deletion duration has been set, the kubelet begins the local Pod shutdown process." Upstream's kubelet waits for a postStart hook in the pod's only routine, so a deletion, a deadline or a failed probe of another container has to wait until the hook has ended.`,
		Notice: "A pod whose postStart hook hangs can be deleted: its containers get their grace period at once, and the hook is cut short.",
	},
	{
		Class:  `states of init: only Wherry has ["waiting CrashLoopBackOff"]`,
		Why:    `"CrashLoopBackOff indicates that the back-off delay mechanism is currently in effect for a given container." Upstream's kubelet reports the wait only when it looks at the pod again, which may be when the wait is over. If nothing else happens in the pod, the init container is shown as terminated until then.`,
		Notice: "kubectl get pods shows Init:CrashLoopBackOff as soon as the back-off begins.",
	},
	{
		Class:  `states of main: only Wherry has ["waiting CrashLoopBackOff"]`,
		Why:    "As for init containers: upstream's kubelet reports the wait only when it looks at the pod again.",
		Notice: "kubectl get pods shows CrashLoopBackOff as soon as the back-off begins.",
	},
	{
		Class:  `states of main: only Wherry has ["waiting ImagePullBackOff"]`,
		Why:    `"The BackOff part indicates that Kubernetes will keep trying to pull the image, with an increasing back-off delay." Upstream's kubelet shows the failed pull (ErrImagePull) until it looks at the pod again, although the back-off has begun.`,
		Notice: "kubectl get pods shows ImagePullBackOff as soon as the back-off begins.",
	},
	{
		Class:  `states of sidecar: only Wherry has ["waiting ImagePullBackOff"]`,
		Why:    "As for main containers.",
		Notice: "As above.",
	},
	{
		Class:  `states of init: only Wherry has ["waiting ImagePullBackOff"]`,
		Why:    "As for main containers.",
		Notice: "As above.",
	},
	{
		Class:  classWhileHook,
		Why:    `"Kubernetes' management of the Container blocks until the postStart handler completes": of that container, not of the pod. Upstream's kubelet runs the hook in the pod's only routine, so the end of a sandbox, a deadline, a resize or the restart of another container has to wait for the hook.`,
		Notice: "A slow postStart hook delays only its own container and the containers after it.",
	},
	{
		Class:  classWhileStop,
		Why:    `No documentation says that the restart of one container delays the others. Upstream's kubelet waits in the pod's only routine until the container has ended, up to its whole grace period, and meanwhile starts or stops no other container; a comment in its tests says that this is to change (KEP-4438).`,
		Notice: "While one container takes its grace period to restart, the others are started, restarted and resized as usual.",
	},
	{
		Class:  classEndedStatic,
		Why:    `"The running kubelet periodically scans the configured directory for changes and adds/removes Pods as files appear/disappear in this directory." Upstream's kubelet takes the pod whose manifest comes back for the one that had ended, and does nothing.`,
		Notice: "A manifest that is put back runs, however the pod before it ended.",
	},
	{
		Class:  classOwnPolicy,
		Why:    `A container's own restartPolicy takes the place of the pod's (KEP-5307). Upstream's kubelet considers only the pod's policy when it decides whether to create a new sandbox, so such a container does not run again when its sandbox is lost.`,
		Notice: "A container whose own restartPolicy is Always or OnFailure runs again after its sandbox was lost.",
	},
	{
		Class:  classOwnNever,
		Why:    `As above: the pod's policy is not Never, the container's own is. Upstream's kubelet starts all containers in the new sandbox.`,
		Notice: `A container whose own restartPolicy is Never runs once.`,
	},
	{
		Class:  classStartsInTheEnd,
		Why:    `"As soon as the kubelet sees that a Pod has been marked as terminating because a graceful deletion duration has been set, the kubelet begins the local Pod shutdown process." Upstream's kubelet stops a container that failed its probe and starts it again in one step, even if the pod was deleted in between.`,
		Notice: "Nothing is started in a pod that is being deleted.",
	},
	{
		Class:  classAttemptTwice,
		Why:    `"RestartCount holds the number of times the container has been restarted. Kubelet makes an effort to always increment the value". In a pod that gets a new sandbox, upstream's kubelet restarts the count at 0 for some containers and continues it for others.`,
		Notice: "Restart counts only grow, and each attempt has a log of its own.",
	},
	{
		Class:  classDeadlineAnew,
		Why:    `activeDeadlineSeconds is "relative to StartTime", and a changed manifest is another pod (its UID is that of its content). Upstream's kubelet counts from the start of the earlier pod, and ends the new pod at once.`,
		Notice: "A static pod with a deadline can be changed after the deadline of its old version.",
	},
	{
		Class:  classEndsWithOne,
		Why:    `"Kubelet will delay sending the TERM signal to these sidecar containers until the last main container has fully terminated", and they have the pod's grace period. If no container is left to run after a failed probe, upstream's kubelet ends the whole pod, and the grace period of the sidecars starts with the failure.`,
		Notice: "Sidecars have their whole grace period even if the last main container ends slowly after a failed probe.",
	},
	{
		Class:  classReportedAfterHook,
		Why:    `"Kubernetes' management of the Container blocks until the postStart handler completes": the management of that container. Upstream's kubelet writes the pod's status only when the routine that runs the hook continues.`,
		Notice: "kubectl get pods shows a container as running as soon as it runs, whatever the hook of another one does.",
	},
	{
		Class:  classProbedAfter,
		Why:    `As for its status: upstream's kubelet does not probe a container before it has reported it as running, which it does only when the routine that runs the hook continues.`,
		Notice: `A container is probed as soon as it runs, whatever the hook of another one does.`,
	},
	{
		Class:  `calls of main, resized before its first start: only upstream has ["resize"]`,
		Why:    "Upstream's kubelet starts the container with the size that the pod requested before the kubelet began to wait for another container, and then resizes it.",
		Notice: "A container that is resized before its start starts with its new size.",
	},
	{
		Class:  `calls of main, resized while it restarts: only upstream has ["resize"]`,
		Why:    "Upstream's kubelet starts the next instance with the size that the pod requested when the kubelet began to stop the instance before, and then resizes it.",
		Notice: "A container that is resized while it restarts starts with its new size.",
	},
	{
		Class:  classDebugsInTheEnd,
		Why:    "No documentation says that an ephemeral container cannot start while the pod's last container ends. Upstream's kubelet waits for that end in the pod's only routine, and then the pod is over.",
		Notice: "kubectl debug works until the pod is over.",
	},
	{
		Class:  classSidecarInEnd,
		Why:    `A sidecar "will start and remain running during the entire life of the Pod". If no container is left to run after a failed probe, upstream's kubelet ends the whole pod in one routine, and looks at no sidecar while the last main container uses its grace period.`,
		Notice: `A sidecar is restarted for a main container that still runs, even if that one is ending.`,
	},
	{
		Class:  classReportedAfterStop,
		Why:    "As for a postStart hook: upstream's kubelet writes the pod's status only when the routine that waits for the container's end continues.",
		Notice: "kubectl get pods shows what the other containers do while one takes its grace period to end.",
	},
	{
		Class:  classDeadProbed,
		Why:    `"The kubelet restarts containers with an exponential back-off delay". Upstream's kubelet sees the end of a container up to a second late. If a liveness or startup probe over the network fails in that second, the kubelet stops the container, which has already ended, and counts its next restart as the first. It even restarts a container with restartPolicy OnFailure that has completed.`,
		Notice: "A container that exits again and again waits longer each time, whatever the result of its probes is, and one that has completed is not restarted for a probe that came too late.",
	},
	{
		Class:  classHookForgotten,
		Why:    `"If either a PostStart or PreStop hook fails, it kills the Container." Upstream's kubelet remembers only in memory that the hook failed: if it is restarted while it stops the container, it then shows the container as running and ready.`,
		Notice: "A container whose postStart hook failed ends, even if the agent is restarted meanwhile.",
	},
	{
		Class:  classStopForgotten,
		Why:    `"If the startup probe fails, the kubelet kills the container, and the container is subjected to its restart policy." Upstream's kubelet remembers only in memory that the probe failed. If it is restarted while it stops the container and the probe succeeds meanwhile, or is ended with the pod, it shows the container, which has had its SIGTERM, as running and ready.`,
		Notice: "A container that failed its startup or liveness probe ends, even if the agent is restarted meanwhile.",
	},
	{
		Class:  classHookResent,
		Why:    `"If a kubelet restarts in the middle of sending a hook, the hook might be resent after the kubelet comes back up." Upstream's kubelet takes the hook for one that succeeded, and shows the container as running and ready.`,
		Notice: `A container whose postStart hook fails is restarted, even if the agent was restarted during the hook.`,
	},
	{
		Class:  classStartupAgain,
		Why:    `A startup probe "is only executed at startup, unlike liveness and readiness probes, which are run periodically". Upstream's kubelet forgets that the probe has succeeded, and stops a container that has run for long.`,
		Notice: `A restart of the agent restarts no container whose startup probe fails later.`,
	},
	{
		Class:  classCarriedOver,
		Why:    `"After a probe fails failureThreshold times in a row, Kubernetes considers that the overall check has failed". Upstream's kubelet goes on counting when the container is replaced because it has exited or its image was changed, so one failed check can be enough to kill the new instance.`,
		Notice: "A container that has just started may fail as many checks as its failureThreshold allows.",
	},
	{
		Class:  classChangedInHook,
		Rare:   true,
		Why:    "No documentation says that a change of the image waits for a postStart hook of the old version. Upstream's kubelet waits for the hook in the pod's only routine.",
		Notice: "kubectl set image replaces a container whose postStart hook hangs.",
	},
	{
		Class:  classResizedInHook,
		Why:    `"Kubernetes' management of the Container blocks until the postStart handler completes": what comes after the hook waits, and a resize of what already runs does not. Upstream's kubelet resizes it when the routine that runs the hook comes back, or never if the hook fails.`,
		Notice: "A container with a slow postStart hook can be resized at once.",
	},
	{
		Class:  classOldImageFirst,
		Why:    `As above: the hook holds up its own container. Upstream's kubelet starts the others with the definition that it had when it began the hook, and then stops them for the change.`,
		Notice: "kubectl set image before a container's first start needs no restart.",
	},
	{
		Class:  classDeletedInStop,
		Rare:   true,
		Why:    `"As soon as the kubelet sees that a Pod has been marked as terminating because a graceful deletion duration has been set, the kubelet begins the local Pod shutdown process." Upstream's kubelet first waits for the end of a container that it restarts, and then counts the whole period.`,
		Notice: "A deleted pod is gone after its grace period, also if one of its containers was being restarted.",
	},
	{
		Class:  classNeverAgain,
		Why:    `"Failed: All containers in the Pod have terminated, and at least one container has terminated in failure. That is, the container either exited with non-zero status or was terminated by the system, and is not set for automatic restarting." Nothing of such a pod will run; upstream's kubelet leaves it Pending until somebody deletes it.`,
		Notice: "A Job makes another pod in the place of one whose sandbox was lost.",
	},
	{
		Class:  classMirrorAgain,
		Why:    `"The kubelet automatically tries to create a mirror Pod on the Kubernetes API server for each static Pod", so that it is visible. Upstream's kubelet makes a mirror only in the routine for a pod that runs on, not for one that ends or has ended.`,
		Notice: "The end of a static pod can be seen in the API, also if somebody deleted its mirror.",
	},
	{
		Class:  classRunsByUnknown,
		Rare:   true,
		Why:    `"Pending: The Pod has been accepted by the Kubernetes cluster, but one or more of the containers has not been set up and made ready to run." Upstream's kubelet calls a container that was never made terminated when its static pod ends, and takes it for one that has run in the pod's next life.`,
		Notice: "The mirror of a static pod whose image cannot be pulled is Pending, also after its manifest was put back.",
	},
	{
		Class:  classWaitsForHook,
		Why:    `"The container's status is not set to RUNNING until the postStart handler completes". While the hook runs, upstream's kubelet shows the instance before as running, although it has ended.`,
		Notice: "kubectl get pods does not count a container as ready whose hook is still running.",
	},
	{
		Class:  classAskedInTheEnd,
		Why:    "No container of a pod that ends is restarted, so Wherry stops its liveness and startup probes. Upstream's kubelet 1.36 does not stop those of sidecars; its next version does (kubernetes#141766).",
		Notice: "There is no event about a failed liveness probe in a pod that ends.",
	},
	{
		Class:  classStartsInItsEnd,
		Why:    `As for a probe that fails.`,
		Notice: `Nothing: no container waits for a sidecar of a pod that ends.`,
	},
	{
		Class:  classHookCutShort,
		Why:    `started "is always true when no startupProbe is defined and container is running and has passed the postStart lifecycle hook". Upstream's kubelet lets the hook run to its end before it ends the pod; Wherry ends the pod at once, so the container never passes its hook.`,
		Notice: `A container that is ended during its postStart hook is not shown as started.`,
	},
	{
		Class:  classHearsNobody,
		Why:    `As for the condition ContainersReady while the pod ends: upstream's kubelet reports the ends of the containers only when all have ended, and continues to probe them.`,
		Notice: "A container that has ended is shown as ended.",
	},
	{
		Class:  classPendingAgain,
		Why:    `"Running: The Pod has been bound to a node, and all of the containers have been created." The container was created, and is restarted in the new sandbox. Upstream's kubelet takes it for one that was never created.`,
		Notice: "A pod that was Running is not shown as Pending.",
	},
	{
		Class:  classDeadlineInTheEnd,
		Why:    `activeDeadlineSeconds is "the duration in seconds the pod may be active on the node relative to StartTime before the system will actively try to mark it failed and kill associated containers". A pod that is done, or was deleted, in time is not killed for its deadline; upstream's kubelet says so where it passes while the last containers use their grace period.`,
		Notice: "A Job whose pod was done in time is not failed by a sidecar that takes its time to end.",
	},
	{
		Class:  classFailedAtOnce,
		Why:    `"Failed: All containers in the Pod have terminated, and at least one container has terminated in failure." Both agents keep the phase of a pod of the API until its containers have ended; upstream's kubelet does not find the containers of a static pod by the UID of its mirror, and reports the phase at once.`,
		Notice: "The mirror of a static pod that is out of time is not shown as Failed while its containers use their grace period; its condition Ready says PodFailed at once.",
	},
	{
		Class:  classReadyOutOfTime,
		Why:    "Upstream's kubelet ends the readiness probe of a pod that it has reported as Failed, and takes a container without a result for ready, though it is being stopped.",
		Notice: "A container that fails its readiness probe is not shown as ready while its pod ends for its deadline.",
	},
	{
		Class:  classReadyOfFailed,
		Why:    `As for a pod that is out of time, where the pod has failed because of an init container: upstream's kubelet ends its readiness probes, and takes a container without a result for ready, though it is being stopped.`,
		Notice: `A sidecar that fails its readiness probe is not shown as ready while its failed pod ends.`,
	},
	{
		Class:  classOldAddress,
		Why:    `Upstream's kubelet takes the address for its probes from the status that it has reported, which shows that of the lost sandbox until it looks at the pod again.`,
		Notice: `A container that runs again in a new sandbox is ready as soon as its probe succeeds.`,
	},
	{
		Class:  classOldVersionEnds,
		Why:    "As for the mirror of a removed static pod: the old version is a pod of its own, and its mirror shows its end. Upstream's kubelet tells nobody of it.",
		Notice: "Whoever watches the mirror sees how the old version of a static pod ended.",
	},
	{
		Class:  classWaitsInNextLife,
		Why:    `A waiting container "is still running the operations it requires in order to complete start up", and PodInitializing says that these are the init containers. Upstream's kubelet shows the container of the old version of the pod, which has ended, until that of the new one runs.`,
		Notice: "kubectl get pods shows Init:0/1 for a static pod that has come back, and not Error.",
	},
	{
		Class:  classReadySooner,
		Why:    `"While a container is not Ready, the ReadinessProbe may be executed at times other than the configured periodSeconds interval. This is to make the Pod ready faster." Wherry asks as soon as the container runs, and repeats quickly what must succeed several times (kubernetes#76951); upstream's kubelet asks once in each period, so that the container exits first.`,
		Notice: "A container is ready sooner, also one that runs only for a few seconds.",
	},
	{
		Class:  classHookFailedRuns,
		Why:    `"The container's status is not set to RUNNING until the postStart handler completes": no page says what it is after the hook has failed. The container runs until it has been stopped, which may take its whole grace period. Upstream's kubelet tells of nothing until then; Wherry says that the container runs as soon as no hook of it can complete any more, because the pod ends.`,
		Notice: "While such a pod ends, kubectl get pods does not show that a container waits to be started.",
	},
	{
		Class:  classHookFailsAgain,
		Why:    `"The container's status is not set to RUNNING until the postStart handler completes": no page says what it is meanwhile. Upstream's kubelet repeats that the hook of the instance before failed; Wherry says how that instance ended. The event FailedPostStartHook says the former in both.`,
		Notice: "While a container whose hook failed is started again, its last exit code can be read.",
	},
	{
		Class:  "time of StartContainer of main after an exit, whose definition is changed: upstream is later",
		Why:    "As after a failed start: the first start of a changed definition is no restart of it.",
		Notice: "As above.",
	},
	{
		Class:  `time of StartContainer of main after a stop, whose definition is changed: upstream is later`,
		Why:    `As after a failed start. A failed postStart hook stops the container.`,
		Notice: `As above.`,
	},
	{
		Class:  classShorter,
		Why:    `"On the node, Pods that are set to terminate immediately will still be given a small grace period before being force killed." Upstream's kubelet goes on with the longer period that it began with.`,
		Notice: "kubectl delete --force --grace-period=0 of a pod that is ending ends it within two seconds.",
	},
	{
		Class:  "time of StartContainer of main after an exit, after a restart of the agents: Wherry is later",
		Why:    `"The kubelet restarts containers with an exponential back-off delay (10s, 20s, 40s, …)". Upstream's kubelet forgets the delay when it is restarted itself.`,
		Notice: "A restart of the agent does not restart what waits in its back-off.",
	},
	{
		Class:  "time of StartContainer of main after a stop, after a restart of the agents: Wherry is later",
		Why:    "As after an exit; and as after two stops.",
		Notice: "As above.",
	},
	{
		Class:  `time of StartContainer of main after a failed start, after a restart of the agents: Wherry is later`,
		Why:    `As after an exit.`,
		Notice: `As above.`,
	},
	{
		Class:  "time of StartContainer of init after an exit, after a restart of the agents: Wherry is later",
		Why:    `"The kubelet restarts containers with an exponential back-off delay (10s, 20s, 40s, …)". Upstream's kubelet forgets the delay when it is restarted itself.`,
		Notice: "A restart of the agent does not restart what waits in its back-off.",
	},
	{
		Class:  "last status of the pod, podIPs, after a restart of the agents: upstream \"0\", Wherry \"1\"",
		Why:    "What was reported of a pod that has ended is not taken back. Upstream's kubelet loses its address when it is restarted after the sandbox had ended.",
		Notice: "kubectl get pod -o wide shows the address that an ended pod had.",
	},
	{
		Class:  `last status of the pod, podIPs, after the sandbox was removed: upstream "0", Wherry "1"`,
		Why:    `podIPs "is empty if no IPs have been allocated yet". Upstream's kubelet removes ended sandboxes once a minute. If it does so before it writes the last status of a pod, that status has no address.`,
		Notice: `As above.`,
	},
	{
		Class:  classPullForgotten,
		Why:    "As for the address after a restart of the agents. Upstream's kubelet remembers only in memory why a container waits.",
		Notice: "kubectl get pods shows that the image of an ended pod could not be pulled.",
	},
	{
		Class:  "time of StartContainer of sidecar#0, in the next life of a static pod: upstream is later",
		Why:    "Upstream's kubelet looks again at a pod whose predecessor is ending only after ten seconds or more. No document asks for that wait.",
		Notice: "A static pod whose manifest was changed is back as soon as its old version has ended.",
	},
	{
		Class:  `time of StopContainer of sidecar#0, in the next life of a static pod: upstream is later`,
		Why:    `As for its start: what happens to the container afterwards comes later too.`,
		Notice: `As above.`,
	},
	{
		Class:  "time of StartContainer of init#0, in the next life of a static pod: upstream is later",
		Why:    "As for sidecars.",
		Notice: "As above.",
	},
	{
		Class:  classLostInNextLife,
		Why:    "As for the start of the containers of the next life: upstream's kubelet makes its sandbox ten seconds later or more.",
		Notice: "As above.",
	},
	{
		Class:  "time of StartContainer of main, of a static pod whose manifest comes back: upstream is later",
		Why:    "The pod begins anew, and with it the back-off of its containers. Upstream's kubelet takes the end of the life before for a crash.",
		Notice: "A static pod whose manifest was removed and put back does not wait for what its last life did.",
	},
	{
		Class:  "event Warning BackOff spec.containers{main}, of a static pod whose manifest comes back: upstream one, Wherry none",
		Why:    "As for the time of its start.",
		Notice: "As above.",
	},
	{
		Class:  "event Normal Pulling spec.containers{main}, whose image another container could not get: upstream none, Wherry one",
		Why:    "No page says that one container's failed pull puts off that of another. Upstream's kubelet counts a back-off by pod and image.",
		Notice: "Each container of a pod tells of its own pulls.",
	},
	{
		Class:  `message of event Warning Failed spec.containers{main}, whose image another container could not get: upstream "Error: ImagePullBackOff", Wherry "Failed to pull image \"registry.k8s.io/wherry/missing:1\": rpc error: code = NotFound desc = failed to resolve reference \"registry.k8s.io/wherry/missing:1\": not found"`,
		Why:    "As for the event Pulling.",
		Notice: "The event of each container says why its image could not be pulled.",
	},
	{
		Class:  "event Normal SandboxChanged, of a static pod whose manifest comes back: upstream one, Wherry none",
		Why:    "The pod had ended, and its next life begins with a new sandbox: no sandbox was lost or changed.",
		Notice: "There is no event about a lost sandbox.",
	},
	{
		Class:  `event Normal SandboxChanged, of a static pod whose manifest comes back: upstream several, Wherry one`,
		Why:    `The same, of a pod that had lost a sandbox before.`,
		Notice: `As above.`,
	},
	{
		Class:  `last status of init, lastState: upstream "terminated ContainerStatusUnknown 137 The container could not be located when the pod was terminated", Wherry "none"`,
		Why:    `"LastTerminationState holds the last termination state of the container": of one that was never made there is none. Upstream's kubelet calls it terminated where its static pod ends, and keeps that in the pod's next life.`,
		Notice: "A static pod that comes back has a last state only for containers that ran.",
	},
	{
		Class:  "time of StartContainer of main#0, in the next life of a static pod: upstream is later",
		Why:    "As for sidecars.",
		Notice: "As above.",
	},
	{
		Class:  "last status of main, state: upstream says ContainerStatusUnknown of an end that it had reported, Wherry keeps that end",
		Why:    `A reported end must not get lost. If a container waited for its back-off when the pod ended, upstream's kubelet shows its end as unknown, although it had reported that end.`,
		Notice: "The exit code of the last run stays in the status.",
	},
	{
		Class:  "last status of init, state: upstream says ContainerStatusUnknown of an end that it had reported, Wherry keeps that end",
		Why:    "As for main containers.",
		Notice: "As above.",
	},
	{
		Class:  "last status of main, lastState: upstream has the end there whose place ContainerStatusUnknown took",
		Why:    "As for the state, which is that end here: the end is known, and there was none before it.",
		Notice: "As above.",
	},
	{
		Class:  "last status of main, lastState: upstream repeats the end that is its state, Wherry has the one before",
		Why:    `"LastTerminationState holds the last termination state of the container": it belongs to the instance before the one in the state. If a container waited for its back-off when the pod ended, and the instance before was removed, upstream's kubelet shows the same end twice.`,
		Notice: "kubectl describe shows the last two ends.",
	},
	{
		Class:  `phases while the pod ends: only Wherry has ["Running"]`,
		Why:    `"Running: The Pod has been bound to a node, and all of the containers have been created." If upstream's kubelet started a container shortly before the pod's deletion, it reports that container only when all have ended.`,
		Notice: "A pod whose container runs is not shown as Pending while it ends.",
	},
	{
		Class:  "condition ContainersReady while the pod ends: only Wherry tells of each end at once",
		Why:    `"ContainersReady: all containers in the Pod are ready." Upstream's kubelet reports the ends of the containers of an ending pod only when all have ended.`,
		Notice: "While a pod ends, it is not shown as ready once one of its containers has ended.",
	},
	{
		Class:  `condition Initialized while the pod ends: only Wherry tells of each end at once`,
		Why:    `As for ContainersReady: an init container that exits with 0 in its grace period is done.`,
		Notice: `As above.`,
	},
	{
		Class:  "states of main while the pod ends: only Wherry tells of each end at once",
		Why:    "As for ContainersReady.",
		Notice: "As above.",
	},
	{
		Class:  "states of init while the pod ends: only Wherry tells of each end at once",
		Why:    "As for ContainersReady.",
		Notice: "As above.",
	},
	{
		Class:  "states of sidecar while the pod ends: only Wherry tells of each end at once",
		Why:    "As for ContainersReady.",
		Notice: "As above.",
	},
	{
		Class:  "condition Ready while the pod ends: only Wherry tells of each end at once",
		Why:    "As for ContainersReady.",
		Notice: "As above.",
	},
	{
		Class:  "readiness of main while the pod ends: only Wherry tells of each end at once",
		Why:    "As for ContainersReady: readiness probes continue while a pod ends, and upstream's kubelet reports their results only when all containers have ended.",
		Notice: "As above.",
	},
	{
		Class:  "readiness of sidecar while the pod ends: only Wherry tells of each end at once",
		Why:    "As for main containers.",
		Notice: "As above.",
	},
	{
		Class:  classRunsRemoved,
		Why:    "No document says which phase the mirror of a removed static pod has; upstream gives terminal phases to pods of the API alone (kubernetes#115331). If no container ran, upstream's kubelet does not change the phase; Wherry reports the phase of a pod whose containers have ended and may run again.",
		Notice: "Nothing: the mirror is deleted at once.",
	},
	{
		Class:  `last status of the mirror of a removed static pod, phase: upstream "Pending", Wherry "Failed"`,
		Why:    "The same, of a pod whose containers do not run again.",
		Notice: "As above.",
	},
	{
		Class:  "the mirror of a removed static pod shows how it ended: only Wherry's",
		Why:    `"The kubelet automatically tries to create a mirror Pod on the Kubernetes API server for each static Pod", so that it is visible. Upstream's kubelet may delete the mirror before it has reported the end, so the last visible status shows a running container.`,
		Notice: "Whoever watches the mirror sees how the static pod ended.",
	},
	{
		Class:  "last status of the pod, observedGeneration, changed after its end: only Wherry's is the new one",
		Why:    `"If set, this represents the .metadata.generation that the pod status was set based upon." Upstream's kubelet ignores changes of a pod that has ended, so the generation stays as it was.`,
		Notice: "kubectl wait on observedGeneration returns for a pod that had ended when it was changed.",
	},
	{
		Class:  "last status of main, image, changed after its pod's end: only Wherry's is the new one",
		Why:    "The status of a container that never ran shows the image in the spec. Upstream's kubelet ignores changes of a pod that has ended.",
		Notice: "As above.",
	},
	{
		Class:  `last status of ephemeral, changed after its pod's end: only Wherry has one`,
		Why:    `"The status of ephemeral containers running in this pod" shows what became of each: one that was added to a pod that has ended waits. Upstream's kubelet ignores changes of such a pod.`,
		Notice: `kubectl describe shows that the container was not started.`,
	},
	{
		Class:  "last status of the pod, observedGeneration, deleted after its end: only upstream's is the new one",
		Why:    "Nothing is left to do for the deletion of a pod that has ended: Wherry asks the API server to remove the object. Upstream's kubelet may write one more status before that, with the same content.",
		Notice: "One request less for each pod that had ended before it was deleted.",
	},
	{
		Class:  "event Normal DeadlineExceeded: upstream several, Wherry one",
		Why:    "An event reports that something has happened. Upstream's kubelet repeats this event each time it looks at the pod, until the pod has ended.",
		Notice: "One event for one deadline.",
	},
	{
		Class:  "event Normal DeadlineExceeded: upstream several, Wherry none",
		Why:    "A pod that ends because it was deleted does not end because of its deadline. Upstream's kubelet records the event for every pod that still exists when its deadline passes.",
		Notice: "There is no event about a deadline that changed nothing.",
	},
	{
		Class:  "event Normal DeadlineExceeded: upstream one, Wherry none",
		Why:    "As above.",
		Notice: "As above.",
	},
	{
		Class:  classKillsUnknown,
		Why:    `A sidecar is an init container. When a pod was deleted by force, upstream's kubelet no longer has its spec, and takes each container for a main container.`,
		Notice: `The event of a stopped sidecar names the container as its other events do.`,
	},
	{
		Class:  "event Normal ResizeStarted, of a pod that ends: upstream one, Wherry none",
		Why:    "A pod that ends, or has ended, is not resized. Upstream's kubelet records that a resize starts, and then does nothing.",
		Notice: "There is no event about a resize that is not made.",
	},
	{
		Class:  "event Normal ResizeCompleted, of a pod that ends: upstream one, Wherry none",
		Why:    "As for ResizeStarted.",
		Notice: "As above.",
	},
	{
		Class:  "event Normal ResizeCompleted, of a container that ends: upstream one, Wherry none",
		Rare:   true,
		Why:    "As for ResizeStarted: a container that ends, and does not start again, is not resized.",
		Notice: "As above.",
	},
	{
		Class:  "event Warning Failed spec.containers{main}, in a sandbox that was lost: upstream one, Wherry none",
		Why:    "The runtime has lost the sandbox, so no container starts in it. Upstream's kubelet tries that if it has not looked at the pod since; Wherry first makes a new sandbox.",
		Notice: "There is no event about a start that could not succeed.",
	},
	{
		Class:  "event Warning Failed spec.initContainers{sidecar}, in a sandbox that was lost: upstream one, Wherry none",
		Why:    "As for main containers.",
		Notice: "As above.",
	},
	{
		Class:  "event Normal ResizeCompleted: upstream several, Wherry one",
		Why:    "An event reports that something has happened. Upstream's kubelet may record it once more when it looks at the pod again.",
		Notice: "One event for one resize.",
	},
	{
		Class:  classOldSize,
		Why:    "An event says what has happened. Upstream's kubelet may look at the pod when it has noted a resize and still has the sizes from before, and then takes the resize for done; its code calls that a race.",
		Notice: "The event of a resize gives the new size.",
	},
	{
		Class:  "event Normal BackOff spec.containers{main}: upstream none, Wherry one",
		Why:    "As for the state ImagePullBackOff: the back-off has begun, and upstream's kubelet says so with its next look.",
		Notice: "The event is there as soon as the back-off begins.",
	},
	{
		Class:  "event Warning BackOff spec.containers{main}: upstream none, Wherry one",
		Why:    "As for the state CrashLoopBackOff.",
		Notice: "As above.",
	},
	{
		Class:  "event Normal BackOff spec.initContainers{sidecar}: upstream none, Wherry one",
		Why:    "As for the state ImagePullBackOff: the back-off has begun, and upstream's kubelet says so with its next look.",
		Notice: "The event is there as soon as the back-off begins.",
	},
	{
		Class:  "event Normal BackOff spec.initContainers{init}: upstream none, Wherry one",
		Why:    "As for the state ImagePullBackOff: the back-off has begun, and upstream's kubelet says so with its next look.",
		Notice: "The event is there as soon as the back-off begins.",
	},
	{
		Class:  `last status of the pod, condition ContainersReady: upstream "False ContainersNotReady", Wherry "False PodFailed"`,
		Why:    "The phase is Failed. With upstream's kubelet, too, the reason of a failed pod's condition is PodFailed, unless it changes the phase to Failed because the pod was deleted before its containers had run: then it has computed the conditions before.",
		Notice: "The reason goes with the phase.",
	},
	{
		Class:  `last status of the pod, condition Ready: upstream "False ContainersNotReady", Wherry "False PodFailed"`,
		Why:    "As for ContainersReady.",
		Notice: "The reason goes with the phase.",
	},
}
