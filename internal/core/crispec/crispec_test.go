package crispec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func ptr[T any](v T) *T { return &v }

// TestExpand checks that $(NAME) is replaced by the variable's value. Kubernetes documents: "Double $$ are reduced to a single $ ...
// Escaped references will never be expanded."
func TestExpand(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"A": "1", "B": "$(A)", "": "empty", "é": "e"}
	for in, want := range map[string]string{
		"":             "",
		"plain":        "plain",
		"$(A)":         "1",
		"x$(A)y$(A)z":  "x1y1z",
		"$(B)":         "$(A)", // a value is not expanded again
		"$$(A)":        "$(A)",
		"$$$(A)":       "$1",
		"$$$$(A)":      "$$(A)",
		"$(NONE)":      "$(NONE)",
		"$(A":          "$(A",
		"$((A))":       "$((A))",
		"$A ${A} 5$":   "$A ${A} 5$",
		"$(A)$(":       "1$(",
		"$()":          "empty",
		"$(é)$é":       "e$é",
		"$(A $(A) $$x": "$(A $(A) $x",
	} {
		got, err := Expand(in, func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
		if got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
}

// A few variables that refer to each other, or a command that repeats a variable, can expand to more text than fits into the node's
// memory. The test checks that such a container gets an error that names the variable or the field, and that the text is never built.
func TestReferencesFillNoMemory(t *testing.T) {
	t.Parallel()
	twice := []v1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 1024)}}
	for i := range 40 {
		twice = append(twice, v1.EnvVar{Name: fmt.Sprint("V", i+1), Value: fmt.Sprintf("$(V%d)$(V%d)", i, i)})
	}
	many := []v1.EnvVar{{Name: "V", Value: strings.Repeat("x", 1<<20)}}
	for range 1000 {
		many = append(many, v1.EnvVar{Name: "SAME", Value: "$(V)"})
	}
	long := []v1.EnvVar{{Name: "V", Value: strings.Repeat("x", 1<<20)}}
	for name, c := range map[string]struct {
		spec v1.Container
		want string
	}{
		"each refers twice to the one before":  {v1.Container{Env: twice}, "env V12: "},
		"a long value, very often":             {v1.Container{Env: many}, "the environment of container c is larger than "},
		"a word that repeats a variable":       {v1.Container{Env: long, Command: []string{strings.Repeat("$(V)", 1000)}}, "command of container c: "},
		"many words that are a variable":       {v1.Container{Env: long, Args: slices.Repeat([]string{"$(V)"}, 1000)}, "args of container c: "},
		"references that never end are a text": {v1.Container{Args: []string{strings.Repeat("$(", 1<<20)}}, ""},
	} {
		c.spec.Name = "c"
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c.spec}}}
		env, err := Env(EnvInput{Pod: p, Container: &c.spec})
		if err == nil {
			_, err = Container(ContainerInput{Pod: p, Container: &c.spec, Env: env})
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: got %.200v, want an error with %q", name, err, c.want)
		}
	}
}

func TestEnvErrors(t *testing.T) {
	t.Parallel()
	key := func(name, k string) *v1.EnvVarSource {
		return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: k}}
	}
	secret := func(name, k string) *v1.EnvVarSource {
		return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: k}}
	}
	field := func(path string) *v1.EnvVarSource {
		return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
	}
	res := func(r, container string) *v1.EnvVarSource {
		return &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: r, ContainerName: container}}
	}
	for _, tc := range []struct {
		source *v1.EnvVarSource
		want   string
	}{
		{key("none", "k"), `configmap "none" not found`},
		{key("settings", "k"), `couldn't find key k in ConfigMap shop/settings`},
		{secret("none", "k"), `secret "none" not found`},
		{secret("keys", "k"), `couldn't find key k in Secret shop/keys`},
		{field("status.qosClass"), `field label not supported: status.qosClass`},
		{field("metadata.name['x']"), `field label does not support subscript: metadata.name['x']`},
		{field("metadata.labels['a b']"), `invalid key subscript in metadata.labels['a b']`},
		{field("spec.restartPolicy"), `unsupported fieldPath: spec.restartPolicy`},
		{&v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"}}, `unsupported pod version: v2`},
		{res("limits.gpu", ""), `unsupported container resource : limits.gpu`},
		{res("limits.cpu", "other"), `container other not found`},
		{&v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "cfg", Path: "gone", Key: "A"}}, `read environment file "gone" of volume "cfg"`},
		{&v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "cfg", Path: "env", Key: "Z"}}, `key "Z" not found in file "env"`},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
			p.Spec.Containers = []v1.Container{{Name: "a", Env: []v1.EnvVar{{Name: "V", ValueFrom: tc.source}}}}
			_, err := Env(testEnv(p, &p.Spec.Containers[0]))
			var e *Error
			if !errors.As(err, &e) || e.Reason != ReasonContainerConfig || !strings.Contains(e.Message, tc.want) {
				t.Errorf("got %v, want a %s with %q", err, ReasonContainerConfig, tc.want)
			}
		})
	}
}

func TestEnvWaitsForServices(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
	in := EnvInput{Pod: p, Container: &p.Spec.Containers[0], ServicesPending: true}
	if _, err := Env(in); err == nil || !strings.Contains(err.Error(), "services have not yet been read") {
		t.Errorf("a pod of the API: got %v", err)
	}
	p.Annotations = map[string]string{pod.AnnotationSource: "file"}
	if _, err := Env(in); err != nil {
		t.Errorf("a static pod must not wait: %v", err)
	}
}

// With enableServiceLinks a container gets variables of the services in its namespace. TestServiceEnv checks that it gets those of the
// API server's own service in any case.
func TestServiceEnv(t *testing.T) {
	t.Parallel()
	services := testEnv(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "env"}}, &v1.Container{}).Services
	links, none := ServiceEnv(services, "shop", true), ServiceEnv(services, "shop", false)
	if links["WEB_SERVICE_HOST"] != "10.96.0.2" || none["WEB_SERVICE_HOST"] != "" {
		t.Errorf("the namespace's service: got %q with links and %q without", links["WEB_SERVICE_HOST"], none["WEB_SERVICE_HOST"])
	}
	if links["KUBERNETES_SERVICE_HOST"] != "10.96.0.1" || none["KUBERNETES_SERVICE_HOST"] != "10.96.0.1" {
		t.Error("the API server's service is missing")
	}
	for name := range links {
		if strings.HasPrefix(name, "HEADLESS") || strings.HasPrefix(name, "ELSEWHERE") {
			t.Errorf("%s does not belong there", name)
		}
	}
	six := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "six"}, Spec: v1.ServiceSpec{
		ClusterIP: "fd00::1", Ports: []v1.ServicePort{{Port: 53, Protocol: v1.ProtocolUDP}},
	}}
	if got := ServiceEnv([]*v1.Service{six}, "shop", true)["SIX_PORT"]; got != "udp://[fd00::1]:53" {
		t.Errorf("an IPv6 service: got %s", got)
	}
	// Two services may define the same variable. Its value must not depend on the order in which Go iterates over a map.
	both := []*v1.Service{}
	for _, name := range []string{"a", "a-port-1-tcp"} {
		both = append(both, &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: v1.ServiceSpec{ClusterIP: "10.96.0.3", Ports: []v1.ServicePort{{Port: 1}}}})
	}
	for range 50 {
		if got := ServiceEnv(both, "shop", true)["A_PORT_1_TCP_PORT"]; got != "tcp://10.96.0.3:1" {
			t.Fatalf("a variable of two services: got %s, want that of the service whose name comes last", got)
		}
	}
	own := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "kubernetes"}, Spec: v1.ServiceSpec{
		ClusterIP: "10.96.0.9", Ports: []v1.ServicePort{{Port: 1}},
	}}
	for _, list := range [][]*v1.Service{append([]*v1.Service{own}, services...), append(services[:len(services):len(services)], own)} {
		if got := ServiceEnv(list, "shop", true)["KUBERNETES_SERVICE_HOST"]; got != "10.96.0.9" {
			t.Errorf("a service of the namespace's own named kubernetes: got %s", got)
		}
	}
}

func TestEnvFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		data, key, want, err string
		ok                   bool
	}{
		{data: "A='1'\nA='2'\n", key: "A", want: "1", ok: true},
		{data: "\n  # c\n\tA='x y' # z", key: "A", want: "x y", ok: true},
		{data: "A='a\nb=\n'\nB='c'", key: "B", want: "c", ok: true},
		{data: "A='$(X) \\n'", key: "A", want: `$(X) \n`, ok: true},
		{data: "A='1'\r\nB='2'\r\n", key: "B", want: "2", ok: true},
		{data: "A= '1'\nB='2'", key: "A"},
		{data: "A='1'", key: "B"},
		{data: "", key: "B"},
		{data: "A\n", key: "B", err: "line 1"},
		{data: "A='x\n\n'\nB =''", key: "C", err: "line 4"},
		{data: "A=1", key: "A", err: "single quotes"},
		{data: "A='1", key: "A", err: "not closed"},
		{data: "A='1'x", key: "A", err: "unexpected text"},
		{data: "='1'", key: "A", err: "line 1"},
	} {
		got, ok, err := EnvFileValue(tc.data, tc.key)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: got %v, want an error with %q", tc.data, err, tc.err)
			}
			continue
		}
		if err != nil || got != tc.want || ok != tc.ok {
			t.Errorf("%q, %s: got %q, %v, %v; want %q, %v", tc.data, tc.key, got, ok, err, tc.want, tc.ok)
		}
	}
}

func TestRunAsNonRoot(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, image string
		user        *int64
		want        string
	}{
		{"image user is a number", "uid-7/a", nil, ""},
		{"image user is root", "root/a", nil, "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: a)"},
		{
			"image user is a name", "name-web/a", nil,
			"container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root (pod: \"p_ns(u)\", container: a)",
		},
		{"the pod says who", "root/a", ptr(int64(5)), ""},
		{"the pod says root", "uid-7/a", ptr(int64(0)), "container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: a)"},
		{"image user out of range", "uid-2147483648/a", nil, "invalid user id (2147483648)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: ptr(true), RunAsUser: tc.user}
			p.Spec.Containers = []v1.Container{{Name: "a", Image: tc.image}}
			_, err := Container(ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Image: testImage(tc.image), Policy: DefaultPolicy()})
			var e *Error
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tc.want != "" && (!errors.As(err, &e) || e.Reason != ReasonContainerConfig || !strings.Contains(e.Message, tc.want)):
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*v1.Pod){
		"localhostProfile must be set": func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}}
		},
		"seccompProfile.type": func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: "Magic"}}
		},
		"unknown apparmor profile type": func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: "Magic"}}
		},
		"unsupported supplementalGroupsPolicy: Magic": func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicy("Magic"))}
		},
		"spec.hostUsers": func(p *v1.Pod) { p.Spec.HostUsers = ptr(false) },
		"stopSignal": func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: ptr(v1.Signal("SIGMAGIC"))}
		},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
		change(p)
		_, err := Container(ContainerInput{Pod: p, Container: &p.Spec.Containers[0]})
		var e *Error
		if !errors.As(err, &e) || e.Reason != ReasonContainerConfig || !strings.Contains(e.Message, want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}

func list(s string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, f := range strings.Fields(s) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func TestQOS(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pod        string // "requests;limits" of the pod itself, empty: none
		containers []string
		want       v1.PodQOSClass
	}{
		{"", []string{";", ";"}, v1.PodQOSBestEffort},
		{"", []string{"ephemeral-storage=1Gi;"}, v1.PodQOSBestEffort},
		{"", []string{"cpu=0;"}, v1.PodQOSBestEffort},
		{"", []string{"cpu=1 memory=1Gi;cpu=1 memory=1Gi"}, v1.PodQOSGuaranteed},
		{"", []string{"cpu=1 memory=1Gi;cpu=1000m memory=1024Mi", "cpu=1 memory=1Gi;cpu=1 memory=1Gi"}, v1.PodQOSGuaranteed},
		{"", []string{"cpu=1 memory=1Gi;cpu=1 memory=1Gi", ";"}, v1.PodQOSBurstable},
		{"", []string{"cpu=1;cpu=1"}, v1.PodQOSBurstable},
		{"", []string{"cpu=1 memory=1Gi;cpu=2 memory=1Gi"}, v1.PodQOSBurstable},
		{"", []string{";memory=1Gi"}, v1.PodQOSBurstable},
		{"cpu=1 memory=1Gi;cpu=1 memory=1Gi", []string{";", "cpu=100m;"}, v1.PodQOSGuaranteed},
		{"cpu=1;cpu=1", []string{";"}, v1.PodQOSBurstable},
		{";", []string{"cpu=1;cpu=2"}, v1.PodQOSBurstable}, // spec.resources: {} says nothing
	} {
		needs := func(s string) v1.ResourceRequirements {
			requests, limits, _ := strings.Cut(s, ";")
			return v1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
		}
		p := &v1.Pod{}
		if tc.pod != "" {
			p.Spec.Resources = ptr(needs(tc.pod))
		}
		for _, c := range tc.containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: needs(c)})
		}
		if got := QOS(p); got != tc.want {
			t.Errorf("%q %q: got %s, want %s", tc.pod, tc.containers, got, tc.want)
		}
	}
}

func TestCPU(t *testing.T) {
	t.Parallel()
	for milli, want := range map[int64]int64{0: 2, 1: 2, 2: 2, 100: 102, 1000: 1024, 256000: 262144, 1 << 60: 262144, -5: 2} {
		if got := CPUShares(milli); got != want {
			t.Errorf("shares of %dm: got %d, want %d", milli, got, want)
		}
	}
	for milli, want := range map[int64]int64{0: 0, 1: 1000, 10: 1000, 500: 50000, 4000: 400000, -5: 0} {
		if got := CPUQuota(milli, 100000); got != want {
			t.Errorf("quota of %dm: got %d, want %d", milli, got, want)
		}
	}
	if got := CPUQuota(1<<62, 1000000); got <= 0 {
		t.Errorf("quota of a huge limit: got %d", got)
	}
}

func TestOOMScoreAdj(t *testing.T) {
	t.Parallel()
	const gi = 1 << 30
	for _, tc := range []struct {
		requests string
		capacity int64
		want     int64
	}{
		{"memory=1Gi", 10 * gi, 900},
		{"memory=3Gi", 10 * gi, 700},
		{"memory=1Ki", 10 * gi, 999},
		{"memory=10Gi", 10 * gi, 3},
		{"memory=20Gi", 10 * gi, 3},
		{"cpu=1", 10 * gi, 999},
		{"memory=1Gi", 0, 999},
		{"memory=7Ei", 1<<63 - 1, 125},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Requests: list(tc.requests)}}}}}
		if got := OOMScoreAdj(p, &p.Spec.Containers[0], tc.capacity); got != tc.want {
			t.Errorf("%s of %d: got %d, want %d", tc.requests, tc.capacity, got, tc.want)
		}
	}
}

// TestKubeletHash compares the hash of a container with the one that the tests of upstream's kubelet expect for the same container.
func TestKubeletHash(t *testing.T) {
	t.Parallel()
	c := &v1.Container{Name: "test_container", Image: "foo/image:v1", Args: []string{"/bin/sh"}}
	if got := KubeletHash(c); got != "8e45cbd0" {
		t.Errorf("got %s", got)
	}
}

// Running containers carry their SpecHash in an annotation. The hash of a spec must stay the same in all versions of the agent, so that
// an upgrade restarts no container. The test also checks which fields change the hash.
func TestSpecHashIsStable(t *testing.T) {
	t.Parallel()
	c := v1.Container{
		Name: "a", Image: "i:1", Command: []string{"x", "y"}, Args: []string{"z"}, WorkingDir: "/w",
		Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &v1.EnvVarSource{}}},
	}
	base := SpecHash(nil, &c)
	if want := "1-ba9a6999dfe0ee77"; base != want {
		t.Errorf("the hash of a container changed: got %s, want %s", base, want)
	}
	for what, change := range map[string]func(*v1.Container){
		"image":   func(c *v1.Container) { c.Image = "i:2" },
		"command": func(c *v1.Container) { c.Command = []string{"xy"} },
		"args":    func(c *v1.Container) { c.Command, c.Args = []string{"x"}, []string{"y", "z"} },
		"env":     func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A", Value: "2"}} },
	} {
		d := *c.DeepCopy()
		change(&d)
		if SpecHash(nil, &d) == base {
			t.Errorf("a changed %s is the same spec", what)
		}
	}
	same := *c.DeepCopy()
	same.Resources.Limits = list("cpu=1")
	same.ImagePullPolicy, same.TerminationMessagePath = v1.PullAlways, "/x"
	if SpecHash(nil, &same) != base {
		t.Error("a change that needs no restart is another spec")
	}
}

// TestSpecChanged checks that only hashes of the same version are compared. Hashes of two versions cover different fields, so they
// differ even if the container's definition did not change.
func TestSpecChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now, made string
		want      bool
	}{
		{"1-a", "1-a", false},
		{"1-a", "1-b", true},
		{"2-a", "1-a", false},
		{"2-a", "1-b", false},
		{"2-a", "22-b", false},
		{"2-a", "2", false},
		{"2-a", "hostile", false},
		{"2-a", "", false},
		{"", "1-a", false},
		{"", "", false},
	} {
		if got := SpecChanged(c.now, c.made); got != c.want {
			t.Errorf("SpecChanged(%q, %q): got %v, want %v", c.now, c.made, got, c.want)
		}
	}
	c := &v1.Container{Name: "a", Image: "i:1"}
	old := SpecHash(nil, c)
	if c.Image = "i:2"; !SpecChanged(SpecHash(nil, c), old) {
		t.Error("a changed image is not seen as a change")
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a.b-c", UID: "u-1"}}
	if got, want := LogPath(DefaultLogRoot, p, "c", 3), "/var/log/pods/ns_a.b-c_u-1/c/3.log"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for base, want := range map[string]int64{"0.log": 0, "12.log": 12, "3.log.20261121-120000.gz": 3, "x.log": -1, "3.txt": -1, "3": -1, "-1.log": -1} {
		n, ok := ParseLogAttempt(base)
		if got := int64(n); ok != (want >= 0) || (ok && got != want) {
			t.Errorf("%q: got %d, %v", base, n, ok)
		}
	}
}

func TestReferencedEnvObjects(t *testing.T) {
	t.Parallel()
	got := ReferencedEnvObjects(readPod(t, "testdata/pods/env.yaml"))
	want := EnvObjects{ConfigMaps: []string{"none", "settings"}, Secrets: []string{"keys", "none"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHugePageSize(t *testing.T) {
	t.Parallel()
	for name, want := range map[v1.ResourceName]string{
		"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB", "hugepages-512": "512B", "hugepages-": "", "hugepages-3Mi": "",
		"hugepages--2Mi": "", "memory": "", "hugepages-x": "",
		"hugepages-1e-2147483648": "", // a tenant may name a resource like this; the number takes hours to compute
	} {
		if got, ok := HugePageSize(name); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v", name, got, ok)
		}
	}
}

// CVE-2019-11245: the container must run as the user of its image on every attempt, not only on the first. If the numeric user is
// not known, a container with runAsNonRoot is refused.
func TestCVE201911245UserOfTheImage(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
	for attempt := range uint32(3) {
		named, err := Container(ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Attempt: attempt, Image: &runtimeapi.Image{Username: "alice"}})
		if err != nil || named.Linux.SecurityContext.RunAsUsername != "alice" || named.Linux.SecurityContext.RunAsUser != nil {
			t.Errorf("attempt %d, image of alice: %v, %v", attempt, named.GetLinux().GetSecurityContext(), err)
		}
		numbered, err := Container(ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Attempt: attempt, Image: &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 1001}}})
		if err != nil || numbered.Linux.SecurityContext.RunAsUser.GetValue() != 1001 {
			t.Errorf("attempt %d, image of user 1001: %v, %v", attempt, numbered.GetLinux().GetSecurityContext(), err)
		}
	}
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: ptr(true)}
	for what, image := range map[string]*runtimeapi.Image{"unknown": nil, "root's": {Uid: &runtimeapi.Int64Value{}}, "one with a name alone": {Username: "alice"}} {
		if _, err := Container(ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Image: image}); err == nil {
			t.Errorf("runAsNonRoot with an image that is %s: no error", what)
		}
	}
}

// CVE-2023-2431: a seccomp profile of type Localhost without a name is an error; the container must not run without a profile. The test
// also checks that a name with ".." does not lead out of the directory of profiles.
func TestCVE20232431EmptyProfileIsRefused(t *testing.T) {
	t.Parallel()
	container := func(profile *string) (*runtimeapi.ContainerConfig, error) {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}},
			SecurityContext: &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: profile}}}}
		return Container(ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Policy: Policy{SeccompRoot: "/seccomp"}})
	}
	for _, none := range []*string{nil, ptr("")} {
		if c, err := container(none); err == nil {
			t.Errorf("an empty profile gives %v", c.Linux.SecurityContext.Seccomp)
		}
	}
	for name, want := range map[string]string{"a.json": "/seccomp/a.json", "../../etc/passwd": "/seccomp/etc/passwd", "/b.json": "/seccomp/b.json"} {
		c, err := container(&name)
		if err != nil || c.Linux.SecurityContext.Seccomp.LocalhostRef != want {
			t.Errorf("profile %q: %v, %v, want %s", name, c.GetLinux().GetSecurityContext().GetSeccomp(), err, want)
		}
	}
}
