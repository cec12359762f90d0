package volumesim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// seeds is the number of runs of TestVolumes.
const seeds = 60

// run simulates a node for half an hour, with the planted bug b unless b is nil. It returns the rules that were broken.
func run(t *testing.T, seed uint64, b *bug) (broken []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, b)
		w.makePods()
		ctx, cancel := context.WithCancel(t.Context())
		beats := make(chan struct{})
		go func() { defer close(beats); w.heartbeat(ctx) }()
		until := time.Now().Add(30 * time.Minute)
		for a := w.start(ctx); ; a = w.start(ctx) {
			done := make(chan struct{})
			go func() { a.workers.Wait(); close(done) }()
			select {
			case <-a.ctx.Done(): // an injected fault has ended the agent
			case <-done:
			case <-time.After(time.Until(until)):
				w.set(func() { w.quiet = true })
				select {
				case <-done:
				case <-a.ctx.Done():
				case <-time.After(30 * time.Minute):
				}
			}
			quiet := false
			w.set(func() { quiet = w.quiet })
			a.end()
			a.ended.Store(true)
			<-done
			a.join()
			if w.settled() || quiet {
				break
			}
			if w.roll(4) == 0 { // a power cut
				broken = append(broken, named(w.csi.Broken())...)
				w.m.crash()
				w.newDriver()
			}
		}
		w.late.Wait()
		w.check()
		cancel()
		<-beats
		broken = append(append(broken, named(w.csi.Broken())...), w.m.broken...)
		if left := w.left(); len(left) > 0 {
			broken = append(broken, ruleEnding+": "+strings.Join(left, ", "))
		}
	})
	return broken
}

func named(broken []string) (all []string) {
	for _, b := range broken {
		all = append(all, ruleOnce+": "+b)
	}
	return all
}

// makePods makes the pods of a run.
func (w *world) makePods() {
	names := []string{"a", "b", "alone"}
	for i := range 8 {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("pod-", i))}}
		first := w.roll(len(names))
		for k := range 1 + w.roll(2) {
			name := names[(first+k)%len(names)]
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
		c := v1.Container{Name: "c"}
		for _, vol := range p.Spec.Volumes {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: vol.Name, MountPath: "/" + vol.Name})
		}
		p.Spec.Containers = []v1.Container{c}
		w.pods = append(w.pods, &simPod{pod: p, ends: time.Now().Add(time.Duration(5+w.roll(600)) * time.Second)})
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= seeds; seed++ {
		if broken := run(t, seed, nil); len(broken) > 0 {
			t.Errorf("seed %d: %s", seed, strings.Join(broken[:min(3, len(broken))], "\n"))
		}
	}
}

// TestPlanted plants, for every rule, a bug that breaks it, and fails if the simulation does not find it.
func TestPlanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, name string
		bug        bug
	}{
		{ruleOnce, "a volume is staged twice at once", bug{stagesTwice: true}},
		{ruleOnce, "a volume is taken for unpublished", bug{forgetsUnpublish: true}},
		{ruleDead, "a request is sent again later", bug{publishesLate: true}},
		{ruleInUse, "a volume is reported only when it is set up", bug{reportsOnlyDone: true}},
		{ruleBelow, "the directory of a pod is removed first", bug{removesPods: true}},
		{ruleAlone, "ReadWriteOncePod is taken for ReadWriteOnce", bug{sharesAlone: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= seeds; seed++ {
				for _, b := range run(t, seed, &c.bug) {
					if strings.HasPrefix(b, c.rule) {
						t.Logf("seed %d: %s", seed, b)
						return
					}
				}
			}
			t.Errorf("the simulation does not find the bug in %d runs", seeds)
		})
	}
}
