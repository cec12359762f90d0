// Package userns gives pods ranges of user and group IDs of the host: what "hostUsers: false" needs.
//
// Contract: a range belongs to one pod from Range to Release; no two overlap, and none reaches below the first ID that
// pods may have (so never the host's own users). A range is on disk, synced, before anybody learns of it, in the pod's
// directory, in the file and format that Kubernetes' own kubelet uses: <root>/pods/<uid>/userns. An agent that is
// started again finds it there with Load. While one such file cannot be read no new range is given: it might be taken.
//
// All methods may be called concurrently. They read and write small files.
package userns
