package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// nodeClaims reads the objects behind persistent volumes with the node's own identity.
type nodeClaims struct {
	api  *kubeclient.Client
	node func() *v1.Node
}

var _ volume.ClaimStatus = nodeClaims{}

// claims returns the reader of claims, or nil without an API server.
func (a *Agent) claims() volume.Claims {
	if a.deps.Client == nil {
		return nil
	}
	c := nodeClaims{a.clients.api, a.latestNode}
	if a.offline.keeper != nil {
		return a.offline.keeper.Claims(c)
	}
	return c
}

// latestNode returns this node as the API server has it, or what nodeObject returns if the node is not registered yet. It is never nil.
func (a *Agent) latestNode() *v1.Node {
	if a.own != nil { // the watch gets a change of the Node earlier than the heartbeat does
		if n := a.own.Last(); n != nil {
			return n
		}
	}
	return a.nodeObject()
}

// nodeUID returns the name and the UID of this node; the UID is empty until the node is registered.
func (a *Agent) nodeUID() (string, types.UID) {
	return a.cfg.NodeName, a.latestNode().UID
}

// get reads an object that a pod of this node refers to. It waits for a moment if the Node authorizer does not know the pod yet, or the claim of its
// volume: otherwise the first event of a new pod would say that the node may not read the object.
func get[T any](ctx context.Context, read func(context.Context, string, metav1.GetOptions) (T, error), name string) (found T, err error) {
	err = kubeclient.Insist(ctx, func() error {
		found, err = read(ctx, name, metav1.GetOptions{})
		return err
	}, nil)
	return found, err
}

// Claim reads a claim.
func (c nodeClaims) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return get(ctx, c.api.PersistentVolumeClaims(namespace).Get, name)
}

// PersistentVolume reads a persistent volume.
func (c nodeClaims) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return get(ctx, c.api.PersistentVolumes().Get, name)
}

// CSIDriver reads the object of a CSI driver.
func (c nodeClaims) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return c.api.CSIDrivers().Get(ctx, name, metav1.GetOptions{})
}

// Secret reads a secret that a persistent volume refers to.
func (c nodeClaims) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return get(ctx, c.api.Secrets(namespace).Get, name)
}

// Attachment reads a VolumeAttachment.
func (c nodeClaims) Attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return c.api.VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
}

// PatchClaimStatus changes the status of a claim.
func (c nodeClaims) PatchClaimStatus(ctx context.Context, namespace, name string, body []byte) (*v1.PersistentVolumeClaim, error) {
	return c.api.PersistentVolumeClaims(namespace).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// Node returns this node.
func (c nodeClaims) Node() *v1.Node { return c.node() }
