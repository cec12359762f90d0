// Package claims decides whether a pod may use the persistent volume behind one of its volumes: a claim (persistentVolumeClaim) or
// a generic ephemeral volume, whose claim the control plane makes.
//
// Contract: the caller reads the claim, checks it with Check, reads the volume that Check names, and checks that with CheckVolume.
// Each error says in one line what is missing or wrong and what ends the wait. The caller asks again later, because a claim may be
// bound, or a new claim may take the place of a deleted one. The package does no IO.
//
// Invariants:
//  1. A pod never uses a persistent volume unless its claim names the volume and the volume names the claim, by name and UID.
//  2. A pod never uses the claim of a generic ephemeral volume that belongs to another pod.
//  3. A volume is never used on a node that its node affinity excludes.
package claims
