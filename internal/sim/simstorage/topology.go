package simstorage

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/core/inorder"
)

// site is a place where a driver can have volumes: labels of Nodes.
type site map[string]string

// sitesFor is how long the sites of all nodes are used before they are read again.
const sitesFor = 10 * time.Second

// sites keeps the sites of drivers for a while. The zero value is ready.
type sites struct {
	mu sync.Mutex
	at time.Time
	by map[string][]site // by driver, without doubles
}

// affinity returns where a volume can be used: at the site of the node or, if no node was chosen, at one of the class. It returns nil if the
// driver's volumes can be used everywhere.
func (s *Storage) affinity(ctx context.Context, driver, node string, class *storagev1.StorageClass, c *v1.PersistentVolumeClaim) (*v1.VolumeNodeAffinity, error) {
	var at site
	var err error
	if node != "" {
		at, err = s.siteOf(ctx, driver, node)
	} else {
		at, err = s.chosen(ctx, driver, class, c)
	}
	if err != nil || len(at) == 0 {
		return nil, err
	}
	var term v1.NodeSelectorTerm
	for _, key := range slices.Sorted(maps.Keys(at)) {
		term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{at[key]}})
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}, nil
}

// siteOf returns the site of a driver on a node.
func (s *Storage) siteOf(ctx context.Context, driver, name string) (site, error) {
	own, err := s.cfg.API.CSINodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find driver %s on node %s: %w", driver, name, err)
	}
	keys, ok := keysOf(own, driver)
	switch {
	case !ok:
		return nil, fmt.Errorf("node %s does not have driver %s", name, driver)
	case len(keys) == 0:
		return nil, nil
	}
	node, err := s.cfg.API.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return labelled(node, keys), nil
}

func keysOf(n *storagev1.CSINode, driver string) (keys []string, ok bool) {
	for _, d := range n.Spec.Drivers {
		if d.Name == driver {
			return d.TopologyKeys, true
		}
	}
	return nil, false
}

func labelled(n *v1.Node, keys []string) site {
	out := site{}
	for _, key := range keys {
		if value, ok := n.Labels[key]; ok {
			out[key] = value
		}
	}
	return out
}

// chosen returns one of the sites of a driver that the class allows. The claim's name decides which.
func (s *Storage) chosen(ctx context.Context, driver string, class *storagev1.StorageClass, c *v1.PersistentVolumeClaim) (site, error) {
	all, err := s.all(ctx, driver)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(at site) bool { return !allowed(at, class.AllowedTopologies) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no node has driver %s at a place that the storage class %s allows", driver, class.Name)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Namespace + "/" + c.Name))
	return all[int(h.Sum32()%uint32(len(all)))], nil
}

// allowed reports whether a site matches one of the terms. No terms allow every site.
func allowed(at site, terms []v1.TopologySelectorTerm) bool {
	return len(terms) == 0 || slices.ContainsFunc(terms, func(t v1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchLabelExpressions, func(e v1.TopologySelectorLabelRequirement) bool { return !slices.Contains(e.Values, at[e.Key]) })
	})
}

// all returns the sites of a driver on all nodes.
func (s *Storage) all(ctx context.Context, driver string) ([]site, error) {
	s.sites.mu.Lock()
	defer s.sites.mu.Unlock()
	if s.sites.by != nil && time.Since(s.sites.at) < sitesFor {
		return s.sites.by[driver], nil
	}
	labels := map[string]*v1.Node{}
	opts := metav1.ListOptions{Limit: kubeclient.PageSize}
	for {
		l, err := s.cfg.API.Nodes().List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		for i := range l.Items {
			labels[l.Items[i].Name] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: l.Items[i].Labels}}
		}
		if opts.Continue = l.Continue; opts.Continue == "" {
			break
		}
	}
	by, seen := map[string][]site{}, map[string]bool{}
	for {
		l, err := s.cfg.API.CSINodes().List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list the drivers of the nodes: %w", err)
		}
		for i := range l.Items {
			n := labels[l.Items[i].Name]
			for _, d := range l.Items[i].Spec.Drivers {
				if n == nil || !s.has(d.Name) {
					continue
				}
				at := labelled(n, d.TopologyKeys)
				if id := d.Name + "^" + at.String(); !seen[id] {
					seen[id] = true
					by[d.Name] = append(by[d.Name], at)
				}
			}
		}
		if opts.Continue = l.Continue; opts.Continue == "" {
			break
		}
	}
	for _, list := range by {
		inorder.Sort(list, func(a, b site) int { return strings.Compare(a.String(), b.String()) })
	}
	s.sites.at, s.sites.by = time.Now(), by
	return by[driver], nil
}

// String returns the labels in the order of their keys.
func (at site) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(at)) {
		b.WriteString(key + "=" + at[key] + ",")
	}
	return b.String()
}
