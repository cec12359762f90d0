// Package checkpoint keeps what the decisions about a pod must remember across agents: one small file per pod,
// beside the pod's volumes, replaced atomically.
//
// A write does not wait for the disk: several belong to each start of a pod, and each would take 3 ms in place of a half (on
// a plain virtual disk). A power cut may therefore leave an older file, an empty or a torn one. Such a file does not parse:
// Load says so, nothing of it is believed, and the pod goes on as one without a checkpoint.
//
// Contract: nothing that only lives here is load-bearing beyond what package decide marks as kept. A file that
// cannot be read is an error once and no reason to stop anything; a full disk loses no older checkpoint.
package checkpoint
