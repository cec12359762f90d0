package nodestatus

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// change gives the value that p points to another, random value.
func change(p any, r *rand.Rand) {
	if to, ok := p.(*netip.Addr); ok {
		*to = netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(250))})
		return
	}
	if to, ok := p.(*[]netip.Addr); ok {
		*to = append(slices.Clone(*to), netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(250))}))
		return
	}
	fuzzfill.Fill(p, r)
}

// Same is false whenever a change of the facts changes the Node. Each field of the facts is changed alone, to random values; the fields
// that Same does not compare are named here.
func TestSameFactsMakeTheSameNode(t *testing.T) {
	t.Parallel()
	free := []string{"Now", "Clock", "Runtime.LastReady", "Pressure.Met", "Pressure.Missing", "Pressure.Next", "Pressure.State"}
	s, r := settings(t), rand.New(rand.NewPCG(1, 1))
	base := Update(s, facts(), &v1.Node{}).Node
	node := func(f *Facts) *v1.Node {
		n := Update(s, *f, base).Node
		for i := range n.Status.Conditions {
			c := &n.Status.Conditions[i]
			c.LastHeartbeatTime, c.LastTransitionTime = metav1.Time{}, metav1.Time{}
		}
		return n
	}
	old := facts()
	was := node(&old)
	var each func(path string, fields reflect.Type, index []int)
	each = func(path string, fields reflect.Type, index []int) {
		for i := range fields.NumField() {
			field := fields.Field(i)
			name, at := strings.TrimPrefix(path+"."+field.Name, "."), append(slices.Clone(index), i)
			if field.Type.Kind() == reflect.Struct && field.Type.PkgPath() != "time" && field.Type != reflect.TypeFor[netip.Addr]() && !slices.Contains(free, name) {
				each(name, field.Type, at)
				continue
			}
			differed, seen := false, false
			for range 50 {
				now := facts()
				change(reflect.ValueOf(&now).Elem().FieldByIndex(at).Addr().Interface(), r)
				same := old.Same(&now)
				if differs := !equality.Semantic.DeepEqual(was, node(&now)); same && differs {
					t.Fatalf("%s: the Node changes, and Same does not see it: %v", name, reflect.ValueOf(now).FieldByIndex(at))
				} else if differs {
					differed = true
				}
				seen = seen || !same
			}
			if differed && !seen || !seen && !slices.Contains(free, name) {
				t.Errorf("%s: Same never sees a change", name)
			}
		}
	}
	each("", reflect.TypeFor[Facts](), nil)
}

// Measurements that say the same are the same, although each has values of its own. A runtime that has not answered for long is a change.
func TestSameFacts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *Facts)
		want   bool
	}{
		"measured again":       {func(*Facts) {}, true},
		"a later answer":       {func(f *Facts) { f.Now, f.Runtime.LastReady = at(60), at(59) }, true},
		"no answer for 29 s":   {func(f *Facts) { f.Now = at(28) }, true},
		"no answer for 30 s":   {func(f *Facts) { f.Now = at(29) }, false},
		"never an answer":      {func(f *Facts) { f.Runtime.LastReady = time.Time{} }, false},
		"an error":             {func(f *Facts) { f.Runtime.Err = "no answer" }, false},
		"no status":            {func(f *Facts) { f.Runtime.Status = nil }, false},
		"network":              {func(f *Facts) { f.Runtime.Status.Status.Conditions[1].Status = false }, false},
		"a reason":             {func(f *Facts) { f.Runtime.Status.Status.Conditions[1].Reason = "r" }, false},
		"a message":            {func(f *Facts) { f.Runtime.Status.Status.Conditions[1].Message = "m" }, false},
		"user namespaces":      {func(f *Facts) { f.Runtime.Status.RuntimeHandlers[0].Features.UserNamespaces = false }, false},
		"read-only mounts":     {func(f *Facts) { f.Runtime.Status.RuntimeHandlers[0].Features.RecursiveReadOnlyMounts = false }, false},
		"a handler":            {func(f *Facts) { f.Runtime.Status.RuntimeHandlers[1].Name = "h" }, false},
		"groups":               {func(f *Facts) { f.Runtime.Status.Features.SupplementalGroupsPolicy = false }, false},
		"no features":          {func(f *Facts) { f.Runtime.Status.Features = nil }, false},
		"a tag of an image":    {func(f *Facts) { f.Images[0].RepoTags = []string{"small:2"} }, false},
		"a digest of an image": {func(f *Facts) { f.Images[0].RepoDigests = []string{"small@sha256:1"} }, false},
		"the size of an image": {func(f *Facts) { f.Images[0].Size++ }, false},
		"another image":        {func(f *Facts) { f.Images = append(f.Images, &runtimeapi.Image{Id: "3"}) }, false},
		"a volume":             {func(f *Facts) { f.VolumesInUse = []v1.UniqueVolumeName{"v"} }, false},
		"a device":             {func(f *Facts) { f.Devices.Capacity = v1.ResourceList{"d/d": resource.MustParse("1")} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, g := facts(), facts()
			if c.change(&g); f.Same(&g) != c.want || g.Same(&f) != c.want {
				t.Errorf("Same is %v and %v, want %v", f.Same(&g), g.Same(&f), c.want)
			}
		})
	}
}
