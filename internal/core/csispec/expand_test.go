package csispec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

const gi = 1 << 30

func sizes(text string) v1.ResourceList {
	if text == "" {
		return nil
	}
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(text)}
}

func TestPlanExpansion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pv, current, allocated string
		state                        v1.ClaimResourceStatus
		have                         int64
		shared, notRequired          bool
		want                         string
	}{
		{name: "nothing has changed", pv: "1Gi", current: "1Gi", want: "has 1Gi"},
		{name: "a controller without states has made the volume larger", pv: "2Gi", current: "1Gi", want: "do 2Gi, finish"},
		{name: "the node's turn", pv: "2Gi", current: "1Gi", allocated: "2Gi", state: v1.PersistentVolumeClaimNodeResizePending, want: "do 2Gi, begin, finish"},
		{name: "the agent ended in the middle", pv: "2Gi", current: "1Gi", allocated: "2Gi", state: v1.PersistentVolumeClaimNodeResizeInProgress, want: "do 2Gi, begin, finish"},
		{name: "the size that the controller allocated counts", pv: "3Gi", current: "1Gi", allocated: "2Gi", state: v1.PersistentVolumeClaimNodeResizePending, want: "do 2Gi, begin, finish"},
		{name: "the controller's turn", pv: "2Gi", current: "1Gi", allocated: "2Gi", state: v1.PersistentVolumeClaimControllerResizeInProgress, want: "wait"},
		{name: "infeasible", pv: "2Gi", current: "1Gi", allocated: "2Gi", state: v1.PersistentVolumeClaimNodeResizeInfeasible, want: "wait"},
		{name: "allocated, without a state", pv: "2Gi", current: "1Gi", allocated: "2Gi", want: "wait"},
		{name: "finished by the controller", pv: "2Gi", current: "2Gi", allocated: "2Gi", have: gi, want: "has 2Gi"},
		{name: "finished by another node, shared", pv: "2Gi", current: "2Gi", allocated: "2Gi", have: gi, shared: true, want: "do 2Gi"},
		{name: "shared, just mounted", pv: "2Gi", current: "2Gi", allocated: "2Gi", shared: true, want: "has 2Gi"},
		{name: "shared, up to date", pv: "2Gi", current: "2Gi", allocated: "2Gi", have: 2 * gi, shared: true, want: "has 2Gi"},
		{name: "shared, and nodes have nothing to do", pv: "2Gi", current: "2Gi", allocated: "2Gi", have: gi, shared: true, notRequired: true, want: "has 2Gi"},
		{name: "no sizes at all", want: "wait"},
		{name: "a state without a size", pv: "2Gi", current: "1Gi", state: v1.PersistentVolumeClaimNodeResizePending, want: "wait"},
	} {
		claim := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Capacity: sizes(c.current), AllocatedResources: sizes(c.allocated)}}
		if c.state != "" {
			claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: c.state}
		}
		if c.shared {
			claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		}
		if c.notRequired {
			claim.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": "true"}
		}
		plan := csispec.PlanExpansion(claim, &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{Capacity: sizes(c.pv)}}, c.have)
		got := "wait"
		switch {
		case plan.Do:
			got = "do " + plan.Size.String()
		case !plan.Size.IsZero():
			got = "has " + plan.Size.String()
		}
		if plan.Begin {
			got += ", begin"
		}
		if plan.Finish {
			got += ", finish"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestPatchesOfAClaim applies each patch as a strategic merge, like the API server, and checks the claim's status. A patch must keep the
// conditions and capacities of other components.
func TestPatchesOfAClaim(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	other := v1.PersistentVolumeClaimCondition{Type: v1.PersistentVolumeClaimVolumeModifyVolumeError, Status: v1.ConditionTrue}
	before := v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}, Status: v1.PersistentVolumeClaimStatus{
		Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi"), "example.com/x": resource.MustParse("1")}, AllocatedResources: sizes("2Gi"),
		AllocatedResourceStatuses: map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending},
		Conditions:                []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}, other},
	}}
	state := func(c *v1.PersistentVolumeClaim) v1.ClaimResourceStatus {
		return c.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	}
	for _, c := range []struct {
		name  string
		patch func() ([]byte, error)
		check func(c *v1.PersistentVolumeClaim) bool
	}{
		{"begins", func() ([]byte, error) { return csispec.ExpansionBegins(&before) }, func(c *v1.PersistentVolumeClaim) bool {
			return state(c) == v1.PersistentVolumeClaimNodeResizeInProgress && len(c.Status.Conditions) == 2
		}},
		{"ends", func() ([]byte, error) { return csispec.ExpansionEnds(&before, resource.MustParse("2Gi")) }, func(c *v1.PersistentVolumeClaim) bool {
			return state(c) == "" && reflect.DeepEqual(c.Status.Conditions, []v1.PersistentVolumeClaimCondition{other}) &&
				c.Status.Capacity.Storage().String() == "2Gi" && len(c.Status.Capacity) == 2 && c.Status.AllocatedResources.Storage().String() == "2Gi"
		}},
		{"fails", func() ([]byte, error) { return csispec.ExpansionFails(&before, now, errors.New("no room"), false) }, func(c *v1.PersistentVolumeClaim) bool {
			last := c.Status.Conditions[0]
			return state(c) == v1.PersistentVolumeClaimNodeResizePending && len(c.Status.Conditions) == 3 && last.Message == "failed to expand pvc with no room" &&
				last.Type == v1.PersistentVolumeClaimNodeResizeError && last.LastTransitionTime.Unix() == 0
		}},
		{"is infeasible", func() ([]byte, error) { return csispec.ExpansionFails(&before, now, errors.New("no room"), true) }, func(c *v1.PersistentVolumeClaim) bool {
			return state(c) == v1.PersistentVolumeClaimNodeResizeInfeasible
		}},
	} {
		body, err := c.patch()
		old, _ := json.Marshal(before)
		var after v1.PersistentVolumeClaim
		if err == nil {
			var patched []byte
			if patched, err = strategicpatch.StrategicMergePatch(old, body, v1.PersistentVolumeClaim{}); err == nil {
				err = json.Unmarshal(patched, &after)
			}
		}
		if err != nil || after.UID != "u" || !c.check(&after) {
			t.Errorf("%s: %s: %+v, %v", c.name, body, after.Status, err)
		}
	}
}

func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code                     codes.Code
		final, infeasible, inUse bool
	}{
		{codes.Internal, true, false, false}, {codes.InvalidArgument, true, true, false}, {codes.OutOfRange, true, true, false}, {codes.NotFound, true, true, false},
		{codes.FailedPrecondition, true, false, true}, {codes.Aborted, false, false, false}, {codes.Unavailable, false, false, false},
		{codes.DeadlineExceeded, false, false, false}, {codes.Canceled, false, false, false}, {codes.ResourceExhausted, false, false, false},
	} {
		err := fmt.Errorf("wrapped: %w", &csispec.CallError{Driver: "d", Method: "M", Code: csispec.Code(c.code), Text: "no"})
		if csispec.Final(err) != c.final || csispec.Infeasible(err) != c.infeasible || csispec.InUse(err) != c.inUse {
			t.Errorf("%v: final %v, infeasible %v, in use %v", c.code, csispec.Final(err), csispec.Infeasible(err), csispec.InUse(err))
		}
	}
	if err := errors.New("connection refused"); csispec.Final(err) || csispec.Infeasible(err) || csispec.InUse(err) {
		t.Error("an error of no call has a class")
	}
}
