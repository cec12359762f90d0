package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// Shard makes a fleet one of several processes that run the nodes of one fleet together. The nodes are divided into slices. A process runs
// the nodes of a slice only while it holds the slice's Lease, so no node ever runs twice. The slices are divided evenly between the
// processes that are alive. When a process dies, the others take its slices within about 20 s; when it ends in an orderly way, within about 2
// s. Run never removes the nodes of such a fleet: see Clean and CleanShards.
type Shard struct {
	// Name is the name of this process. It must differ from those of the other processes. "": the fleet is not shared.
	Name string
	// Namespace is the namespace of the leases; "kube-system" when empty.
	Namespace string
	// Input is compared with that of the other processes, as the groups are: for example, a checksum of the files with rules. Processes
	// whose groups or inputs differ cannot share a fleet.
	Input string
}

// check sets the defaults, and returns an error for a field that is not valid.
func (s *Shard) check() error {
	if s.Name == "" {
		return nil
	}
	s.Namespace = cmp.Or(s.Namespace, metav1.NamespaceSystem)
	if err := checkShardName(s.Name); err != nil {
		return wrongConfig("Shard.Name", "%q: %w", s.Name, err)
	}
	if errs := validation.IsDNS1123Label(s.Namespace); len(errs) > 0 {
		return wrongConfig("Shard.Namespace", "%q: %s", s.Namespace, strings.Join(errs, "; "))
	}
	return nil
}

// These errors end the Run of a shard.
var (
	// ErrShape means that the other shards of the fleet were started with another number of nodes, or with other groups, taints or rules.
	ErrShape = errors.New("the other shards of the fleet were started with another number of nodes, or with other groups, taints or rules")
	// ErrShardRuns means that another process has the same name.
	ErrShardRuns = errors.New("another process is this shard")
)

// shard lets a Fleet share its nodes with other processes. It keeps the leases, and tells the fleet which slices it holds.
type shard struct {
	f      *Fleet
	api    leaseAPI
	id     string // the holder in the leases: the shard's name, and a text that no other process has
	shape  string
	claims *claims
	wake   chan struct{}

	// Only the goroutine of join, run and leave uses these.
	seen  sightings
	own   *coordinationv1.Lease // the lease of this shard; nil: the one of the last list counts
	ownAt time.Time             // when it was renewed

	mu      sync.Mutex            // comes before the fleet's lock
	record  *coordinationv1.Lease // the lease of the fleet
	scaled  int                   // the number of the change of counts that is in force
	peers   []Peer
	settled bool
}

// newShard returns the shard of a fleet. cfg.Shard.Name is set.
func newShard(f *Fleet, slices int) (*shard, error) {
	sum, err := shape(&f.cfg)
	if err != nil {
		return nil, err
	}
	s := &shard{
		f: f, api: f.api.Leases(f.cfg.Shard.Namespace), shape: sum, wake: make(chan struct{}, 1), seen: sightings{},
		id: f.cfg.Shard.Name + "_" + strconv.FormatUint(rand.Uint64(), 36),
	}
	s.claims = &claims{f: f, api: s.api, id: s.id, held: map[int]*claim{}}
	base := time.Now()
	for range slices {
		s.claims.permits = append(s.claims.permits, &permit{base: base})
	}
	return s, nil
}

// ownName returns the name of the lease of this shard.
func (s *shard) ownName() string { return shardLease(s.f.cfg.Name, s.f.cfg.Shard.Name) }

// list returns all leases of the fleet by name. With version "0" they may be out of date; with "" they are not.
func (s *shard) list(ctx context.Context, version string) (map[string]*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, shardRequest)
	defer cancel()
	got, err := s.api.List(ctx, metav1.ListOptions{LabelSelector: selectorOf(s.f.cfg.Name) + "," + LabelLease, ResourceVersion: version})
	if err != nil {
		return nil, fmt.Errorf("list the leases of the fleet in namespace %s: %w", s.f.cfg.Shard.Namespace, err)
	}
	all := map[string]*coordinationv1.Lease{}
	for i := range got.Items {
		all[got.Items[i].Name] = &got.Items[i]
	}
	s.seen.note(all, time.Now())
	return all, nil
}

// joinPace is the interval at which a shard that may not join yet looks again.
const joinPace = time.Second

// join lets the shard become one of the fleet's. It waits until leases have run out that are in its way: that of a process of the same name
// that was killed, and those of shards with other groups. It returns an error if those processes are alive. nodes are Nodes of the fleet in the
// API.
func (s *shard) join(ctx context.Context, nodes []string) error {
	said := false
	for {
		all, err := s.list(ctx, "")
		if err != nil {
			return err
		}
		wait, err := s.mustWait(all)
		if err != nil {
			return err
		}
		if wait == "" {
			joined, err := s.announce(ctx, all, nodes)
			if joined || err != nil {
				return err
			}
		} else if !said {
			said = true
			s.f.cfg.Log.Warn("this shard waits before it joins the fleet", "shard", s.f.cfg.Shard.Name, "until", wait)
		}
		if !pause(ctx, joinPace) {
			return ctx.Err()
		}
	}
}

// mustWait returns what the shard has to wait for; "": for nothing.
func (s *shard) mustWait(all map[string]*coordinationv1.Lease) (string, error) {
	now := time.Now()
	if own := all[s.ownName()]; own != nil && !s.seen.ranOut(own, now) {
		if s.seen[own.Name].changed {
			return "", fmt.Errorf("shard %s: %w: choose another name", s.f.cfg.Shard.Name, ErrShardRuns)
		}
		return "the lease of a process with the same name has run out", nil
	}
	record := all[fleetLease(s.f.cfg.Name)]
	if record == nil || record.Annotations[annotationShape] == s.shape {
		return "", nil
	}
	wait := ""
	for _, l := range all {
		if l == record || s.seen.ranOut(l, now) {
			continue
		}
		if l.Labels[LabelLease] == leaseOfShard && s.seen[l.Name].changed {
			runs, _, _ := strings.Cut(holderOf(l), "_")
			return "", fmt.Errorf("fleet %s: %w: use the same ones, or end the other shards first (the shard %s runs)", s.f.cfg.Name, ErrShape, runs)
		}
		wait = "the leases of shards with another number of nodes, or with other groups, taints or rules have run out"
	}
	return wait, nil
}

// announce writes the lease of the fleet, if it is missing or out of date, and that of the shard. joined is false if another process has
// changed one of them at the same time.
func (s *shard) announce(ctx context.Context, all map[string]*coordinationv1.Lease, nodes []string) (joined bool, err error) {
	record := all[fleetLease(s.f.cfg.Name)]
	if record == nil && len(all) == 0 { // the first shard ever
		if err := s.f.notRunning(ctx, nodes); err != nil {
			return false, err
		}
	}
	if record, err = s.writeRecord(ctx, record); err == nil {
		s.apply(record)
		s.own = all[s.ownName()]
		err = s.keepAlive(ctx, all)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// writeRecord creates the lease of the fleet, or replaces the shape in it if no shard needs the old one. A lease that is created again has
// the numbers of nodes that are in force.
func (s *shard) writeRecord(ctx context.Context, record *coordinationv1.Lease) (_ *coordinationv1.Lease, err error) {
	if record != nil && record.Annotations[annotationShape] == s.shape {
		return record, nil
	}
	ctx, cancel := context.WithTimeout(ctx, shardRequest)
	defer cancel()
	if record == nil {
		record = newLease(s.f.cfg.Name, fleetLease(s.f.cfg.Name), leaseOfFleet)
		record.Annotations = map[string]string{annotationShape: s.shape}
		s.mu.Lock()
		if s.record != nil {
			record.Annotations = maps.Clone(s.record.Annotations)
		}
		s.mu.Unlock()
		record, err = s.api.Create(ctx, record, metav1.CreateOptions{})
	} else {
		record = record.DeepCopy()
		record.Annotations = map[string]string{annotationShape: s.shape}
		record, err = s.api.Update(ctx, record, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("write the lease of the fleet in namespace %s: %w", s.f.cfg.Shard.Namespace, err)
	}
	return record, nil
}

// apply lets the fleet have the numbers of nodes that the lease of the fleet says.
func (s *shard) apply(record *coordinationv1.Lease) {
	n := scaled(record)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.record == nil, n >= scaled(s.record): // a list may be out of date
		s.record = record
	case s.record.UID != record.UID: // somebody deleted the lease, and another process, which did not know the numbers, created it again
		s.record, s.scaled = record, n
	}
	if n <= s.scaled {
		return
	}
	s.scaled = n
	err := s.f.changeWant(func(have []int) ([]int, error) { return countsOf(record, s.f.cfg.Groups, have) })
	if err != nil {
		s.f.cfg.Log.Error("the numbers of nodes stay as they are", "err", err)
	}
}

// scale writes other numbers of nodes into the lease of the fleet, from which each shard takes them. change gets the present numbers.
func (s *shard) scale(change func(have []int) ([]int, error)) error {
	s.mu.Lock()
	record := s.record
	want, err := s.f.changedWant(change)
	s.mu.Unlock()
	if record == nil {
		return errors.New("this shard has not joined the fleet yet: try again later")
	}
	if err != nil {
		return err
	}
	record = record.DeepCopy()
	if record.Annotations == nil {
		record.Annotations = map[string]string{}
	}
	if err := setCounts(record, s.f.cfg.Groups, want); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), shardRequest)
	defer cancel()
	got, err := s.api.Update(ctx, record, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return errors.New("the fleet was changed at the same time: try again")
	}
	if err != nil {
		return fmt.Errorf("change the number of nodes: %w", err)
	}
	s.apply(got)
	return nil
}

// keepAlive renews the lease of the shard if that is due. It returns ErrShardRuns if another process of the same name holds it.
func (s *shard) keepAlive(ctx context.Context, all map[string]*coordinationv1.Lease) error {
	if time.Since(s.ownAt) < shardRenew {
		return nil
	}
	l := s.own
	if l == nil {
		l = all[s.ownName()]
	}
	if l == nil {
		l = newLease(s.f.cfg.Name, s.ownName(), leaseOfShard)
	}
	if h := holderOf(l); h != s.id && h != "" && !s.seen.ranOut(l, time.Now()) {
		return fmt.Errorf("shard %s: %w (%s)", s.f.cfg.Shard.Name, ErrShardRuns, h)
	}
	got, sent, err := s.claims.write(ctx, l, s.id)
	if err != nil {
		if !sent.IsZero() {
			s.own = nil
		}
		return err
	}
	s.own, s.ownAt = got, sent
	return nil
}

// run keeps the leases and divides the slices until ctx ends. It returns an error if the fleet belongs to other processes now.
func (s *shard) run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() { s.claims.fence(ctx) })
	t := time.NewTimer(shardTick) // a shard takes slices only when the others can know it, so that several that start together share at once
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			s.claims.release(ctx, s.f.busy())
			continue
		case <-t.C:
		}
		if err := s.beat(ctx); err != nil {
			return err
		}
		t.Reset(shardTick)
	}
}

// wakeUp lets run release slices whose nodes have ended. It does not block.
func (s *shard) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// beat renews what is due, reads the leases, and does what they ask for.
func (s *shard) beat(ctx context.Context) error {
	s.claims.renew(ctx)
	s.claims.release(ctx, s.f.busy())
	version := "0"
	if len(s.claims.mine()) == 0 { // it may have been cut off for long: others may have replaced the fleet's shape, and with it the slices
		version = ""
	}
	all, err := s.list(ctx, version)
	if err != nil {
		s.f.cfg.Log.Warn("the leases of the fleet cannot be read; trying again", "err", err)
		return nil
	}
	if err := s.checkRecord(ctx, all); err != nil {
		return err
	}
	switch err := s.keepAlive(ctx, all); {
	case errors.Is(err, ErrShardRuns):
		return err
	case err != nil:
		s.f.cfg.Log.Warn("the lease of the shard was not renewed; trying again", "err", err)
	}
	s.claims.confirm(ctx, all)
	now := time.Now()
	c := s.seen.crew(s.f.cfg.Name, s.id, all, s.claims.mine(), len(s.claims.permits), now)
	p := c.plan(s.id)
	s.claims.give(p.give)
	s.claims.take(ctx, p.take, all)
	s.tidy(ctx, all, now)
	s.report(c, all, now)
	return nil
}

// checkRecord applies the lease of the fleet. It creates the lease again if somebody has deleted it.
func (s *shard) checkRecord(ctx context.Context, all map[string]*coordinationv1.Lease) error {
	record := all[fleetLease(s.f.cfg.Name)]
	if record == nil {
		if _, err := s.writeRecord(ctx, nil); err != nil && !apierrors.IsAlreadyExists(err) {
			s.f.cfg.Log.Warn("the lease of the fleet was deleted, and cannot be created again; trying again", "err", err)
		}
		return nil
	}
	if record.Annotations[annotationShape] != s.shape {
		return fmt.Errorf("fleet %s: %w", s.f.cfg.Name, ErrShape)
	}
	s.apply(record)
	return nil
}

// tidy deletes leases of shards that are dead, so that a process that starts later does not count on them. A shard that was cut off for long
// creates its lease again.
func (s *shard) tidy(ctx context.Context, all map[string]*coordinationv1.Lease, now time.Time) {
	for _, l := range all {
		if l.Labels[LabelLease] != leaseOfShard || l.Name == s.ownName() || !s.seen.ranOut(l, now) {
			continue
		}
		if err := s.remove(ctx, l); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.f.cfg.Log.Warn("the lease of a dead shard was not deleted", "lease", l.Name, "err", err)
		}
	}
}

// remove deletes a lease, if it is still as this process knows it.
func (s *shard) remove(ctx context.Context, l *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, shardRequest)
	defer cancel()
	return s.api.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &l.ResourceVersion}})
}

// leave releases all slices, whose nodes must have ended, and deletes the lease of the shard.
func (s *shard) leave(ctx context.Context) {
	s.claims.give(s.claims.chosen(func(*claim) bool { return true }))
	s.claims.release(ctx, nil)
	if s.own == nil {
		return
	}
	if err := s.remove(ctx, s.own); err != nil && !apierrors.IsNotFound(err) {
		s.f.cfg.Log.Warn("the lease of the shard was not deleted; it runs out by itself", "after", shardDuration, "err", err)
	}
}

// Peer is one of the processes that share a fleet.
type Peer struct {
	Name   string `json:"name"`
	Self   bool   `json:"self,omitempty"` // it is the process that was asked
	Slices int    `json:"slices"`
	// Nodes is how many nodes are in these slices.
	Nodes int `json:"nodes"`
	// Renewed is the time since this process has seen a renewal of the lease of the other one.
	Renewed time.Duration `json:"renewed"`
}

// ShardStatus is the state of one of the processes that share a fleet.
type ShardStatus struct {
	Name string `json:"name"`
	// Slices is how many slices this process holds, Of how many the fleet has, and Free how many nobody holds.
	Slices int `json:"slices"`
	Of     int `json:"of"`
	Free   int `json:"free"`
	// Nodes is how many nodes the whole fleet should have.
	Nodes int `json:"nodes"`
	// Settled means that each slice is held by the process that should hold it.
	Settled bool   `json:"settled"`
	Shards  []Peer `json:"shards"`
}

// report stores the state for status.
func (s *shard) report(c crew, all map[string]*coordinationv1.Lease, now time.Time) {
	sizes := s.f.sliceSizes()
	byID := map[string]*Peer{}
	for _, id := range c.live {
		name, _, _ := strings.Cut(id, "_")
		byID[id] = &Peer{Name: name, Self: id == s.id}
		if seen, ok := s.seen[shardLease(s.f.cfg.Name, name)]; ok { // a list that is out of date need not have the lease of this shard
			byID[id].Renewed = now.Sub(seen.since)
		}
	}
	for i, h := range c.holders {
		if p := byID[h]; p != nil {
			p.Slices++
			p.Nodes += sizes[i]
		}
	}
	peers := make([]Peer, 0, len(byID))
	for _, p := range byID {
		peers = append(peers, *p)
	}
	inorder.Sort(peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers, s.settled = peers, c.settled()
	s.f.look() // nodes may have joined before the slices were divided
}

// isDivided reports whether each slice is held by the process that should hold it.
func (s *shard) isDivided() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// status returns the state of the shard. sizes has the number of nodes of each slice.
func (s *shard) status(sizes []int) *ShardStatus {
	held := s.claims.chosen(func(cl *claim) bool { return !cl.giving })
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &ShardStatus{Name: s.f.cfg.Shard.Name, Slices: len(held), Of: len(sizes), Free: len(sizes), Settled: s.settled, Shards: slices.Clone(s.peers)}
	for i := range out.Shards {
		out.Free -= out.Shards[i].Slices
	}
	for _, n := range sizes {
		out.Nodes += n
	}
	return out
}
