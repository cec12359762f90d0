package agenttest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// shortWorlds is how many machines TestSimShort simulates.
const shortWorlds = 40

// TestSimShort lets machines run short of memory and of disk space. Random pods of all priorities come, use memory and disk, and may ignore
// SIGTERM; the agent is killed and restarted. The Witness, which observes the runtime and the API, checks each stop of a container. The
// test also checks that an evicted pod stays Failed, that no critical pod is evicted, that no image is removed which a pod needs, and that
// the pressure ends if something can be freed.
func TestSimShort(t *testing.T) {
	t.Parallel()
	n := shortWorlds
	if testing.Short() {
		n /= 4
	}
	evictions := 0
	for seed := range uint64(n) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { evictions += simShort(t, seed+1) }) {
			return
		}
	}
	if evictions < n/2 {
		t.Errorf("%d pods were evicted on %d machines: they show little", evictions, n)
	}
}

func simShort(t *testing.T, seed uint64) (evictions int) {
	r := rand.New(rand.NewPCG(seed, 17))
	cfg := Config{
		Seed: seed, Memory: "8Gi", Storage: "20Gi",
		// These limits are a little lower than the agent's thresholds, because usage may fall between the agent's measurement and the stop.
		Short: func(memory, disk int64) bool { return memory > 7<<30-64<<20 || disk > 18<<30-64<<20 },
		Runtime: simcri.Config{Pull: func(string) simcri.Pull {
			return simcri.Pull{Took: time.Second, Size: 1 << 30}
		}},
		Agent: func(c *agent.Config) {
			thresholds(map[string]string{"memory.available": "1Gi", "nodefs.available": "2Gi"})(c)
			c.Kubelet.ImageGCHighThresholdPercent = new(int32(85))
		},
	}
	Run(t, cfg, func(w *World) {
		evicted := map[types.UID]string{}
		for i := range 12 {
			p := anyPod(r, i)
			w.Create(p)
			time.Sleep(time.Duration(r.IntN(60)) * time.Second)
			switch r.IntN(10) {
			case 0:
				w.CrashAgent(r.IntN(2) == 0)
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				w.StartAgent()
			case 1:
				w.RestartAgent(time.Duration(r.IntN(3000)) * time.Millisecond)
			}
			w.noteEvicted(evicted)
		}
		time.Sleep(20 * time.Minute)
		w.noteEvicted(evicted)
		evictions = len(evicted)
		if w.canFree() { // wait, because the pressure may be back: some pods use more and more memory
			w.Await("no pressure", 10*time.Minute, func() bool {
				return w.condition(v1.NodeMemoryPressure) == v1.ConditionFalse && w.condition(v1.NodeDiskPressure) == v1.ConditionFalse
			})
		}
	})
	return evictions
}

// anyPod returns a random pod: it may use more and more memory, write to the disk, be critical, or take long to end.
func anyPod(r *rand.Rand, i int) *v1.Pod {
	p := Pod(fmt.Sprintf("p%d", i), using(100+r.IntN(700), pick(r, 0, 0, 1, 20)), writing(r.IntN(500), pick(r, 0, 0, 2, 30)), withImage(fmt.Sprintf("registry.example/i%d:1", r.IntN(6))))
	if r.IntN(2) == 0 {
		requesting([]string{"100Mi", "500Mi", "1Gi"}[r.IntN(3)])(p)
	}
	if n := r.IntN(5); n < 3 {
		withPriority([]int32{-10, 1000, 2_000_000_000}[n])(p)
	}
	if p.Spec.Priority != nil && *p.Spec.Priority > 1000 { // a critical pod that used up the memory would displace all other pods
		using(200, 0)(p)
		writing(100, 0)(p)
	}
	if r.IntN(3) == 0 {
		p.Annotations[simcri.AnnotationStopAfter] = []string{"1s", "never"}[r.IntN(2)]
	}
	return p
}

func pick(r *rand.Rand, of ...int) int { return of[r.IntN(len(of))] }

// noteEvicted adds the pods that are evicted now to seen, and checks that all pods in seen are still evicted.
func (w *World) noteEvicted(seen map[types.UID]string) {
	w.Helper()
	for _, p := range w.Kube.Pods() {
		is := p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted"
		if _, was := seen[p.UID]; was && !is {
			w.Errorf("%s was evicted, and is %s %s", p.Name, p.Status.Phase, p.Status.Reason)
		}
		if is {
			seen[p.UID] = p.Name
			if crispec.IsCritical(p) {
				w.Errorf("%s is critical and was evicted", p.Name)
			}
		}
	}
}

// canFree reports whether any running pod may be evicted.
func (w *World) canFree() bool {
	for _, p := range w.Kube.Pods() {
		if p.Status.Phase == v1.PodRunning && !crispec.IsCritical(p) {
			return true
		}
	}
	return false
}
