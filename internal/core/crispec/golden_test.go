package crispec

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the expected messages in testdata")

// TestMessages makes every message of the pods in testdata/pods and compares them with the golden files beside the pods.
func TestMessages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/pods/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pods in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			got := messages(t, readPod(t, file))
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("messages differ (-file +now; rewrite with -update and read the diff):\n%s", diff)
			}
		})
	}
}

func readPod(t testing.TB, file string) *v1.Pod {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}

// messages renders all messages of a pod.
func messages(t *testing.T, p *v1.Pod) string {
	t.Helper()
	before := p.DeepCopy()
	policy := testPolicy(p)
	var b strings.Builder
	dns, warnings := DNS(DNSInput{
		Pod: p, ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: policy.ClusterDomain,
		Host: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"example.com"}, Options: []string{"rotate"}},
	})
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning %s: %s\n", w.Reason, w.Message)
	}
	sandbox, err := Sandbox(SandboxInput{
		Pod: p, Attempt: 1, DNS: dns, CgroupParent: "/kubepods/pod" + string(p.UID), Userns: testUserns(p), Policy: policy,
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "sandbox\n%s", render(sandbox))
	hosts, err := HostsFile(HostsInput{
		Pod: p, PodIPs: []string{"10.0.0.5", "fd00::5"}, ClusterDomain: policy.ClusterDomain, NodeHosts: []byte("127.0.0.1 localhost\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "hosts\n%s", indent(string(hosts)))
	for c := range Containers(p) {
		env, err := Env(testEnv(p, c))
		if err != nil {
			t.Fatal(err)
		}
		in := ContainerInput{
			Pod: p, Container: c, Attempt: 2, ImageRef: "sha256:" + c.Name, Image: testImage(c.Image), Env: env,
			Mounts: []*runtimeapi.Mount{{HostPath: "/h", ContainerPath: "/c"}}, Userns: testUserns(p), Policy: policy,
		}
		if len(p.Spec.EphemeralContainers) > 0 && c.Name == p.Spec.EphemeralContainers[0].Name {
			in.TargetID = "id-of-target"
		}
		config, err := Container(in)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "container %s\n%s", c.Name, render(config))
	}
	if diff := cmp.Diff(before, p); diff != "" {
		t.Errorf("the pod was changed (-before +after):\n%s", diff)
	}
	return b.String()
}

func testPolicy(p *v1.Pod) Policy {
	policy := DefaultPolicy()
	policy.MemoryCapacity, policy.SwapCapacity = 8<<30, 2<<30
	policy.HugePageSizes = []string{"2MB", "1GB"}
	switch p.Annotations["test/policy"] {
	case "v2":
		policy.CgroupV2, policy.SeccompDefault = true, true
	case "swap":
		policy.CgroupV2, policy.SwapController, policy.LimitedSwap, policy.SingleProcessOOMKill = true, true, true, true
	}
	return policy
}

func testUserns(p *v1.Pod) *runtimeapi.UserNamespace {
	if !NeedsUserns(p) {
		return nil
	}
	ids := []*runtimeapi.IDMapping{{HostId: 65536, ContainerId: 0, Length: 65536}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// testImage returns an image with this name. The name decides the image's user: uid-N/... gives the user ID N, name-N/... the user name N,
// and any other name gives root.
func testImage(name string) *runtimeapi.Image {
	user, _, _ := strings.Cut(name, "/")
	image := &runtimeapi.Image{Id: "sha256:" + name}
	if n, ok := strings.CutPrefix(user, "uid-"); ok {
		q := resource.MustParse(n)
		image.Uid = &runtimeapi.Int64Value{Value: q.Value()}
	}
	if n, ok := strings.CutPrefix(user, "name-"); ok {
		image.Username = n
	}
	return image
}

func only(use bool, services ...*v1.Service) []*v1.Service {
	if !use {
		return nil
	}
	return services
}

func testEnv(p *v1.Pod, c *v1.Container) EnvInput {
	service := func(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
		return &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports},
		}
	}
	return EnvInput{
		Pod: p, Container: c, PodIPs: []string{"10.0.0.5", "fd00::5"}, HostIPs: []string{"192.0.2.10"}, NodeName: "n1",
		NodeAllocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"),
			v1.ResourceEphemeralStorage: resource.MustParse("10G"),
		},
		Services: only(p.Name == "env" || p.Name == "term",
			service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}),
			service("shop", "web", "10.96.0.2", v1.ServicePort{Port: 80}),
			service("shop", "headless", "None", v1.ServicePort{Port: 80}),
			service("other", "elsewhere", "10.96.0.3", v1.ServicePort{Port: 80}),
		),
		ConfigMap: func(_, name string) (*v1.ConfigMap, error) {
			if name != "settings" {
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
			}
			return &v1.ConfigMap{Data: map[string]string{"color": "green", "size": "9"}}, nil
		},
		Secret: func(_, name string) (*v1.Secret, error) {
			if name != "keys" {
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
			}
			return &v1.Secret{Data: map[string][]byte{"pw": []byte("s3cret")}}, nil
		},
		EnvFile: func(volume, path string) ([]byte, error) {
			if volume != "cfg" || path != "env" {
				return nil, fs.ErrNotExist
			}
			return []byte("# comment\nA='1'\nB='two\nlines' # more\n"), nil
		},
	}
}

// render prints a message in the same form each time (prototext varies its white space on purpose). To keep the text short, it prints a
// block of a few plain fields, and each element of a repeated field, on one line.
func render(m proto.Message) string {
	text := prototext.MarshalOptions{Multiline: true, Indent: "  "}.Format(m)
	text = regexp.MustCompile(`(?m)^(\s*\w+):? +`).ReplaceAllString(text, "$1: ")
	text = regexp.MustCompile(`\{\n +([^{}\n]+)(\n +([^{}\n]+))?(\n +([^{}\n]+))?\n *\}`).ReplaceAllString(text, "{$1 $3 $5}")
	text = regexp.MustCompile(` +\}`).ReplaceAllString(regexp.MustCompile(`(?m)^( *)\}`).ReplaceAllString(text, "$1\x00"), "}")
	var b strings.Builder
	last := ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\x00", "}")) {
		line = strings.TrimRight(line, "\n")
		key, value, ok := strings.Cut(line, ": ")
		if ok && key == last && !strings.HasSuffix(line, "{") && !strings.HasPrefix(value, "{") {
			b.WriteString(" " + value)
			continue
		}
		last = key
		b.WriteString("\n" + line)
	}
	return indent(strings.TrimPrefix(b.String(), "\n") + "\n")
}

func indent(s string) string {
	var b bytes.Buffer
	for line := range strings.Lines(s) {
		b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
	}
	return b.String()
}
