package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// whyStory brings the pod "web" of a node with an API server into one situation, and has the cause that the agent must name.
type whyStory struct {
	name   string // describes how the situation is made; docs/explain.md shows it
	config func(*Config)
	happen func(w *World) // brings the pod into the situation; then the test asks the agent for the cause
	cause  why.Cause
	says   string // text that the answer must contain
}

var whyStories = []whyStory{
	{name: "ListPodSandbox hangs when an agent starts", cause: why.NotLooked, happen: func(w *World) {
		w.Create(Pod("web"))
		w.WaitReady("web")
		w.StopAgent()
		w.Runtime.Inject(simcri.Fault{Method: "ListPodSandbox", Effect: simcri.Hang})
		w.StartAgent()
		time.Sleep(20 * time.Second)
	}},
	{name: "the disk takes a minute to write the checkpoint of the pod's end", cause: why.NoAnswer, happen: func(w *World) {
		w.Create(Pod("web"))
		w.WaitReady("web")
		w.SetDiskSlow(time.Minute)
		w.Delete("web", 30)
		time.Sleep(20 * time.Second)
	}},
	{name: "a critical pod waits for the end of a pod that it preempts", cause: why.AdmissionWaits, happen: func(w *World) {
		big := w.Create(Pod("big", cpu("60"), Annotate(simcri.AnnotationStopAfter, "never")))
		w.WaitReady("big")
		w.Witness.force(big)
		w.Create(Pod("web", cpu("50", priority(2_000_000_000))))
		time.Sleep(15 * time.Second)
	}},
	{name: "a critical pod needs the CPUs of the pod", cause: why.Preempted, happen: func(w *World) {
		web := w.Create(Pod("web", cpu("60")))
		w.WaitReady("web")
		w.Witness.force(web)
		w.Create(Pod("critical", cpu("50", priority(2_000_000_000))))
		w.WaitReady("critical")
		time.Sleep(10 * time.Second)
	}},
	{name: "the pod uses up the memory of the node", cause: why.Evicted, says: "memory", config: func(c *Config) {
		c.Memory, c.Short, c.Agent = "4Gi", shortOfMemory, thresholds(map[string]string{"memory.available": "1Gi"})
	}, happen: func(w *World) {
		w.Create(Pod("web", using(1000, 100)))
		w.Await("it is evicted", 2*time.Minute, func() bool { return w.evicted("web") })
	}},
	{name: "the node has a NoExecute taint that the pod does not tolerate", cause: why.TaintRefuses, says: "broken=yes:NoExecute", happen: func(w *World) {
		w.Await("the node is Ready", time.Minute, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		w.patchNode(`{"spec":{"taints":[{"key":"broken","value":"yes","effect":"NoExecute"}]}}`)
		time.Sleep(10 * time.Minute) // the node reads its taints with its status
		w.Create(Pod("web"))
		w.WaitPhase("web", v1.PodFailed)
	}},
	{name: "another pod has the hostPort of the pod", cause: why.PortTaken, says: "port 8080/TCP of the host is used by pod default/other", happen: func(w *World) {
		at8080 := func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}} }
		w.Create(Pod("other", at8080))
		w.WaitReady("other")
		w.Create(Pod("web", at8080))
		w.WaitPhase("web", v1.PodFailed)
	}},
	{name: "the checkpoint of a pod that asks for other labels is lost", cause: why.LabelsDiffer, says: "nodeSelector", config: func(c *Config) { c.Forgetful = true }, happen: func(w *World) {
		w.Create(Pod("web", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
		w.WaitPhase("web", v1.PodFailed)
		w.RestartAgent(time.Second)
		time.Sleep(time.Minute)
	}},
	{name: "the nodeSelector of the pod names a label that the node does not have", cause: why.LabelsDiffer, says: "disk=fast", happen: func(w *World) {
		w.Create(Pod("web", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
		w.WaitPhase("web", v1.PodFailed)
	}},
	{name: "the memory of the node is short, and the pod has no requests", cause: why.PressureRefuses, says: "MemoryPressure", config: func(c *Config) {
		c.Memory, c.Short, c.Agent = "4Gi", shortOfMemory, thresholds(map[string]string{"memory.available": "1Gi"})
	}, happen: func(w *World) {
		w.Create(Pod("other", using(1000, 100)))
		w.Await("it is evicted", 2*time.Minute, func() bool { return w.evicted("other") })
		w.Create(Pod("web"))
		w.WaitPhase("web", v1.PodFailed)
	}},
	{name: "the pod has the supplementalGroupsPolicy Strict, which the runtime does not support", cause: why.GroupsPolicyRefuses, says: "Merge", config: func(c *Config) {
		c.Runtime.NoGroupsPolicy = true
	}, happen: func(w *World) {
		w.Create(Pod("web", func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
		}))
		w.WaitPhase("web", v1.PodFailed)
	}},
	{name: "an agent before this one refused the pod for a reason that this one does not have", cause: why.Refused, says: "cannot allocate device", happen: func(w *World) {
		w.StopAgent()
		web := w.Create(Pod("web"))
		w.patch("web", `{"status":{"phase":"Failed","reason":"UnexpectedAdmissionError","message":"cannot allocate device"}}`, "status")
		w.Witness.force(web)
		w.StartAgent()
		time.Sleep(time.Minute)
	}},
	shutDown("the machine shuts down"),
	{name: "a client sets status.phase of the pod to Failed, with a reason", cause: why.Stopped, says: "NodeLost", happen: func(w *World) {
		web := w.Create(Pod("web"))
		w.WaitReady("web")
		w.Witness.force(web)
		w.patch("web", `{"status":{"phase":"Failed","reason":"NodeLost","message":"the node was lost"}}`, "status")
		time.Sleep(30 * time.Second)
	}},
	{name: "the directories of an ended pod cannot be removed (EIO)", cause: why.TearDownFails, says: "input/output error", happen: func(w *World) {
		w.Create(Pod("web"))
		w.WaitReady("web")
		w.SetDisk(DiskFault{Volumes: syscall.EIO})
		w.Delete("web", 5)
		time.Sleep(20 * time.Second)
	}},
	{name: "the directories of a new pod cannot be made (EIO)", cause: why.SetUpFails, says: "input/output error", happen: func(w *World) {
		w.SetDisk(DiskFault{Volumes: syscall.EIO})
		w.Create(Pod("web"))
		time.Sleep(20 * time.Second)
	}},
	slowDirectories("the disk takes two minutes to make the directories of the pod", why.SetUpRuns, func(w *World, slow *atomic.Bool) {
		slow.Store(true)
		w.Create(Pod("web"))
	}),
	slowDirectories("the disk takes two minutes to remove the directories of the pod", why.TearDownRuns, func(w *World, slow *atomic.Bool) {
		w.Create(Pod("web"))
		w.WaitReady("web")
		slow.Store(true)
		w.Delete("web", 5)
	}),
	{name: "a deleted pod has a finalizer", cause: why.FinalizersRemain, says: "example.com/keep", happen: func(w *World) {
		w.Create(Pod("web", func(p *v1.Pod) { p.Finalizers = []string{"example.com/keep"} }))
		w.WaitReady("web")
		w.Delete("web", 5)
		time.Sleep(30 * time.Second)
	}},
	{name: "the API server does not answer the deletion of an ended pod", cause: why.Removing, happen: func(w *World) {
		w.Create(Pod("web"))
		w.WaitReady("web")
		w.Kube.Inject(simkube.Fault{Verb: "delete", Resource: "pods", Agent: agentName, Effect: simkube.Hang})
		w.Delete("web", 5)
		time.Sleep(20 * time.Second)
	}},
	{name: "a pod of the same name was deleted with force and still ends", cause: why.PredecessorRemains, happen: func(w *World) {
		old := Pod("web", Annotate(simcri.AnnotationStopAfter, "50s"), func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(60)) })
		w.Create(old.DeepCopy())
		w.WaitReady("web")
		w.Runtime.Inject(simcri.Fault{Method: "StopContainer", Pod: "web", Effect: simcri.Slow, Delay: 40 * time.Second})
		w.Delete("web", 0)
		w.Create(old.DeepCopy())
		time.Sleep(15 * time.Second)
	}},
	{name: "the node starts one pod at a time, and another one takes 90 s", cause: why.Queued, says: "number 1 of 2 pods", config: func(c *Config) {
		c.Agent = func(c *agent.Config) { c.StartSlots = 1 }
	}, happen: func(w *World) {
		w.Runtime.Inject(simcri.Fault{Method: "RunPodSandbox", Pod: "first", Effect: simcri.Slow, Delay: 90 * time.Second})
		w.Create(Pod("first"))
		time.Sleep(2 * time.Second)
		w.Create(Pod("web"))
		time.Sleep(time.Second)
		w.Create(Pod("last"))
		time.Sleep(5 * time.Second)
	}},
	{name: "the runtime reports that its network is not ready", cause: why.NetworkNotReady, says: "cni plugin not initialized", happen: func(w *World) {
		w.Runtime.SetCondition(runtimeapi.NetworkReady, false, "NetworkPluginNotReady", "cni plugin not initialized")
		time.Sleep(time.Minute)
		w.Create(Pod("web"))
		time.Sleep(20 * time.Second)
	}},
	{name: "the claim of a volume does not exist", cause: why.ClaimMissing, says: "data", happen: func(w *World) {
		w.Create(Pod("web", withClaim("data")))
		time.Sleep(20 * time.Second)
	}},
	{name: "the pod has a resource claim", cause: why.DevicesUnsupported, says: "dynamic resource allocation", happen: func(w *World) {
		w.Create(Pod("web", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		}))
		time.Sleep(20 * time.Second)
	}},
	{name: "nobody binds the claim of a volume", cause: why.ClaimNotBound, says: "data", happen: func(w *World) {
		w.createClaim("data")
		w.Create(Pod("web", withClaim("data")))
		time.Sleep(20 * time.Second)
	}},
	{name: "another pod uses the claim, whose access mode is ReadWriteOncePod", cause: why.ClaimInUse, says: "default/other", happen: func(w *World) {
		w.bindClaim(w.createClaim("one", v1.ReadWriteOncePod))
		w.Create(Pod("other", withClaim("one")))
		w.WaitReady("other")
		w.Create(Pod("web", withClaim("one")))
		time.Sleep(20 * time.Second)
	}},
	onDisk("nobody attaches the volume to the node", why.VolumeNotAttached, "there is no VolumeAttachment", func(w *World) {
		w.createDisk("data", diskDriver, true)
		w.Create(Pod("web", withClaim("data")))
		time.Sleep(time.Minute)
	}),
	onDisk("the attacher cannot attach the volume to the node", why.AttachFails, "the disk is in another zone", func(w *World) {
		w.createDisk("data", diskDriver, true)
		w.attach("data", "the disk is in another zone")
		w.Create(Pod("web", withClaim("data")))
		time.Sleep(time.Minute)
	}),
	onDisk("the node has as many volumes of a CSI driver as it can have", why.VolumeLimitReached, "no room for the disk", func(w *World) {
		w.createDisk("data", diskDriver, true)
		w.followLimit(diskDriver)
		w.attachOr("data", "no room for the disk", codes.ResourceExhausted)
		w.Create(Pod("web", withClaim("data")))
		w.WaitPhase("web", v1.PodFailed)
	}),
	onDisk("the CSI driver of the volume does not run on the node", why.DriverMissing, "other.example.com", func(w *World) {
		w.createDisk("data", "other.example.com", false)
		w.Create(Pod("web", withClaim("data")))
		time.Sleep(time.Minute)
	}),
	onDisk("the CSI driver of the volume does not answer NodePublishVolume", why.MountHangs, "no answer within 2m0s", func(w *World) {
		w.createDisk("data", diskDriver, false)
		w.CSI.SetFault("NodePublishVolume", &simcsi.Fault{Hang: make(chan struct{})})
		w.Create(Pod("web", withClaim("data")))
		time.Sleep(3 * time.Minute)
	}),
	{name: "the ClusterTrustBundle of a volume does not exist", cause: why.BundleMissing, says: "roots", config: func(c *Config) { c.Agent = credentialGates }, happen: func(w *World) {
		w.Create(Pod("web", withCredentials))
		time.Sleep(20 * time.Second)
	}},
	{name: "no signer answers the request for a certificate", cause: why.CertificateAwaited, says: "example.com/s", config: func(c *Config) { c.Agent = credentialGates }, happen: func(w *World) {
		w.createTrustBundle("roots")
		w.Create(Pod("web", withCredentials))
		time.Sleep(20 * time.Second)
	}},
	{name: "the API server forbids the node to read the ConfigMap of a volume", cause: why.ObjectForbidden, says: "settings", happen: func(w *World) {
		w.Kube.Inject(simkube.Fault{Resource: "configmaps", Agent: agentName, Effect: simkube.Refuse,
			Err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("no relationship found between node and object"))})
		w.Create(Pod("web", withConfigMap("settings")))
		time.Sleep(time.Minute)
	}},
	{name: "the connection breaks when the node reads the ConfigMap of a volume", cause: why.APIServerAway, says: "settings", happen: func(w *World) {
		w.Kube.Inject(simkube.Fault{Resource: "configmaps", Agent: agentName, Effect: simkube.Break})
		w.Create(Pod("web", withConfigMap("settings")))
		time.Sleep(3 * time.Minute)
	}},
	{name: "the container has ended, and CreateContainer of the next one takes 90 s", cause: why.EndedRestarts, says: "exit code 0", happen: func(w *World) {
		w.Create(Pod("web", Annotate(simcri.AnnotationRunFor, "10s"), Annotate(simcri.AnnotationExitCode, "0")))
		w.WaitReady("web")
		w.Runtime.Inject(simcri.Fault{Method: "CreateContainer", Pod: "web", Effect: simcri.Slow, Delay: 90 * time.Second})
		time.Sleep(30 * time.Second)
	}},
	{name: "a client changes the image of the pod, and the container takes 20 s to end", cause: why.DefinitionRestarts, happen: func(w *World) {
		web := w.Create(Pod("web", Annotate(simcri.AnnotationStopAfter, "20s")))
		w.WaitReady("web")
		w.Witness.force(web) // the Witness does not know that images change, and would call the restart of the container a violation
		w.patch("web", `{"spec":{"containers":[{"name":"main","image":"registry.example/app:2"}]}}`)
		time.Sleep(10 * time.Second)
	}},
	{name: "a client resizes the pod to CPUs that another pod has", cause: why.ResizeWaits, says: "Deferred", happen: func(w *World) {
		w.Create(Pod("web", cpu("10")))
		w.Create(Pod("other", cpu("60")))
		w.WaitReady("web", "other")
		w.resize("web", "90")
		time.Sleep(10 * time.Second)
	}},
}

// withConfigMap gives a pod a volume from the ConfigMap with this name.
func withConfigMap(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}
}

// slowVolumes is a disk on which operations on the directories of pods take two minutes while slow is true. Checkpoints are not slow.
type slowVolumes struct {
	*checkpoint.InMemory
	slow *atomic.Bool
}

var _ agent.VolumeDisk = slowVolumes{}

func (d slowVolumes) Volumes(types.UID) error {
	if d.slow.Load() {
		time.Sleep(2 * time.Minute)
	}
	return nil
}

// slowDirectories returns a whyStory whose agent has a slowVolumes disk. The disk is fast until happen sets slow to true.
func slowDirectories(name string, cause why.Cause, happen func(w *World, slow *atomic.Bool)) whyStory {
	slow := &atomic.Bool{}
	return whyStory{name: name, cause: cause, config: func(c *Config) {
		slow.Store(false)
		c.Deps = func(d *agent.Deps) {
			d.Machine = agent.SimulatedMachine(agent.Shape{PollManifests: true, Disk: slowVolumes{&checkpoint.InMemory{}, slow}})
		}
	}, happen: func(w *World) {
		happen(w, slow)
		time.Sleep(20 * time.Second)
	}}
}

// onDisk returns a whyStory whose machine has the CSI driver diskDriver.
func onDisk(name string, cause why.Cause, says string, happen func(w *World)) whyStory {
	return whyStory{name: name, cause: cause, says: says, config: func(c *Config) { c.CSI = diskConfig() }, happen: happen}
}

// patch sends a strategic merge patch of a pod to the API server, as a client does.
func (w *World) patch(name, patch string, subresource ...string) {
	w.Helper()
	if _, err := w.Admin.CoreV1().Pods(Namespace).Patch(context.Background(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...); err != nil {
		w.Fatalf("patch %s: %v", name, err)
	}
}

// shutDown returns the story of a pod whose machine shuts down.
func shutDown(name string) whyStory {
	var machine *agent.Machine
	return whyStory{name: name, cause: why.NodeShutsDown, says: "imminent node shutdown", config: func(c *Config) {
		c.Agent = func(c *agent.Config) {
			c.Kubelet.ShutdownGracePeriod.Duration, c.Kubelet.ShutdownGracePeriodCriticalPods.Duration = time.Minute, 20*time.Second
		}
		c.Deps = func(d *agent.Deps) { machine = d.Machine }
	}, happen: func(w *World) {
		web := w.Create(Pod("web"))
		w.WaitReady("web")
		w.Witness.force(web)
		machine.SetShutdown(true)
		w.WaitPhase("web", v1.PodFailed)
		if ready := w.NodeReady(); ready.Status != v1.ConditionFalse || !strings.Contains(ready.Message, "shutting down") {
			w.Errorf("while the machine shuts down, Ready is %s: %s", ready.Status, ready.Message)
		}
	}}
}

// patchNode changes the Node object.
func (w *World) patchNode(patch string) {
	w.Helper()
	if _, err := w.Admin.CoreV1().Nodes().Patch(context.Background(), NodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatalf("patch the Node: %v", err)
	}
}

// On a node with an API server, the whole agent names the right cause in each situation.
func TestWhyWithAPI(t *testing.T) {
	t.Parallel()
	for _, s := range whyStories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var cfg Config
			if s.config != nil {
				s.config(&cfg)
			}
			Run(t, cfg, func(w *World) {
				s.happen(w)
				s.check(w)
			})
		})
	}
}

func (s *whyStory) check(w *World) {
	w.Helper()
	list := w.Explain()
	p := w.Kube.Pod(Namespace, "web")
	i := slices.IndexFunc(list, func(e explainedPod) bool { return e.Name == "web" && (p == nil || e.UID == p.UID) })
	if i < 0 {
		w.Fatalf("no answer about the pod in %+v", list)
	}
	if a := &list[i].Answer; a.Cause != s.cause || !strings.Contains(textOf(a), s.says) {
		w.Errorf("%s, want %s with %q:\n%s", a.Cause, s.cause, s.says, textOf(a))
	}
}

// If the agent is asked about a pod that is not on its node, it says on which node the pod is, or which pods have similar names.
func TestWhyOfAPodThatIsNotHere(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("web"))
		w.Create(Pod("elsewhere", func(p *v1.Pod) { p.Spec.NodeName = "node-2" }))
		w.Create(Pod("nowhere", func(p *v1.Pod) { p.Spec.NodeName = "" }))
		w.WaitReady("web")
		for name, want := range map[string]string{
			"elsewhere": "it is on node node-2: wherry why -n default elsewhere asks that node",
			"nowhere":   "no node has been chosen for it",
			"wbe":       "the most similar names: default/web",
		} {
			for _, path := range []string{"", "/turn"} {
				resp, err := w.askControl("/explain/default/" + name + path)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusNotFound || !strings.Contains(string(text), want) {
					t.Errorf("%s%s: %d %s, want %q", name, path, resp.StatusCode, text, want)
				}
			}
		}
	})
}

// A node that is short of memory says what would end that: first how much has to become free, and then how long it must stay free. The pod that
// uses too much is critical, so it is not evicted and the test can look.
func TestNodeSaysWhatEndsItsPressure(t *testing.T) {
	t.Parallel()
	Run(t, Config{Memory: "4Gi", Short: shortOfMemory, Agent: thresholds(map[string]string{"memory.available": "1Gi"})}, func(w *World) {
		ask := func() []why.Change { return w.changes(v1.NodeMemoryPressure) }
		w.Create(Pod("eater", using(3200, 0), withPriority(2_000_000_000)))
		w.awaitCondition(v1.NodeMemoryPressure, v1.ConditionTrue, time.Minute)
		if c := ask(); len(c) != 1 || !strings.Contains(c[0].Line, "memory.available is 896Mi and has to reach 1Gi, so 128Mi more have to become free; ") ||
			!strings.HasSuffix(c[0].Line, "; it ends 1m0s after that") {
			t.Errorf("while a pod uses too much: %+v", c)
		}
		w.Delete("eater", 1)
		w.Await("the pod is gone", 2*time.Minute, func() bool { return w.Kube.Pod(Namespace, "eater") == nil })
		time.Sleep(20 * time.Second)
		c := ask()
		if len(c) != 1 || !strings.Contains(c[0].Line, "it ends if this stays so: memory.available is ") || c[0].At.IsZero() {
			t.Fatalf("after the end of the pod: %+v", c)
		}
		time.Sleep(time.Until(c[0].At) - 10*time.Second)
		if is := w.condition(v1.NodeMemoryPressure); is != v1.ConditionTrue {
			t.Errorf("10 s before the time that the node has named, the condition is %s", is)
		}
		time.Sleep(30 * time.Second)
		if is := w.condition(v1.NodeMemoryPressure); is != v1.ConditionFalse {
			t.Errorf("20 s after the time that the node has named, the condition is %s", is)
		}
	})
}

// A node without a pod network says what makes it Ready again, and what a person can do.
func TestNodeSaysWhatMakesItReady(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.awaitCondition(v1.NodeReady, v1.ConditionTrue, time.Minute)
		if c := w.changes(v1.NodeReady); len(c) != 0 {
			t.Errorf("while the node is Ready: %+v", c)
		}
		w.Runtime.SetCondition(runtimeapi.NetworkReady, false, "NetworkPluginNotReady", "cni plugin not initialized")
		w.awaitCondition(v1.NodeReady, v1.ConditionFalse, time.Minute)
		c := w.changes(v1.NodeReady)
		if len(c) != 1 || c[0].Line != "it becomes True as soon as the runtime reports that its network is ready" || len(c[0].Do) != 1 {
			t.Errorf("without a network: %+v", c)
		}
	})
}

// changes asks the agent what would change a condition of the node.
func (w *World) changes(condition v1.NodeConditionType) (out []why.Change) {
	w.Helper()
	resp, err := w.askControl("/explain/node")
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Changes []why.Change }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		w.Fatal(err)
	}
	for _, c := range answer.Changes {
		if c.Condition == condition {
			out = append(out, c)
		}
	}
	return out
}
