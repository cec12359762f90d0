package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelLease is the label of the leases with which several processes share a fleet. Its value says what the lease is for: fleet, shard or
// slice. These leases have the label LabelFleet, too.
const LabelLease = "wherry.dev/fleet-lease"

// These are the values of LabelLease.
const (
	leaseOfFleet = "fleet" // its annotations say what all shards have in common; nobody holds it
	leaseOfShard = "shard" // one process is alive
	leaseOfSlice = "slice" // one process runs the nodes of a slice
)

// These are the annotations of the lease of the fleet.
const (
	annotationShape  = "wherry.dev/fleet-shape"  // a checksum of what must be the same in all shards
	annotationCounts = "wherry.dev/fleet-counts" // the number of nodes of each group, as JSON; absent: those of the template
	annotationScaled = "wherry.dev/fleet-scaled" // how often the numbers have been changed
)

// The names of the leases. Neither names of fleets nor names of shards have dots, so that names never collide.
func fleetLease(fleet string) string        { return "fleet." + fleet }
func shardLease(fleet, shard string) string { return "fleet." + fleet + ".shard." + shard }
func sliceLease(fleet string, slice int) string {
	return fmt.Sprintf("fleet.%s.slice.%03d", fleet, slice)
}

// newLease returns a lease without a holder.
func newLease(fleet, name, of string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelFleet: fleet, LabelLease: of}}}
}

// hold writes a holder into a lease, which the caller then sends to the API server. "" releases the lease.
func hold(l *coordinationv1.Lease, holder string, now time.Time) {
	seconds, at := int32(shardDuration/time.Second), metav1.NewMicroTime(now)
	if holder != "" && holderOf(l) != holder {
		l.Spec.AcquireTime = &at
		transitions := int32(1)
		if l.Spec.LeaseTransitions != nil {
			transitions += *l.Spec.LeaseTransitions
		}
		l.Spec.LeaseTransitions = &transitions
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &seconds, &at
}

// holderOf returns the holder of a lease, or "".
func holderOf(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// sightings has, for each lease by its name, the version that was seen last, and since when. A lease has run out when nobody has changed it
// for its duration, as this process has seen it. So the clocks of other machines do not matter, and a list that is out of date does no
// harm: whoever takes a lease names the version that it has seen, and the API server refuses a version that is not the newest.
type sightings map[string]sighting

type sighting struct {
	version string
	since   time.Time
	changed bool // the lease has changed since it was first seen: its holder is alive
}

// note stores what a list of all leases of the fleet shows.
func (s sightings) note(all map[string]*coordinationv1.Lease, now time.Time) {
	maps.DeleteFunc(s, func(name string, _ sighting) bool { return all[name] == nil })
	for name, l := range all {
		if old, known := s[name]; !known || old.version != l.ResourceVersion {
			s[name] = sighting{l.ResourceVersion, now, known}
		}
	}
}

// longestDuration bounds the duration that a lease may ask for.
const longestDuration = 5 * time.Minute

// ranOut reports whether a lease has no holder any more.
func (s sightings) ranOut(l *coordinationv1.Lease, now time.Time) bool {
	if holderOf(l) == "" {
		return true
	}
	duration := shardDuration
	if l.Spec.LeaseDurationSeconds != nil {
		duration = max(duration, min(longestDuration, time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second))
	}
	seen, ok := s[l.Name]
	return ok && now.Sub(seen.since) >= duration
}

// liveFor is for how long a shard counts as alive after a renewal was seen. It is shorter than the duration of the lease, because it decides
// only how the slices are divided, and a process that has just started does not know how old the leases are that it finds.
const liveFor = shardFence

// crew returns what the leases say about a fleet. mine are the slices that the shard me holds; it knows better than a list, which may be out
// of date.
func (s sightings) crew(fleet, me string, all map[string]*coordinationv1.Lease, mine map[int]bool, slices int, now time.Time) crew {
	c := crew{live: []string{me}, holders: make([]string, slices)}
	for _, l := range all {
		if h := holderOf(l); l.Labels[LabelLease] == leaseOfShard && h != "" && h != me && now.Sub(s[l.Name].since) < liveFor {
			c.live = append(c.live, h)
		}
	}
	for i := range c.holders {
		l := all[sliceLease(fleet, i)]
		switch h := holderOf(l); {
		case mine[i]:
			c.holders[i] = me
		case h != me && l != nil && !s.ranOut(l, now):
			c.holders[i] = h
		}
	}
	return c
}

// shape returns a checksum of what must be the same in all shards of a fleet: the groups of nodes, and what else decides how nodes behave.
func shape(cfg *Config) (string, error) {
	text, err := json.Marshal(struct {
		Groups []Group
		Taint  bool
		Input  string
	}{cfg.Groups, cfg.Taint, cfg.Shard.Input})
	if err != nil {
		return "", fmt.Errorf("fleet: checksum of the groups: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// mostCounts bounds the annotation with the numbers of nodes in bytes.
const mostCounts = 64 << 10

// scaled returns how often the numbers of nodes have been changed.
func scaled(l *coordinationv1.Lease) int {
	n, err := strconv.Atoi(l.Annotations[annotationScaled])
	if err != nil {
		return 0
	}
	return n
}

// countsOf returns the number of nodes of each group that the lease of the fleet asks for. A group that it does not name keeps its number.
func countsOf(l *coordinationv1.Lease, groups []Group, have []int) ([]int, error) {
	text, want := l.Annotations[annotationCounts], slices.Clone(have)
	if text == "" {
		return want, nil
	}
	var counts map[string]int
	if len(text) > mostCounts {
		return nil, fmt.Errorf("annotation %s of lease %s has %d bytes, more than %d", annotationCounts, l.Name, len(text), mostCounts)
	}
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		return nil, fmt.Errorf("annotation %s of lease %s: %w", annotationCounts, l.Name, err)
	}
	total := 0
	for i := range groups {
		if n, ok := counts[groups[i].Name]; ok {
			want[i] = n
		}
		if want[i] < 0 || want[i] > MaxNodes {
			return nil, fmt.Errorf("annotation %s of lease %s: group %s: %d nodes: use 0 to %d", annotationCounts, l.Name, groups[i].Name, want[i], MaxNodes)
		}
		total += want[i]
	}
	if total > MaxNodes {
		return nil, fmt.Errorf("annotation %s of lease %s: %d nodes: at most %d", annotationCounts, l.Name, total, MaxNodes)
	}
	return want, nil
}

// setCounts writes the number of nodes of each group into the lease of the fleet.
func setCounts(l *coordinationv1.Lease, groups []Group, want []int) error {
	counts := map[string]int{}
	for i := range groups {
		counts[groups[i].Name] = want[i]
	}
	text, err := json.Marshal(counts)
	if err != nil {
		return err
	}
	l.Annotations[annotationCounts], l.Annotations[annotationScaled] = string(text), strconv.Itoa(scaled(l)+1)
	return nil
}

// checkShardName returns an error if the name is not valid as the name of a shard.
func checkShardName(name string) error {
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return errors.New("the name of a shard has at most 63 lower case letters, digits and dashes")
	}
	return nil
}
