package config

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// The table says for each honoured field when a change takes effect, or why it waits for a restart.
func TestChangesHasEveryHonouredField(t *testing.T) {
	t.Parallel()
	want := slices.Sorted(maps.Keys(Honoured()))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(changes))); diff != "" {
		t.Errorf("honoured fields against the table (-fields +changes):\n%s", diff)
	}
	for path, c := range changes {
		if c.text == "" {
			t.Errorf("%s: the table says neither when nor why", path)
		}
	}
}

// Compare takes the new values of fields that can change, and names the fields that wait. All others keep the value in effect.
func TestCompare(t *testing.T) {
	t.Parallel()
	base := func() *kubelet.KubeletConfiguration {
		c := baseConfig()
		defaultEviction(&c.Kubelet)
		c.Kubelet.StaticPodPath = "/a"
		return &c.Kubelet
	}
	for name, c := range map[string]struct {
		inEffect, next func(k *kubelet.KubeletConfiguration)
		live, waiting  []string
		check          func(k *kubelet.KubeletConfiguration) bool
	}{
		"nothing": {},
		"live fields": {
			next: func(k *kubelet.KubeletConfiguration) {
				k.EvictionHard = map[string]string{"memory.available": "1Gi"}
				k.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: time.Second}
				*k.PodPidsLimit, k.MemorySwap.SwapBehavior, k.ClusterDNS = 7, "LimitedSwap", []string{"10.0.0.1"}
			},
			live: []string{"clusterDNS", "crashLoopBackOff.maxContainerRestartPeriod", "evictionHard", "memorySwap.swapBehavior", "podPidsLimit"},
			check: func(k *kubelet.KubeletConfiguration) bool {
				return *k.PodPidsLimit == 7 && k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration == time.Second && k.MemorySwap.SwapBehavior == "LimitedSwap"
			},
		},
		"fields that wait": {
			next: func(k *kubelet.KubeletConfiguration) {
				k.Port, k.FeatureGates = 1, map[string]bool{"AllAlpha": true}
				k.UserNamespaces = &kubelet.UserNamespaces{IDsPerPod: new(int64(131072))}
			},
			waiting: []string{"featureGates", "port", "userNamespaces.idsPerPod"},
			check:   func(k *kubelet.KubeletConfiguration) bool { return k.Port != 1 && k.FeatureGates == nil },
		},
		"both": {
			next:    func(k *kubelet.KubeletConfiguration) { k.Port, k.MaxPods = 1, 7 },
			live:    []string{"maxPods"},
			waiting: []string{"port"},
			check:   func(k *kubelet.KubeletConfiguration) bool { return k.Port != 1 && k.MaxPods == 7 },
		},
		"a live field goes back": {
			inEffect: func(k *kubelet.KubeletConfiguration) { k.MaxPods = 7 },
			live:     []string{"maxPods"},
			check:    func(k *kubelet.KubeletConfiguration) bool { return k.MaxPods == 110 },
		},
		"a pointer that the agent has changed is compared with what was asked for": {
			inEffect: func(k *kubelet.KubeletConfiguration) { *k.EnableServer = false },
			check:    func(k *kubelet.KubeletConfiguration) bool { return !*k.EnableServer },
		},
		"a list becomes empty": {
			inEffect: func(k *kubelet.KubeletConfiguration) { k.AllowedUnsafeSysctls = []string{"net.*"} },
			live:     []string{"allowedUnsafeSysctls"},
			check:    func(k *kubelet.KubeletConfiguration) bool { return k.AllowedUnsafeSysctls == nil },
		},
		"another path of static pods": {
			next:  func(k *kubelet.KubeletConfiguration) { k.StaticPodPath = "/b" },
			live:  []string{"staticPodPath"},
			check: func(k *kubelet.KubeletConfiguration) bool { return k.StaticPodPath == "/b" },
		},
		"no path of static pods": {
			next:    func(k *kubelet.KubeletConfiguration) { k.StaticPodPath = "" },
			waiting: []string{"staticPodPath"},
			check:   func(k *kubelet.KubeletConfiguration) bool { return k.StaticPodPath == "/a" },
		},
		"a field without effect": {next: func(k *kubelet.KubeletConfiguration) { k.SystemCgroups = "/x" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started, inEffect, next := base(), base(), base()
			if c.inEffect != nil {
				c.inEffect(inEffect)
			}
			if c.next != nil {
				c.next(next)
			}
			before := inEffect.DeepCopy()
			got, d := Compare(started, inEffect, next)
			var waiting []string
			for _, w := range d.Waiting {
				waiting = append(waiting, w.Field)
				if w.Why == "" {
					t.Errorf("%s waits without a reason", w.Field)
				}
			}
			if diff := cmp.Diff([][]string{c.live, c.waiting}, [][]string{d.Live, waiting}); diff != "" {
				t.Errorf("live and waiting fields (-want +got):\n%s", diff)
			}
			if c.check != nil && !c.check(&got) {
				t.Errorf("wrong configuration: %+v", got)
			}
			if diff := cmp.Diff(before, inEffect); diff != "" {
				t.Errorf("Compare has changed what is in effect:\n%s", diff)
			}
			if len(d.Live) == 0 {
				if diff := cmp.Diff(*before, got); diff != "" {
					t.Errorf("no field is live, but (-before +after):\n%s", diff)
				}
			}
		})
	}
}
