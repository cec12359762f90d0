// Package checkpoint keeps what the decisions about a pod must remember across agents: one small file per pod,
// beside the pod's volumes, replaced atomically.
//
// Contract: nothing that only lives here is load-bearing beyond what package decide marks as kept. A file that
// cannot be read is an error once and no reason to stop anything; a full disk loses no older checkpoint.
package checkpoint
