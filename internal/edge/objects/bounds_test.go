package objects

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// env adds n optional ConfigMaps, named from first on, to the environment of the pod's container.
func env(p *v1.Pod, first, n int) {
	if len(p.Spec.Containers) == 0 {
		p.Spec.Containers = []v1.Container{{Name: "c"}}
	}
	for i := range n {
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: fmt.Sprintf("c%d", first+i)}, Optional: ptr(true)}})
	}
}

// debug adds a debug container whose environment is from n optional ConfigMaps, named from first on.
func debug(p *v1.Pod, first, n int) {
	its := &v1.Pod{}
	env(its, first, n)
	c := v1.EphemeralContainerCommon(its.Spec.Containers[0])
	c.Name = "debug"
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: c})
}

// volumes adds n volumes to the pod.
func volumes(p *v1.Pod, n int, source func(i int) v1.VolumeSource) {
	for i := range n {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprintf("v%d-%d", len(p.Spec.Volumes), i), VolumeSource: source(i)})
	}
}

func projectedFrom(sources ...v1.VolumeProjection) v1.VolumeSource {
	return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	secretVolume := func(i int) v1.VolumeSource {
		return v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: fmt.Sprintf("s%d", i)}}
	}
	claim := func(i int) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("claim%d", i)}}
	}
	token := func(i int) v1.VolumeProjection {
		return v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: fmt.Sprint(i), Path: "token"}}
	}
	oneToken := func(i int) v1.VolumeSource { return projectedFrom(token(i)) }
	for _, tt := range []struct {
		name string
		make func(p *v1.Pod)
		want string // what the error contains; "": none
	}{
		{"no references", func(*v1.Pod) {}, ""},
		{"as many as allowed", func(p *v1.Pod) {
			env(p, 0, 500)
			volumes(p, 500, secretVolume)
			volumes(p, 24, claim)
		}, ""},
		{"one more", func(p *v1.Pod) {
			env(p, 0, 500)
			volumes(p, 500, secretVolume)
			volumes(p, 24, claim)
			volumes(p, 1, func(int) v1.VolumeSource { return v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}} })
		}, "refers to 1025 ConfigMaps, Secrets and PersistentVolumeClaims, and a pod may refer to at most 1024"},
		{"few objects, each very often", func(p *v1.Pod) {
			for range 1000 {
				env(p, 0, 5)
				volumes(p, 2, secretVolume)
				volumes(p, 2, claim)
			}
		}, ""},
		{"objects of init containers", func(p *v1.Pod) {
			env(p, 0, 1000)
			from := p.Spec.Containers[0].EnvFrom
			p.Spec.Containers = nil
			env(p, 1000, 500)
			p.Spec.InitContainers = []v1.Container{{EnvFrom: from}}
		}, "refers to 1500 ConfigMaps"},
		{"objects of a debug container", func(p *v1.Pod) {
			env(p, 0, 1000)
			debug(p, 1000, 500)
		}, ""},
		{"as many sources as allowed", func(p *v1.Pod) { volumes(p, 128, oneToken) }, ""},
		{"one source more", func(p *v1.Pod) { volumes(p, 129, oneToken) },
			"129 sources of service account tokens, certificates and trust bundles, and a pod may have at most 128"},
		{"sources of all kinds in one volume", func(p *v1.Pod) {
			var all []v1.VolumeProjection
			for i := range 50 {
				all = append(all, token(i), certifying("ED25519"), v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "ca"}})
			}
			volumes(p, 1, func(int) v1.VolumeSource { return projectedFrom(all...) })
		}, "150 sources"},
		{"sources of other kinds", func(p *v1.Pod) {
			var all []v1.VolumeProjection
			for range 1000 {
				all = append(all, v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{}},
					v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}}})
			}
			volumes(p, 1, func(int) v1.VolumeSource { return projectedFrom(all...) })
		}, ""},
	} {
		p := podWith("1")
		tt.make(p)
		err := TooMany(p)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "several pods")):
			t.Errorf("%s: %v, want %q and what to do", tt.name, err, tt.want)
		}
	}
}

// The references of debug containers count only for debug containers: one that makes them too many does not start, and the pod goes on as before.
func TestTooManyOfADebugContainer(t *testing.T) {
	t.Parallel()
	p := podWith("1")
	env(p, 0, 1000)
	debug(p, 1000, 24)
	if err := TooManyFor(p, "debug"); err != nil {
		t.Errorf("as many as allowed: %v", err)
	}
	debug(p, 1024, 1)
	if err := TooManyFor(p, "debug"); err == nil || !strings.Contains(err.Error(), "with its debug containers, the pod refers to 1025 ConfigMaps") {
		t.Errorf("one more: %v", err)
	}
	if err := TooManyFor(p, "c"); err != nil {
		t.Errorf("a container of the pod: %v", err)
	}
}

// Nothing is read or watched for a pod that refers to too many objects. If a debug container makes them too many, what the pod itself refers to is watched on.
func TestNothingIsFollowedForAPodWithTooManyReferences(t *testing.T) {
	t.Parallel()
	cfg := watchOnly
	run(t, cfg, func(t *testing.T, w *world) {
		p := podWith("1")
		env(p, 0, 5000)
		w.Track(p)
		tokens := podWith("2", "a")
		var sources []v1.VolumeProjection
		for range 200 {
			sources = append(sources, certifying("ED25519"), v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr("b"), Path: "ca"}})
		}
		volumes(tokens, 1, func(int) v1.VolumeSource { return projectedFrom(sources...) })
		w.Track(tokens)
		time.Sleep(time.Hour)
		if n := w.openWatches(); n != 0 || len(w.requests) != 0 {
			t.Errorf("%d watches and the requests %v, want none", n, w.requests)
		}

		grown := podWith("3", "a")
		w.Track(grown)
		if n := w.openWatches(); n != 1 {
			t.Fatalf("%d watches of a pod with one reference, want 1", n)
		}
		debug(grown, 0, 10)
		w.Track(grown)
		if n := w.openWatches(); n != 11 {
			t.Errorf("%d watches of a pod with a debug container, want 11", n)
		}
		debug(grown, 10, 1024)
		w.Track(grown)
		if n := w.openWatches(); n != 1 {
			t.Errorf("%d watches after a debug container has too many references, want 1", n)
		}
		env(grown, 0, 1024)
		w.Track(grown)
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches after the pod got too many references, want 0", n)
		}
		w.Forget("1")
		w.Forget("2")
		w.Forget("3")
	})
}
