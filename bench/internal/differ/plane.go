package differ

import "strings"

// needless lists the controllers that do nothing for the pods of a run: these pods have a node and no owner, Service or claim. Each of them
// would nevertheless receive every change of every pod.
var needless = []string{"clusterrole-aggregation", "cronjob", "daemonset", "deployment", "device-taint-eviction", "disruption", "endpoints", "endpointslice",
	"endpointslice-mirroring", "ephemeral-volume", "garbage-collector", "horizontal-pod-autoscaler", "job", "persistentvolume-attach-detach",
	"persistentvolume-binder", "persistentvolume-expander", "persistentvolume-protection", "persistentvolumeclaim-protection", "podgroup-protection",
	"replicaset", "replicationcontroller", "resourceclaim", "resourcequota", "statefulset", "storage-version-migrator", "ttl-after-finished",
	"validatingadmissionpolicy-status", "volumeattributesclass-protection"}

// passive lists the admission plugins that change and refuse nothing in a run: there are no webhooks, policies, quotas, limits or claims, and
// the namespace allows every pod.
const passive = "LimitRanger,MutatingAdmissionPolicy,MutatingAdmissionWebhook,PodSecurity,ResourceQuota,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook"

// PlaneArgs returns arguments of wherry-controlplane for a run. What they turn off concerns neither the pods nor what the agents tell the API
// server, but would take processor time for each pod.
func PlaneArgs() []string {
	return []string{
		"--controller-manager-arg", "controllers=-" + strings.Join(needless, "-controller,-") + "-controller",
		"--apiserver-arg", "disable-admission-plugins=" + passive,
		// There is no limit of requests in flight, and no queue for them: no client is to wait for another one's turn.
		"--apiserver-arg", "enable-priority-and-fairness=false", "--apiserver-arg", "max-requests-inflight=0", "--apiserver-arg", "max-mutating-requests-inflight=0",
	}
}
