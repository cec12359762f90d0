package agenttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// diskDriver is the name of the CSI driver of a machine with diskConfig.
const diskDriver = "disks.example.com"

func diskConfig() *simcsi.Config {
	return &simcsi.Config{Name: diskDriver, NodeID: "disks-" + NodeName, Stage: true}
}

// followLimit makes the node ask a CSI driver again and again how many volumes it can have, and waits until the agent knows this.
func (w *World) followLimit(driver string) {
	w.Helper()
	patch := []byte(`{"spec":{"nodeAllocatableUpdatePeriodSeconds":3600}}`)
	if _, err := w.Admin.StorageV1().CSIDrivers().Patch(context.Background(), driver, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
	time.Sleep(time.Second)
}

// createDisk creates a claim that is bound to a volume of a CSI driver, and the object of this driver. The claim's name is also the volume's
// handle.
func (w *World) createDisk(name, driver string, attach bool) {
	w.Helper()
	if _, err := w.Admin.StorageV1().CSIDrivers().Create(context.Background(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.bindClaimTo(w.createClaim(name), v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}})
}

// attach does what the attach-detach controller and the driver's attacher do for a volume of diskDriver: it creates a VolumeAttachment, and
// lists the volume in the status of the Node. If problem is not empty, the attacher cannot attach the volume for this reason.
func (w *World) attach(handle, problem string) {
	w.Helper()
	w.attachOr(handle, problem, codes.Unknown)
}

// attachOr is like attach; code is the code of the answer with which the CSI driver refused to attach the volume.
func (w *World) attachOr(handle, problem string, code codes.Code) {
	w.Helper()
	ctx := context.Background()
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csispec.Attachment(handle, diskDriver, NodeName)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: diskDriver, NodeName: NodeName},
	}
	a, err := w.Admin.StorageV1().VolumeAttachments().Create(ctx, a, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	a.Status.Attached = problem == ""
	if problem != "" {
		a.Status.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: problem, ErrorCode: new(int32(code))}
	}
	if _, err := w.Admin.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{}); err != nil || problem != "" {
		if err != nil {
			w.Fatal(err)
		}
		return
	}
	listed := fmt.Sprintf(`{"status":{"volumesAttached":[{"name":%q,"devicePath":""}]}}`, csispec.UniqueName(diskDriver, handle))
	if _, err := w.Admin.CoreV1().Nodes().Patch(ctx, NodeName, types.StrategicMergePatchType, []byte(listed), metav1.PatchOptions{}, "status"); err != nil {
		w.Fatal(err)
	}
}

// The driver of a simulated machine registers. A pod with a volume of this driver waits until the volume is attached, and then runs. When the
// pod has ended, the volume is neither staged nor published, and the node no longer says that it uses the volume.
func TestVolumeOfADriver(t *testing.T) {
	t.Parallel()
	Run(t, Config{CSI: diskConfig()}, func(w *World) {
		w.Await("the driver is in the CSINode", time.Minute, func() bool {
			n, err := w.Admin.StorageV1().CSINodes().Get(context.Background(), NodeName, metav1.GetOptions{})
			return err == nil && len(n.Spec.Drivers) == 1 && n.Spec.Drivers[0].Name == diskDriver && n.Spec.Drivers[0].NodeID == "disks-"+NodeName
		})
		inUse := func() bool {
			n, err := w.Admin.CoreV1().Nodes().Get(context.Background(), NodeName, metav1.GetOptions{})
			return err == nil && slices.Contains(n.Status.VolumesInUse, csispec.UniqueName(diskDriver, "data"))
		}
		w.createDisk("data", diskDriver, true)
		w.Create(Pod("db", withClaim("data")))
		w.Await("the node says that it uses the volume", time.Minute, inUse)
		if n := w.CSI.Count("NodeStageVolume"); n != 0 {
			t.Errorf("%d calls stage the volume before it is attached", n)
		}
		w.attach("data", "")
		w.WaitReady("db")
		if staged, published := w.CSI.Holds(); staged != 1 || published != 1 {
			t.Errorf("staged %d, published %d", staged, published)
		}
		w.RestartAgent(time.Second)
		time.Sleep(time.Minute)
		if p := w.Kube.Pod(Namespace, "db"); !Ready(p) {
			t.Errorf("with the next agent, the status of the pod is %+v", p.Status)
		}
		w.Delete("db", 5)
		w.WaitGone("db")
		w.Await("the volume is neither staged nor published", time.Minute, w.holdsNoVolume)
		w.Await("the node does not use the volume any more", time.Minute, func() bool { return !inUse() })
		if broken := w.CSI.Broken(); len(broken) > 0 {
			t.Errorf("calls that break a rule: %v", broken)
		}
	})
}

// holdsNoVolume reports whether the CSI driver has neither staged nor published any volume.
func (w *World) holdsNoVolume() bool {
	staged, published := w.CSI.Holds()
	return staged+published == 0
}

// A pod ends while the driver of its volume does not answer the call to unstage the volume. The volume stays in use until the driver answers.
func TestPodEndsWhileItsVolumeCannotBeUnstaged(t *testing.T) {
	t.Parallel()
	Run(t, Config{CSI: diskConfig()}, func(w *World) {
		inUse := func() bool { n := w.Kube.Node(NodeName); return n != nil && len(n.Status.VolumesInUse) > 0 }
		w.createDisk("data", diskDriver, true)
		w.Create(Pod("db", withClaim("data")))
		w.Await("the node says that it uses the volume", time.Minute, inUse)
		w.attach("data", "")
		w.WaitReady("db")
		hang := make(chan struct{})
		w.CSI.SetFault("NodeUnstageVolume", &simcsi.Fault{Hang: hang})
		w.Delete("db", 5)
		w.WaitGone("db")
		for range 2 { // also for the next agent
			time.Sleep(10 * time.Minute)
			if staged, published := w.CSI.Holds(); staged != 1 || published != 0 || !inUse() {
				t.Errorf("staged %d, published %d, in use %v", staged, published, inUse())
			}
			w.RestartAgent(time.Second)
		}
		w.CSI.SetFault("NodeUnstageVolume", nil)
		close(hang)
		w.Await("the volume is unstaged", 5*time.Minute, w.holdsNoVolume)
		w.Await("the node does not use the volume any more", time.Minute, func() bool { return !inUse() })
		if n := w.events("FailedUnstageVolume"); n != 2 {
			t.Errorf("%d events say that the volume cannot be unstaged, want one of each agent", n)
		}
		if broken := w.CSI.Broken(); len(broken) > 0 {
			t.Errorf("calls that break a rule: %v", broken)
		}
	})
}

// A volume cannot be attached, since the node has as many volumes of the CSI driver as it can have. Without
// nodeAllocatableUpdatePeriodSeconds in the CSIDriver the pod waits, as for any other failure. With it the pod fails with upstream's reason,
// so that its controller's next pod is bound to another node; nothing of the pod is left on this one.
func TestNodeWithTooManyVolumes(t *testing.T) {
	t.Parallel()
	Run(t, Config{CSI: diskConfig()}, func(w *World) {
		w.createDisk("data", diskDriver, true)
		w.attachOr("data", "no room for the disk", codes.ResourceExhausted)
		w.Create(Pod("db", withClaim("data")))
		time.Sleep(5 * time.Minute)
		if p := w.Kube.Pod(Namespace, "db"); p.Status.Phase != v1.PodPending {
			t.Errorf("while the limit of the driver is not kept up to date, the pod is %s (%s), want Pending", p.Status.Phase, p.Status.Reason)
		}
		w.followLimit(diskDriver)
		w.WaitPhase("db", v1.PodFailed)
		p := w.Kube.Pod(Namespace, "db")
		if p.Status.Reason != "VolumeAttachmentLimitExceeded" || !strings.Contains(p.Status.Message, "no room for the disk") {
			t.Errorf("the status has the reason %q and the message %q", p.Status.Reason, p.Status.Message)
		}
		if n := w.events("VolumeAttachmentLimitExceeded"); n != 1 {
			t.Errorf("%d events say that the node has too many volumes, want 1", n)
		}
		w.Await("the volume is neither staged nor published", time.Minute, w.holdsNoVolume)
		w.Delete("db", 5)
		w.WaitGone("db")
	})
}
