package offline

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/wherry-node/wherry/internal/edge/lastknown"
)

// reads holds the newest answers to GET requests for single objects: claims, volumes, drivers, attachments and runtime classes.
type reads struct {
	mu      sync.Mutex
	offline bool
	seen    map[lastknown.ID]seen
}

// seen is an object as the API server sent it, without managed fields.
type seen struct{ obj runtime.Object }

func (r *reads) setOffline(offline bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offline = offline
}

// remember adds the answers that an earlier agent got.
func (r *reads) remember(earlier map[lastknown.ID]seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range earlier {
		if r.seen[id].obj == nil {
			r.seen[id] = s
		}
	}
}

// known returns the last answer, or nil. offline is true if the node is offline, so that no request may be sent.
func (r *reads) known(id lastknown.ID) (obj runtime.Object, offline bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[id].obj, r.offline
}

// saw stores an answer; nil: there is no such object. It reports whether the answer is new.
func (r *reads) saw(id lastknown.ID, obj runtime.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.seen[id].obj
	if obj == nil {
		delete(r.seen, id)
		return before != nil
	}
	if before != nil && version(before) == version(obj) {
		return false
	}
	kept := obj.DeepCopyObject()
	if m, err := meta.Accessor(kept); err == nil {
		m.SetManagedFields(nil)
	}
	r.seen[id] = seen{kept}
	return true
}

// prune drops the answers that no pod needs, and returns the others.
func (r *reads) prune(needed func(lastknown.ID) bool) map[lastknown.ID]runtime.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[lastknown.ID]runtime.Object, len(r.seen))
	for id, s := range r.seen {
		if needed(id) {
			out[id] = s.obj
		} else {
			delete(r.seen, id)
		}
	}
	return out
}

// version returns a text that changes with every change of an object: its UID and resourceVersion.
func version(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return string(m.GetUID()) + "/" + m.GetResourceVersion()
}

// read reads one object: from the API server, or without a request if the node is offline.
func read[T runtime.Object](k *Keeper, id lastknown.ID, get func() (T, error)) (T, error) {
	var none T
	last, offline := k.reads.known(id)
	if offline {
		if got, ok := last.(T); ok {
			return got, nil
		}
		return none, fmt.Errorf("the API server does not answer, and the record of what it last said does not have %s", id)
	}
	got, err := get()
	switch {
	case err == nil && k.reads.saw(id, got), apierrors.IsNotFound(err) && k.reads.saw(id, nil):
		k.Changed()
	}
	return got, err
}

// ClaimReader reads the objects behind persistent volumes.
type ClaimReader interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	Attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	Node() *v1.Node
}

// Claims returns a reader that answers from the record while the node is offline.
func (k *Keeper) Claims(api ClaimReader) ClaimReader { return keptClaims{api, k} }

type keptClaims struct {
	ClaimReader
	k *Keeper
}

// Claim reads a claim.
func (c keptClaims) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return read(c.k, lastknown.ID{Kind: lastknown.KindClaim, Namespace: namespace, Name: name}, func() (*v1.PersistentVolumeClaim, error) {
		return c.ClaimReader.Claim(ctx, namespace, name)
	})
}

// PersistentVolume reads a persistent volume.
func (c keptClaims) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return read(c.k, lastknown.ID{Kind: lastknown.KindVolume, Name: name}, func() (*v1.PersistentVolume, error) {
		return c.ClaimReader.PersistentVolume(ctx, name)
	})
}

// CSIDriver reads the object of a CSI driver.
func (c keptClaims) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return read(c.k, lastknown.ID{Kind: lastknown.KindDriver, Name: name}, func() (*storagev1.CSIDriver, error) {
		return c.ClaimReader.CSIDriver(ctx, name)
	})
}

// Secret reads a secret that a persistent volume refers to.
func (c keptClaims) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return read(c.k, lastknown.ID{Kind: lastknown.KindSecret, Namespace: namespace, Name: name}, func() (*v1.Secret, error) {
		return c.ClaimReader.Secret(ctx, namespace, name)
	})
}

// Attachment reads a VolumeAttachment.
func (c keptClaims) Attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return read(c.k, lastknown.ID{Kind: lastknown.KindAttachment, Name: name}, func() (*storagev1.VolumeAttachment, error) {
		return c.ClaimReader.Attachment(ctx, name)
	})
}

// ClassReader reads RuntimeClass objects.
type ClassReader interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*nodev1.RuntimeClass, error)
}

// Classes returns a reader that answers from the record while the node is offline.
func (k *Keeper) Classes(api ClassReader) ClassReader { return keptClasses{api, k} }

type keptClasses struct {
	api ClassReader
	k   *Keeper
}

// Get reads a runtime class.
func (c keptClasses) Get(ctx context.Context, name string, opts metav1.GetOptions) (*nodev1.RuntimeClass, error) {
	return read(c.k, lastknown.ID{Kind: lastknown.KindRuntimeClass, Name: name}, func() (*nodev1.RuntimeClass, error) {
		return c.api.Get(ctx, name, opts)
	})
}
