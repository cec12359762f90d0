package csinode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/inorder"
)

// API is the part of the API server for CSINode objects.
type API interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*storagev1.CSINode, error)
	Create(ctx context.Context, obj *storagev1.CSINode, opts metav1.CreateOptions) (*storagev1.CSINode, error)
	Update(ctx context.Context, obj *storagev1.CSINode, opts metav1.UpdateOptions) (*storagev1.CSINode, error)
}

// Nodes is the part of the API server for Nodes.
type Nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Node, error)
}

// Config configures an Object.
type Config struct {
	API      API
	Nodes    Nodes
	NodeName string
}

// Driver is what the CSINode and the Node publish about a driver.
type Driver struct {
	Name, NodeID string
	// MaxVolumes is how many volumes of the driver the node can have; 0 or less: not limited.
	MaxVolumes int64
	// Topology becomes labels of the Node.
	Topology map[string]string
}

// Object is the CSINode of this node.
type Object struct {
	cfg Config
	// turn has an element while a call changes the object. It is a channel, so that the wait for it can end with a context.
	turn chan struct{}
}

// New returns the object. It does no IO.
func New(cfg Config) *Object { return &Object{cfg: cfg, turn: make(chan struct{}, 1)} }

const (
	tries       = 5                // how often a change is tried if other writers change the object at the same time
	writeWithin = 30 * time.Second // the bound of a call, with its wait for other calls
	// annotationNodeID contains the ID that each driver uses for the node, for programs that do not read the CSINode.
	annotationNodeID = "csi.volume.kubernetes.io/nodeid"
	// annotationMigrated names the former in-tree plugins whose volumes count as volumes of CSI drivers, for the scheduler.
	annotationMigrated = "storage.alpha.kubernetes.io/migrated-plugins"
)

// Put adds or replaces a driver.
func (o *Object) Put(ctx context.Context, d Driver) error {
	return o.inTurn(ctx, func(ctx context.Context) error {
		if err := o.label(ctx, d); err != nil {
			return err
		}
		return o.change(ctx, func(spec *storagev1.CSINodeSpec) {
			one := storagev1.CSINodeDriver{Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology))}
			if d.MaxVolumes > 0 {
				one.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(min(d.MaxVolumes, 1<<31-1)))}
			}
			spec.Drivers = append(without(spec.Drivers, d.Name), one)
			inorder.Sort(spec.Drivers, func(a, b storagev1.CSINodeDriver) int { return cmp.Compare(a.Name, b.Name) })
		})
	})
}

// Remove removes a driver. The labels of the Node stay, because persistent volumes may refer to them.
func (o *Object) Remove(ctx context.Context, driver string) error {
	return o.inTurn(ctx, func(ctx context.Context) error {
		return o.change(ctx, func(spec *storagev1.CSINodeSpec) { spec.Drivers = without(spec.Drivers, driver) })
	})
}

func without(drivers []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(drivers), func(d storagev1.CSINodeDriver) bool { return d.Name == name })
}

// inTurn runs f when all earlier calls have ended. The wait and f together take at most writeWithin.
func (o *Object) inTurn(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
		return f(ctx)
	case <-ctx.Done():
		return fmt.Errorf("change CSINode %s: %w", o.cfg.NodeName, ctx.Err())
	}
}

// change reads the CSINode, applies f to its spec, and writes the object if that changed it. It begins again if another writer has changed
// the object in the meantime.
func (o *Object) change(ctx context.Context, f func(*storagev1.CSINodeSpec)) (err error) {
	for range tries {
		var have *storagev1.CSINode
		have, err = o.cfg.API.Get(ctx, o.cfg.NodeName, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			have, err = o.fresh(ctx)
		}
		if err != nil {
			break
		}
		want := have.DeepCopy()
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, annotationMigrated, csispec.MigratedPlugins)
		f(&want.Spec)
		if equality.Semantic.DeepEqual(have.Spec, want.Spec) && (missing || have.Annotations[annotationMigrated] == csispec.MigratedPlugins) {
			return nil
		}
		if missing {
			_, err = o.cfg.API.Create(ctx, want, metav1.CreateOptions{})
		} else {
			_, err = o.cfg.API.Update(ctx, want, metav1.UpdateOptions{})
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("change CSINode %s: %w", o.cfg.NodeName, err)
	}
	return nil
}

// fresh returns a CSINode that does not exist in the API yet. The Node owns the CSINode, so both are deleted together.
func (o *Object) fresh(ctx context.Context) (*storagev1.CSINode, error) {
	node, err := o.cfg.Nodes.Get(ctx, o.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: o.cfg.NodeName, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}}}, nil
}

// errTopology means that a driver reports another topology than the labels of the Node. The agent does not change these labels, because
// volumes that were provisioned for the old topology would become unusable.
var errTopology = errors.New("the Node has another value: delete the label if the node has moved")

// label adds the driver's topology to the labels of the Node, and the driver's ID for the node to an annotation.
func (o *Object) label(ctx context.Context, d Driver) error {
	node, err := o.cfg.Nodes.Get(ctx, o.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("label Node %s: %w", o.cfg.NodeName, err)
	}
	ids := map[string]string{}
	if text := node.Annotations[annotationNodeID]; text != "" && json.Unmarshal([]byte(text), &ids) != nil {
		ids = map[string]string{}
	}
	labels := map[string]string{}
	for key, value := range d.Topology {
		switch have, ok := node.Labels[key]; {
		case !ok:
			labels[key] = value
		case have != value:
			return fmt.Errorf("label %s=%s of driver %s: %w (%s)", key, value, d.Name, errTopology, have)
		}
	}
	if ids[d.Name] == d.NodeID && len(labels) == 0 {
		return nil
	}
	ids[d.Name] = d.NodeID
	text, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("label Node %s: %w", o.cfg.NodeName, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": map[string]string{annotationNodeID: string(text)}}})
	if err != nil {
		return fmt.Errorf("label Node %s: %w", o.cfg.NodeName, err)
	}
	if _, err := o.cfg.Nodes.Patch(ctx, o.cfg.NodeName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label Node %s: %w", o.cfg.NodeName, err)
	}
	return nil
}
