package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// attached returns the publish context of a volume. First it waits until the Node's status lists the volume as in use, so that the
// attach-detach controller does not detach the volume, and until the status lists the volume as attached. After attachPatience it
// fails with the reason.
func (v *Volumes) attached(ctx context.Context, b *bound) (map[string]string, error) {
	waiting, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	for {
		changed := v.nodeChanged.next()
		node := v.cfg.Claims.Node()
		name := b.unique()
		said := v.using.isReported(name) && slices.Contains(node.Status.VolumesInUse, name)
		if said && slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name }) {
			if b.Kind != kindCSI { // nobody attaches it: the controller only sees to it that no other node uses the disk
				return nil, nil
			}
			return v.attachment(ctx, b, node.Name)
		}
		select {
		case <-changed:
			continue
		case <-waiting.Done():
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("wait for the attachment of the volume: %w", err)
		}
		if !said {
			return nil, &pod.Lacking{What: pod.LackAttachment, Err: errors.New("waits for the API server to have the node's status, which says that the volume is in use")}
		}
		if b.Kind == kindCSI {
			if _, err := v.attachment(ctx, b, node.Name); err != nil {
				return nil, err
			}
		}
		return nil, &pod.Lacking{
			What: pod.LackAttachment, Err: errors.New("waits for the attach-detach controller to list the volume in the node's status (volumesAttached)"),
		}
	}
}

// attachPatience is how long one try to set up a volume waits for the attachment. The pod gets an event when the try has failed. The
// pod keeps its slot of the start gate during the wait.
const attachPatience = 10 * time.Second

// attachment returns the publish context from the VolumeAttachment of a volume.
func (v *Volumes) attachment(ctx context.Context, b *bound, node string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	a, err := v.cfg.Claims.Attachment(ctx, csispec.Attachment(b.Handle, b.Driver, node))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err): // forbidden: the Node authorizer does not know the VolumeAttachment yet
		return nil, &pod.Lacking{What: pod.LackAttachment, Err: &worded{
			text: "waits for the attach-detach controller to attach the volume to this node: there is no VolumeAttachment", cause: err,
		}}
	case err != nil:
		return nil, fmt.Errorf("read VolumeAttachment: %w", err)
	case a.DeletionTimestamp != nil:
		return nil, &pod.Lacking{What: pod.LackAttachment, Err: errors.New("waits for the volume to be attached to this node again: it is being detached")}
	case a.Status.Attached: // an error is of an earlier try
		return a.Status.AttachmentMetadata, nil
	case a.Status.AttachError != nil:
		lack := pod.LackAttach
		if code := a.Status.AttachError.ErrorCode; code != nil && *code == int32(codes.ResourceExhausted) && v.cfg.Exceeded != nil && v.cfg.Exceeded(b.Driver) {
			lack = pod.LackVolumeLimit
		}
		return nil, &pod.Lacking{What: lack, Err: fmt.Errorf("the volume cannot be attached to this node: %s (since %s)",
			pod.Text(strings.TrimSpace(a.Status.AttachError.Message)), a.Status.AttachError.Time.UTC().Format(time.RFC3339))}
	}
	return nil, &pod.Lacking{What: pod.LackAttachment, Err: fmt.Errorf("waits for CSI driver %s to attach the volume to this node", b.Driver)}
}

// NodeChanged must be called after each change of the Node's status, because volumes may have been attached. It must also be called when the API server
// has sent the Node for the first time.
func (v *Volumes) NodeChanged() {
	v.nodeOfNames()
	v.nodeChanged.tell()
}

// broadcast wakes all goroutines that wait for it. The zero value is ready.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that the next call of tell closes. A caller calls next first, then checks the condition that it waits for,
// and then waits for the channel, so that it misses no change.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
