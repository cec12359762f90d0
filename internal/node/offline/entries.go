package offline

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/lastknown"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// entries returns the content of the record: first the objects that pods need, then the pods, the oldest first. If the record is full,
// the newest pods are left out.
func (k *Keeper) entries() []lastknown.Entry {
	var pods []*v1.Pod
	spaces := []string{metav1.NamespaceDefault}
	for _, p := range k.cfg.Pods.List() {
		if _, src := k.cfg.Pods.Get(p.UID); src == pod.SourceAPI {
			pods = append(pods, p)
			spaces = append(spaces, p.Namespace)
		}
	}
	slices.Sort(spaces)
	spaces = slices.Compact(spaces)
	s := k.cfg.Objects.State(spaces)

	out := []lastknown.Entry{k.nodeEntry()}
	out = append(out, servicesOf(&s, spaces)...)
	out = append(out, k.tokensOf(&s, pods)...)
	out = append(out, objectsOf(&s)...)
	out = append(out, k.readsOf(pods, out)...)
	for _, p := range pods {
		id := lastknown.ID{Kind: lastknown.KindPod, Namespace: p.Namespace, Name: string(p.UID)}
		out = append(out, lastknown.Entry{ID: id, Version: p.ResourceVersion, Content: p})
	}
	return out
}

// nodeEntry returns the Node with the fields that pods and their admission need. It leaves out the fields that change with each
// heartbeat.
func (k *Keeper) nodeEntry() lastknown.Entry {
	e := lastknown.Entry{ID: lastknown.ID{Kind: lastknown.KindNode, Name: k.cfg.NodeName}}
	node := k.cfg.Node()
	if node == nil {
		e.Keep = true
		return e
	}
	slim := *node
	slim.ManagedFields, slim.ResourceVersion, slim.Status.Conditions, slim.Status.Images = nil, "", nil, nil
	e.Content = &slim
	return e
}

func servicesOf(s *objects.State, namespaces []string) (out []lastknown.Entry) {
	for _, ns := range namespaces {
		var in []*v1.Service
		for _, svc := range s.Services {
			if svc.Namespace == ns {
				in = append(in, svc)
			}
		}
		slices.SortFunc(in, func(a, b *v1.Service) int { return cmp.Compare(a.Name, b.Name) })
		if in == nil {
			in = []*v1.Service{}
		}
		out = append(out, lastknown.Entry{ID: lastknown.ID{Kind: lastknown.KindServices, Namespace: ns, Name: "all"}, Content: in, Keep: !slices.Contains(s.ServicesOf, ns)})
	}
	return out
}

// tokensOf returns the service account tokens of the pods. A token that is in the record, but that this agent has not requested yet, stays
// in the record.
func (k *Keeper) tokensOf(s *objects.State, pods []*v1.Pod) (out []lastknown.Entry) {
	wanted := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		wanted[p.UID] = true
	}
	have := map[lastknown.ID]bool{}
	for _, t := range s.Tokens {
		if !wanted[t.Pod] {
			continue
		}
		id := lastknown.ID{Kind: lastknown.KindToken, Namespace: string(t.Pod), Name: fmt.Sprintf("%s %q %d", t.ServiceAccount, t.Audience, t.Seconds)}
		t.Renew, t.Expires = t.Renew.UTC(), t.Expires.UTC()
		have[id] = true
		out = append(out, lastknown.Entry{ID: id, Content: t})
	}
	for id := range k.loaded {
		if id.Kind == lastknown.KindToken && wanted[types.UID(id.Namespace)] && !have[id] {
			out = append(out, lastknown.Entry{ID: id, Keep: true})
		}
	}
	return out
}

func objectsOf(s *objects.State) (out []lastknown.Entry) {
	for _, c := range s.ConfigMaps {
		out = append(out, lastknown.Entry{ID: lastknown.ID{Kind: lastknown.KindConfigMap, Namespace: c.Namespace, Name: c.Name}, Version: version(c), Content: c})
	}
	for _, c := range s.Secrets {
		out = append(out, lastknown.Entry{ID: lastknown.ID{Kind: lastknown.KindSecret, Namespace: c.Namespace, Name: c.Name}, Version: version(c), Content: c})
	}
	for _, n := range s.Absent {
		out = append(out, lastknown.Entry{ID: objectID(n)})
	}
	for _, n := range s.Unknown {
		out = append(out, lastknown.Entry{ID: objectID(n), Keep: true})
	}
	return out
}

func objectID(n objects.Name) lastknown.ID {
	kind := lastknown.KindConfigMap
	if n.Secret {
		kind = lastknown.KindSecret
	}
	return lastknown.ID{Kind: kind, Namespace: n.Namespace, Name: n.Name}
}

// readsOf returns the objects that the volumes and runtime classes of the pods need, without those in have.
func (k *Keeper) readsOf(pods []*v1.Pod, have []lastknown.Entry) (out []lastknown.Entry) {
	got := map[lastknown.ID]bool{}
	for _, e := range have {
		got[e.ID] = true
	}
	needed := k.needs(pods)
	for id, obj := range k.reads.prune(func(id lastknown.ID) bool { return needed[id] }) {
		if !got[id] {
			out = append(out, lastknown.Entry{ID: id, Version: version(obj), Content: obj})
		}
	}
	return out
}

// needs returns the IDs of the objects that the volumes and runtime classes of the pods need.
func (k *Keeper) needs(pods []*v1.Pod) map[lastknown.ID]bool {
	out := map[lastknown.ID]bool{}
	secret := func(ref *v1.SecretReference) {
		if ref != nil {
			out[lastknown.ID{Kind: lastknown.KindSecret, Namespace: ref.Namespace, Name: ref.Name}] = true
		}
	}
	for _, p := range pods {
		if class := p.Spec.RuntimeClassName; class != nil {
			out[lastknown.ID{Kind: lastknown.KindRuntimeClass, Name: *class}] = true
		}
		for i := range p.Spec.Volumes {
			vol := &p.Spec.Volumes[i]
			if csi := vol.CSI; csi != nil {
				out[lastknown.ID{Kind: lastknown.KindDriver, Name: csi.Driver}] = true
				if ref := csi.NodePublishSecretRef; ref != nil {
					secret(&v1.SecretReference{Namespace: p.Namespace, Name: ref.Name})
				}
			}
			if vol.PersistentVolumeClaim == nil && vol.Ephemeral == nil {
				continue
			}
			id := lastknown.ID{Kind: lastknown.KindClaim, Namespace: p.Namespace, Name: claims.Name(p, vol)}
			out[id] = true
			claim, _ := k.seen(id).(*v1.PersistentVolumeClaim)
			if claim == nil {
				continue
			}
			id = lastknown.ID{Kind: lastknown.KindVolume, Name: claim.Spec.VolumeName}
			out[id] = true
			pv, _ := k.seen(id).(*v1.PersistentVolume)
			if pv == nil || pv.Spec.CSI == nil {
				continue
			}
			csi := pv.Spec.CSI
			out[lastknown.ID{Kind: lastknown.KindDriver, Name: csi.Driver}] = true
			out[lastknown.ID{Kind: lastknown.KindAttachment, Name: csispec.Attachment(csi.VolumeHandle, csi.Driver, k.cfg.NodeName)}] = true
			secret(csi.NodeStageSecretRef)
			secret(csi.NodePublishSecretRef)
		}
	}
	return out
}

func (k *Keeper) seen(id lastknown.ID) runtime.Object {
	obj, _ := k.reads.known(id)
	return obj
}
