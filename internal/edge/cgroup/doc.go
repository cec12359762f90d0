// Package cgroup keeps the control groups above containers: the pods' root, one group per quality of service
// class, one per pod; and their limits. What they use is read by internal/edge/stats.
//
// The tree, below Config.Root:
//
//	kubepods                          limits: node allocatable       kubepods.slice
//	├── pod<uid>                      guaranteed                     ├── kubepods-pod<uid>.slice
//	├── burstable                     shares: sum of its pods        ├── kubepods-burstable.slice
//	│   └── pod<uid>                                                 │   └── kubepods-burstable-pod<uid>.slice
//	└── besteffort                    shares: 2, the least           └── kubepods-besteffort.slice
//
// The left is the cgroupfs driver's, the right the systemd driver's. Containers' own groups below a pod's are the
// runtime's: here they are only read, and an empty one that is left over is removed with its pod.
//
// Contract: New does no IO. Every method may be called from any goroutine; calls for one pod must not overlap,
// calls for different pods may. EnsurePod and SetUpNode are idempotent and set limits again each time. Only
// RemovePod kills: what remains in a pod's group when its containers have ended. Nothing is mounted, and no controller is
// moved between hierarchies: what the machine has mounted is used, v1, v1 beside an empty v2 ("hybrid"), or v2.
// Nothing polls.
package cgroup
