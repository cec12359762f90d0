package offline

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/lastknown"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// state is a decoded record.
type state struct {
	at      time.Time
	node    *v1.Node
	pods    []*v1.Pod
	objects objects.State
	reads   map[lastknown.ID]seen
}

// load reads the record. It stores the IDs of the entries, so that the first write keeps the entries that the API server has not sent to
// this agent yet.
func (k *Keeper) load() (*lastknown.Record, error) {
	rec, err := k.cfg.Store.Load(time.Now())
	if err != nil {
		return nil, err
	}
	k.loaded = make(map[lastknown.ID]bool, len(rec.Known))
	for i := range rec.Known {
		k.loaded[rec.Known[i].ID] = true
	}
	s := k.decode(rec)
	k.reads.remember(s.reads)
	for _, err := range rec.Refused {
		k.cfg.Log.Error("a file of the record of what the API server last said is not used", "err", err)
	}
	return rec, nil
}

// recall starts the node from the record.
func (k *Keeper) recall(rec *lastknown.Record) {
	s := k.decode(rec)
	k.mu.Lock()
	k.since, k.node = s.at, s.node
	k.mu.Unlock()
	k.reads.setOffline(true)
	k.drivers.setOffline(true)
	k.cfg.Objects.Recall(s.objects)
	if k.cfg.Recalled != nil {
		k.cfg.Recalled(s.node)
	}
	if !k.cfg.Pods.Recall(pod.SourceAPI, s.pods) {
		return // the API server has just answered
	}
	k.cfg.Log.Warn("the API server does not answer: this node runs the pods of the record of what the API server last said, until the API server answers",
		"lastAnswer", s.at.Format(time.RFC3339), "pods", len(s.pods))
}

// decode decodes a record. For an entry that cannot be decoded, it adds an error to rec.Refused.
func (k *Keeper) decode(rec *lastknown.Record) state {
	s := state{at: rec.At, reads: map[lastknown.ID]seen{}}
	for i := range rec.Known {
		if err := s.add(&rec.Known[i], k.cfg.NodeName); err != nil {
			rec.Refused = append(rec.Refused, fmt.Errorf("%s: %w", rec.Known[i].ID, err))
		}
	}
	return s
}

// add decodes one entry of the record and adds it to the state.
func (s *state) add(known *lastknown.Known, nodeName string) error {
	id, raw := known.ID, known.Content
	switch id.Kind {
	case lastknown.KindNode:
		node, err := decode[v1.Node](raw)
		if err != nil {
			return err
		}
		if node.Name != nodeName {
			return fmt.Errorf("the Node has the name %q", node.Name)
		}
		s.node = node
		return nil
	case lastknown.KindPod:
		return s.addPod(id, raw, nodeName)
	case lastknown.KindToken:
		t, err := decode[objects.Token](raw)
		if err == nil {
			s.objects.Tokens = append(s.objects.Tokens, *t)
		}
		return err
	case lastknown.KindServices:
		services, err := decode[[]*v1.Service](raw)
		if err == nil {
			s.objects.Services = append(s.objects.Services, *services...)
			s.objects.ServicesOf = append(s.objects.ServicesOf, id.Namespace)
		}
		return err
	case lastknown.KindConfigMap, lastknown.KindSecret:
		return s.addObject(id, raw)
	}
	obj := blank(id.Kind)
	if obj == nil {
		return errors.New("this version of the agent does not know the kind")
	}
	if raw == nil {
		return errors.New("it has no content")
	}
	if err := json.Unmarshal(raw, obj); err != nil {
		return err
	}
	s.reads[id] = seen{obj: obj}
	return nil
}

func (s *state) addPod(id lastknown.ID, raw json.RawMessage, nodeName string) error {
	p, err := decode[v1.Pod](raw)
	if err != nil {
		return err
	}
	switch ref := pod.RefOf(p); {
	case !ref.Plausible() || p.Name == "" || p.Namespace == "" || string(p.UID) != id.Name || p.Namespace != id.Namespace:
		return errors.New("the pod has an impossible name or UID")
	case p.Spec.NodeName != nodeName:
		return fmt.Errorf("the pod is bound to the node %q", p.Spec.NodeName)
	case pod.IsMirror(p):
		return errors.New("the pod is a mirror of a static pod")
	}
	s.pods = append(s.pods, p)
	return nil
}

func (s *state) addObject(id lastknown.ID, raw json.RawMessage) error {
	secret := id.Kind == lastknown.KindSecret
	if raw == nil {
		s.objects.Absent = append(s.objects.Absent, objects.Name{Secret: secret, Namespace: id.Namespace, Name: id.Name})
		return nil
	}
	if !secret {
		c, err := decode[v1.ConfigMap](raw)
		if err == nil {
			s.objects.ConfigMaps = append(s.objects.ConfigMaps, c)
		}
		return err
	}
	c, err := decode[v1.Secret](raw)
	if err == nil {
		s.objects.Secrets = append(s.objects.Secrets, c)
		s.reads[id] = seen{obj: c} // a persistent volume may refer to this Secret too
	}
	return err
}

// blank returns an empty object of a kind that pods' volumes and runtime classes need, or nil for any other kind.
func blank(kind lastknown.Kind) runtime.Object {
	switch kind {
	case lastknown.KindClaim:
		return &v1.PersistentVolumeClaim{}
	case lastknown.KindVolume:
		return &v1.PersistentVolume{}
	case lastknown.KindDriver:
		return &storagev1.CSIDriver{}
	case lastknown.KindAttachment:
		return &storagev1.VolumeAttachment{}
	case lastknown.KindRuntimeClass:
		return &nodev1.RuntimeClass{}
	}
	return nil
}

func decode[T any](raw json.RawMessage) (*T, error) {
	if raw == nil {
		return nil, errors.New("it has no content")
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, err
	}
	return out, nil
}
