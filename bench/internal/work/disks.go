package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// These are the numbers of pods with volumes of a CSI driver: those that start and end at once, with one volume each, and those that rest,
// with many volumes each.
const (
	diskPods    = 50
	restPods    = 20
	disksOfAPod = 10
)

// disks measures pods with volumes of a CSI driver: how long they take to start and to end, and what many mounted volumes cost at rest.
func (s *Session) disks(ctx context.Context) (err error) {
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := s.Rig.MakeDisks(ready, restPods*disksOfAPod); err != nil {
		return err
	}
	driver, err := s.Agent.Disks(ready)
	if err != nil {
		return err
	}
	defer driver.Close()
	if err := s.sequence(ctx, "disk", s.Plan.Sequence, "one CSI volume, create to Ready", "one CSI volume, delete to gone", withDisks(0, 1)); err != nil {
		return err
	}
	if err := s.sequence(ctx, "kinds", s.Plan.Sequence, "ten volumes of three kinds, create to Ready", "ten volumes of three kinds, delete to gone", tenVolumes); err != nil {
		return err
	}
	if err := s.diskPods(ctx); err != nil {
		return err
	}
	return errors.Join(s.disksAtRest(ctx, driver), s.anew(ctx))
}

// diskPods starts and deletes many pods at once, each with a volume of its own.
func (s *Session) diskPods(ctx context.Context) error {
	names := s.named("disks", diskPods)
	claims := map[string]func(*v1.Pod){}
	for i, name := range names {
		claims[name] = withDisks(i, 1)
	}
	if err := s.atOnce(ctx, names, "pods with a CSI volume at once, create to Ready", func(p *v1.Pod) { claims[p.Name](p) }); err != nil {
		return err
	}
	return s.allGone(ctx, names, "pods with a CSI volume, delete to gone")
}

// disksAtRest measures the agent at rest with pods that have no volumes, and then with as many pods that have many.
func (s *Session) disksAtRest(ctx context.Context, driver *rig.Disks) error {
	for _, n := range []int{0, disksOfAPod} {
		what := fmt.Sprintf("%d CSI volumes", n*restPods)
		names := s.named(fmt.Sprintf("rest%d", n), restPods)
		claims := map[string]func(*v1.Pod){}
		for i, name := range names {
			claims[name] = withDisks(i*n, n)
		}
		if err := s.atOnce(ctx, names, "", func(p *v1.Pod) { claims[p.Name](p) }); err != nil {
			return err
		}
		if err := rig.Sleep(ctx, 10*time.Second); err != nil { // the work of the start ends
			return err
		}
		driver.Calls()
		took, err := s.cpu(ctx, what+", CPU at rest", 3*s.Plan.Rest)
		if err != nil {
			return err
		}
		s.Samples.add(what+", calls of the driver per minute", float64(driver.Calls())/took.Minutes())
		if err := s.memory(what); err != nil {
			return err
		}
		if err := s.allGone(ctx, names, what+", delete to gone"); err != nil {
			return err
		}
	}
	return nil
}

// withDisks returns a function that gives a pod n volumes of the CSI driver, from the volume with the number first on.
func withDisks(first, n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for i := range n {
			name := rig.Disk(first + i)
			mount(p, name, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
		}
	}
}

// tenVolumes gives a pod four volumes of the CSI driver, three ConfigMaps and three empty directories.
func tenVolumes(p *v1.Pod) {
	withDisks(0, 4)(p)
	for i := range 3 {
		name := rig.ConfigMap(i)
		mount(p, name, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}})
		mount(p, fmt.Sprint("empty-", i), v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	}
}

// mount adds a volume to a pod and mounts it in the pod's container.
func mount(p *v1.Pod, name string, source v1.VolumeSource) {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/volumes/" + name})
}
