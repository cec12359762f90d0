package crispec

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// FuzzMessages makes the CRI messages of a random pod twice. It checks that this never panics, that the messages are equal both times,
// and that the pod is unchanged.
func FuzzMessages(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, shape uint8) {
		p := &v1.Pod{}
		r := rand.New(rand.NewPCG(seed, uint64(shape)))
		fuzzfill.Fill(p, r)
		before := p.DeepCopy()
		first, second := everything(t, p, shape), everything(t, p, shape)
		for i := range first {
			if !proto.Equal(first[i], second[i]) {
				t.Errorf("the same pod made two messages:\n%s\n%s", render(first[i]), render(second[i]))
			}
		}
		if !reflect.DeepEqual(before, p) {
			t.Error("the pod was changed")
		}
	})
}

func everything(t *testing.T, p *v1.Pod, shape uint8) []proto.Message {
	var out []proto.Message
	policy := testPolicy(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"test/policy": []string{"", "v2", "swap"}[shape%3]}}})
	if shape&8 != 0 {
		policy = Policy{}
	}
	dns, _ := DNS(DNSInput{Pod: p, ClusterDNS: []string{"10.0.0.1"}, ClusterDomain: "cluster.local"})
	out = append(out, dns)
	if s, err := Sandbox(SandboxInput{Pod: p, DNS: dns, Userns: testUserns(p), Policy: policy}); err == nil {
		out = append(out, s)
	}
	_, _ = HostsFile(HostsInput{Pod: p, PodIPs: []string{"10.0.0.1"}})
	ReferencedEnvObjects(p)
	for c := range Containers(p) {
		in := testEnv(p, c)
		in.Services = []*v1.Service{nil, {}, {Spec: v1.ServiceSpec{ClusterIP: "10.0.0.9"}}}
		env, err := Env(in)
		if err != nil {
			env = nil
		}
		config, err := Container(ContainerInput{
			Pod: p, Container: c, Env: env, Userns: testUserns(p), Policy: policy, Mounts: []*runtimeapi.Mount{{HostPath: "/h"}},
		})
		if err == nil {
			out = append(out, config)
		}
	}
	return out
}
