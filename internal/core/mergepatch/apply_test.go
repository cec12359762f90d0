package mergepatch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
)

// Apply does what the library of the API server does, for random pods and patches.
func TestApplyAsTheAPIServer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 2))
		from, to := somePod(r), somePod(r)
		before, _ := json.Marshal(from)
		after, _ := json.Marshal(to)
		patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		other, now := somePod(r), from.DeepCopy() // the object may have changed since the patch was made
		now.Labels, now.Finalizers, now.Status, now.Spec.Volumes = other.Labels, other.Finalizers, other.Status, other.Spec.Volumes
		base, _ := json.Marshal(now)
		for _, doc := range [][]byte{before, base} {
			want, err := strategicpatch.StrategicMergePatch(doc, patch, v1.Pod{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := mergepatch.Apply(doc, patch, &v1.Pod{})
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, patch)
			}
			var w, g v1.Pod
			if json.Unmarshal(want, &w) != nil || json.Unmarshal(got, &g) != nil {
				t.Fatalf("%s\n%s", want, got)
			}
			var options []cmp.Option
			if strings.Contains(string(patch), `"$patch":"delete"`) { // here the library's order depends on how it reuses its slices
				options = append(options, cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) }))
			}
			if diff := cmp.Diff(w, g, options...); diff != "" {
				t.Fatalf("seed %d: (-library +ours)\n%s\nobject %s\npatch %s", seed, diff, doc, patch)
			}
		}
	}
}

// somePod returns a pod with lists of every kind: merged by a key, of plain values, and replaced.
func somePod(r *rand.Rand) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{}}}
	some := func(names string, add func(name string)) {
		all := strings.Fields(names)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, n := range all[:r.IntN(len(all)+1)] {
			add(n)
		}
	}
	text := func() string { return fmt.Sprint(r.IntN(3)) }
	some("a b c", func(n string) { p.Labels[n] = text() })
	some("f g h", func(n string) { p.Finalizers = append(p.Finalizers, n) })
	some("x y z", func(n string) {
		c := v1.Container{Name: n, Image: text()}
		some("A B C D", func(n string) { c.Env = append(c.Env, v1.EnvVar{Name: n, Value: text()}) })
		some("1 2", func(n string) { c.Args = append(c.Args, n) })
		p.Spec.Containers = append(p.Spec.Containers, c)
	})
	some("v w", func(n string) {
		v := v1.Volume{Name: n}
		if r.IntN(2) == 0 {
			v.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMedium(text())}
		} else {
			v.HostPath = &v1.HostPathVolumeSource{Path: text()}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	})
	some("k l", func(n string) { p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: n, Value: text()}) })
	some("Ready Initialized Other", func(n string) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodConditionType(n), Status: v1.ConditionStatus(text())})
	})
	if r.IntN(2) == 0 {
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "s", Value: text()}}}
		p.Status.Message = text()
	}
	return p
}

// Apply refuses what it does not know, and follows the directives that no diff makes.
func TestApplyDirectives(t *testing.T) {
	t.Parallel()
	const doc = `{"metadata":{"labels":{"a":"1"}},"status":{"podIPs":[{"ip":"1"}],"message":"m"}}`
	for patch, want := range map[string]string{
		`{"status":{"$patch":"replace","reason":"r"}}`:                      `{"metadata":{"labels":{"a":"1"}},"status":{"reason":"r"}}`,
		`{"status":{"podIPs":[{"$patch":"replace"},{"ip":"2"}]}}`:           `{"metadata":{"labels":{"a":"1"}},"status":{"message":"m","podIPs":[{"ip":"2"}]}}`,
		`{"metadata":{"labels":{"$patch":"delete"}},"status":null}`:         `{"metadata":{"labels":{}}}`,
		`{"status":{"$patch":"explode"}}`:                                   `status: $patch: explode is unknown`,
		`{"status":{"podIPs":[{"ipv4":"2"}]}}`:                              `status: podIPs: an element has no ip`,
		`{"status":{"$what":1}}`:                                            `status: $what: the directive is unknown`,
		`{"metadata":{"unknown":{"n":12345678901234567890}},"status":null}`: `{"metadata":{"labels":{"a":"1"},"unknown":{"n":12345678901234567890}}}`,
	} {
		got, err := mergepatch.Apply([]byte(doc), []byte(patch), v1.Pod{})
		if err != nil {
			got = []byte(err.Error())
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s: %s", patch, diff)
		}
	}
}
