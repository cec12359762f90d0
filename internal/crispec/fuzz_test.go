package crispec

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzMessages: whatever a pod holds, nothing panics; a message that is made can be sent, is made the same again,
// and the pod is as it was.
func FuzzMessages(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, shape uint8) {
		p := &v1.Pod{}
		r := rand.New(rand.NewPCG(seed, uint64(shape)))
		fill(reflect.ValueOf(p).Elem(), r, 0)
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

// fill sets a value at random, deep enough to reach every field of a container.
func fill(v reflect.Value, r *rand.Rand, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse([]string{"0", "1", "-1", "1n", "7Ei", "9223372036854775807", "1e30", "250m", "64Mi"}[r.IntN(9)])
		return
	case *metav1.Time, *metav1.FieldsV1:
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), r, depth+1)
			}
		}
	case reflect.Pointer:
		if r.IntN(3) == 0 && depth < 14 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), r, depth+1)
		}
	case reflect.Slice:
		if n := r.IntN(3); n > 0 && depth < 14 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(v.Index(i), r, depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(k, r, depth+1)
			fill(e, r, depth+1)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		words := []string{
			"", "a", "settings", "keys", "file", "cpu", "memory", "hugepages-2Mi", "limits.cpu", "requests.hugepages-2Mi", "$(a)", "metadata.labels['a']",
			"status.podIP", "Always", "Localhost", "RuntimeDefault", "None", "Strict", "SIGTERM", "x_y\x00", "spec.nodeName", "ClusterFirst",
			"kubernetes.io/config.source", "localhost/", "Guaranteed", "::1",
		}
		v.SetString(words[r.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 80, 1 << 31, -1 << 63, 1<<63 - 1}[r.IntN(7)])
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(r.Uint32()))
	}
}
