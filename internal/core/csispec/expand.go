package csispec

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Expansion says what a node has to do so that a mounted volume gets the size of its claim.
type Expansion struct {
	// Do: the node asks the driver to expand the volume to Size. Otherwise, if Size is not 0, the volume has this size already.
	Do   bool
	Size resource.Quantity
	// Begin: the node first writes into the claim's status that the expansion is in progress. Finish: it writes the new size into the
	// claim's status afterwards.
	Begin, Finish bool
}

// notRequired is the annotation of a claim by which the controller says that nodes have nothing to do for the last expansion.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// PlanExpansion compares the size of a volume with its claim. have is the size in bytes that this node knows the volume to have; 0 if the
// node does not know it, because it has just mounted the volume.
//
// status.allocatedResourceStatuses of a claim says whether the controller or the node has to expand the volume: "NodeResizePending ...
// State set when resize controller has finished resizing the volume but further resizing of volume is needed on the node". A controller
// that does not set this field only changes the size of the persistent volume.
func PlanExpansion(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, have int64) Expansion {
	state := claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	target, states := pv.Spec.Capacity[v1.ResourceStorage], false
	if state != "" || claim.Status.AllocatedResources != nil {
		target, states = claim.Status.AllocatedResources[v1.ResourceStorage], true
	}
	current := claim.Status.Capacity[v1.ResourceStorage]
	switch {
	case target.Sign() <= 0:
		return Expansion{}
	case state == "" && current.Cmp(target) >= 0:
		// Another node, or the controller, has finished the expansion. If several nodes have mounted the file system, each of them may have
		// to call its driver.
		_, no := claim.Annotations[notRequired]
		shared := slices.Contains(claim.Spec.AccessModes, v1.ReadWriteMany) && have > 0 && have < target.Value() && !no
		return Expansion{Do: shared, Size: target}
	case !states:
		return Expansion{Do: true, Size: target, Finish: true}
	case state == v1.PersistentVolumeClaimNodeResizePending, state == v1.PersistentVolumeClaimNodeResizeInProgress:
		return Expansion{Do: true, Size: target, Begin: true, Finish: true}
	}
	return Expansion{} // the controller has to work on the size, or the expansion is infeasible
}

// Expand returns the request that expands a volume to a size. path is where the volume is published, or staged if it is not published yet.
func Expand(in *Input, size int64, path string) *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{
		VolumeId: in.Handle, VolumePath: path, StagingTargetPath: in.StagingPath, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapability: capability(in, ""), Secrets: in.Secrets,
	}
}

// ExpansionBegins, ExpansionEnds and ExpansionFails return the bodies of strategic merge patches of a claim's status. The first two contain
// the claim's resource version, so the patch fails if the claim has changed.

// ExpansionBegins returns the patch that says that this node is expanding the volume.
func ExpansionBegins(claim *v1.PersistentVolumeClaim) ([]byte, error) {
	return statusPatch(claim, map[string]any{"allocatedResourceStatuses": inProgress(v1.PersistentVolumeClaimNodeResizeInProgress)})
}

// ExpansionEnds returns the patch that sets the claim's capacity to size and removes the conditions about the expansion.
func ExpansionEnds(claim *v1.PersistentVolumeClaim, size resource.Quantity) ([]byte, error) {
	var gone []map[string]any
	for _, t := range []v1.PersistentVolumeClaimConditionType{
		v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
		v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
	} {
		if slices.ContainsFunc(claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool { return c.Type == t }) {
			gone = append(gone, map[string]any{"$patch": "delete", "type": t})
		}
	}
	status := map[string]any{"capacity": map[v1.ResourceName]string{v1.ResourceStorage: size.String()}}
	if claim.Status.AllocatedResourceStatuses != nil {
		status["allocatedResourceStatuses"] = map[v1.ResourceName]any{v1.ResourceStorage: nil}
	}
	if gone != nil {
		status["conditions"] = gone
	}
	return statusPatch(claim, status)
}

// ExpansionFails returns the patch that says why the expansion failed. If infeasible is true, nodes do not try the expansion again.
func ExpansionFails(claim *v1.PersistentVolumeClaim, now time.Time, err error, infeasible bool) ([]byte, error) {
	status := map[string]any{"conditions": []map[string]any{{
		"type": v1.PersistentVolumeClaimNodeResizeError, "status": v1.ConditionTrue, "lastTransitionTime": now.UTC().Format(time.RFC3339),
		"message": fmt.Sprintf("failed to expand pvc with %v", err),
	}}}
	if infeasible {
		status["allocatedResourceStatuses"] = inProgress(v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	fresh := *claim
	fresh.ResourceVersion = "" // the claim's version has changed since ExpansionBegins
	return statusPatch(&fresh, status)
}

func inProgress(s v1.ClaimResourceStatus) map[v1.ResourceName]v1.ClaimResourceStatus {
	return map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: s}
}

func statusPatch(claim *v1.PersistentVolumeClaim, status map[string]any) ([]byte, error) {
	meta := map[string]any{"uid": claim.UID}
	if claim.ResourceVersion != "" {
		meta["resourceVersion"] = claim.ResourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": meta, "status": status})
	if err != nil {
		return nil, fmt.Errorf("encode the status of a claim: %w", err)
	}
	return body, nil
}
