// Package cgroup manages the cgroups above containers and their limits: the root of all pods, one cgroup per quality of service
// class, and one per pod. Package internal/edge/stats reads their usage.
//
// The tree, below Config.Root:
//
//	kubepods                          limits: node allocatable       kubepods.slice
//	├── pod<uid>                      guaranteed                     ├── kubepods-pod<uid>.slice
//	├── burstable                     shares: sum of its pods        ├── kubepods-burstable.slice
//	│   └── pod<uid>                                                 │   └── kubepods-burstable-pod<uid>.slice
//	└── besteffort                    shares: 2, the minimum         └── kubepods-besteffort.slice
//
// The left side shows the cgroupfs driver, the right side the systemd driver. The runtime manages the cgroups of containers
// below that of their pod. This package only reads them, and removes leftover empty ones with their pod.
//
// Contract: New does no IO. Every method may be called from any goroutine. Calls for one pod must not overlap; calls for different pods
// may. EnsurePod and SetUpNode are idempotent and set the limits again each time. Only RemovePod kills: processes that remain in a pod's
// cgroup after its containers have ended. The package mounts nothing and moves no controller between hierarchies. It uses the hierarchies
// that the machine has mounted: v1, v1 beside an empty v2 ("hybrid"), or v2. It does not poll.
package cgroup
