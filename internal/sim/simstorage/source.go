package simstorage

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sourceAgain is how long a claim waits until its source is looked at again.
const sourceAgain = 5 * time.Second

// sourced reports whether the volume of a claim can be made as far as its source is concerned. Without a source it can. A copy of another claim of the driver can
// be made once that one has its volume: both have no content. A simulated driver knows no other sources, such as snapshots; then an event on the claim says
// so, and the claim stays without a volume.
func (s *Storage) sourced(ctx context.Context, c *v1.PersistentVolumeClaim, driver string) (bool, error) {
	kind, name, namespace := "", "", c.Namespace
	switch from := c.Spec.DataSourceRef; {
	case from != nil:
		if kind, name = from.Kind, from.Name; from.APIGroup != nil && *from.APIGroup != "" {
			kind += "." + *from.APIGroup
		}
		if from.Namespace != nil && *from.Namespace != "" {
			namespace = *from.Namespace
		}
	case c.Spec.DataSource != nil:
		if kind, name = c.Spec.DataSource.Kind, c.Spec.DataSource.Name; c.Spec.DataSource.APIGroup != nil && *c.Spec.DataSource.APIGroup != "" {
			kind += "." + *c.Spec.DataSource.APIGroup
		}
	default:
		return true, nil
	}
	if kind != "PersistentVolumeClaim" || namespace != c.Namespace {
		return false, s.warn(ctx, c, fmt.Sprintf("a simulated driver makes no volume from %s %s/%s: it can copy claims of its own in the same namespace, and has no snapshots", kind, namespace, name))
	}
	s.mu.Lock()
	from := s.claims[namespace+"/"+name]
	known := from != nil && s.volumes[from.Spec.VolumeName] != nil && s.volumes[from.Spec.VolumeName].Spec.CSI.Driver == driver
	s.mu.Unlock()
	if known && from.Status.Phase == v1.ClaimBound {
		return true, nil
	}
	s.queue.addLater(key{kindClaim, c.Namespace + "/" + c.Name}, sourceAgain)
	return false, s.warn(ctx, c, fmt.Sprintf("the claim %s, of which the volume is to be a copy, has no volume of the driver %s yet", name, driver))
}

// warn writes an event on a claim, once for each claim and text.
func (s *Storage) warn(ctx context.Context, c *v1.PersistentVolumeClaim, text string) error {
	now, id := metav1.NewTime(time.Now()), fnv.New64a()
	_, _ = id.Write([]byte(string(c.UID) + text))
	_, err := s.cfg.API.Events(c.Namespace).Create(ctx, &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: c.Namespace, Name: fmt.Sprintf("%s.%x", c.Name, id.Sum64())},
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion},
		Type:           v1.EventTypeWarning, Reason: "ProvisioningFailed", Message: text, Source: v1.EventSource{Component: "wherry-fleet"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write an event on claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
