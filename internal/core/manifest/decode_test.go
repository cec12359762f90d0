package manifest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

const web = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: registry.example/web:1
`

func names(m *Manifest) []string {
	out := []string{}
	for _, p := range m.Pods {
		out = append(out, "Pod "+p.Namespace+"/"+p.Name)
	}
	for _, c := range m.ConfigMaps {
		out = append(out, "ConfigMap "+c.Namespace+"/"+c.Name)
	}
	for _, s := range m.Secrets {
		out = append(out, "Secret "+s.Namespace+"/"+s.Name)
	}
	return out
}

func errorsOf(m *Manifest) []string {
	var out []string
	for _, e := range m.Errors {
		out = append(out, e.Error())
	}
	return out
}

// TestDecodeShapes decodes manifests of all forms and checks that correct objects are returned, whatever else the manifest contains.
func TestDecodeShapes(t *testing.T) {
	t.Parallel()
	as := func(s string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(s) }
	asJSON := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"i"}]}}`
	for _, c := range []struct {
		name, text string
		want       []string
		errs       []string
	}{
		{"one pod", web, []string{"Pod default/web"}, nil},
		{"json", asJSON, []string{"Pod default/web"}, nil},
		{"json values in a row", asJSON + "\n" + as(asJSON, `"name":"web"}`, `"name":"web2"}`), []string{"Pod default/web", "Pod default/web2"}, nil},
		{"a byte order mark, and lines as others end them", "\xef\xbb\xbf" + as(web, "\n", "\r\n"), []string{"Pod default/web"}, nil},
		{"documents, comments and empty ones", "# hello\n---\n" + web + "---\n# nothing\n---\n" + as(web, "name: web\nspec", "name: b\n  namespace: kube-system\nspec") + "...\n",
			[]string{"Pod default/web", "Pod kube-system/b"}, nil},
		{"a directive", "%YAML 1.1\n---\n" + web, []string{"Pod default/web"}, nil},
		{"nothing", "# later\n", []string{}, nil},
		{"a form feed", "\f", []string{}, []string{"f.yaml: document 1: not YAML or JSON: a control character is in the text, for example a zero byte; the document is left out"}},
		{"a list", `apiVersion: v1
kind: List
items:
- ` + as(strings.TrimSpace(web), "\n", "\n  ") + `
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: conf}
  data: {a: b}
- apiVersion: v1
  kind: Secret
  metadata: {name: key, namespace: x}
  stringData: {a: b}
`, []string{"Pod default/web", "ConfigMap default/conf", "Secret x/key"}, nil},
		{"items of a PodList need not say what they are", "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n", []string{"Pod default/a"}, nil},
		{"what an API server printed", as(web, "  name: web\nspec", "  name: web\n  resourceVersion: \"7\"\n  creationTimestamp: \"2024-01-02T03:04:05Z\"\nspec") + "status:\n  phase: Running\n", []string{"Pod default/web"}, nil},

		{"one item is wrong", "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n- metadata: {name: b}\n  spec:\n    containers:\n    - name: c\n      imagee: i\n",
			[]string{"Pod default/a"}, []string{`f.yaml:10: document 1, Pod default/b: items[1].spec.containers[0].imagee: unknown field; did you mean "image"?`}},
		{"one document is not YAML", web + "---\na: [\n---\n" + as(web, "name: web\nspec", "name: b\nspec"), []string{"Pod default/web", "Pod default/b"},
			[]string{"f.yaml:10: document 2: not YAML or JSON: a value is missing, or a bracket is where none may be; the document is left out"}},
		{"twice", as(web, "  name: web\nspec", "  name: web\n  name: b\nspec"), []string{}, []string{"f.yaml:5: document 1: metadata.name: duplicate field, it is in line 4 already; remove one"}},
		{"twice in JSON", `{"apiVersion":"v1","kind":"Pod",` + "\n" + `"kind":"Pod"}`, []string{}, []string{"f.yaml:2: document 1: kind: duplicate field, it is in line 1 already; remove one"}},
		{"cut short", web[:len(web)-40], []string{}, []string{"f.yaml:7: document 1, Pod default/web: spec.containers[0]: expected an object, found the string \"name\""}},
		{"another kind", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", []string{},
			[]string{"f.yaml:2: document 1: kind: apps/v1 Deployment is nothing that a node runs by itself; a node runs v1 Pod, PodList, List, ConfigMap and Secret: write its pod template as a Pod"}},
		{"no kind", "metadata: {name: x}\n", []string{}, []string{"f.yaml:1: document 1: kind: missing; a node runs v1 Pod, PodList, List, ConfigMap and Secret"}},
		{"no object", "- a\n", []string{}, []string{"f.yaml:1: document 1: not an object: a manifest has apiVersion, kind, metadata and spec"}},
		{"no base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  a: hunter2!\n", []string{},
			[]string{"f.yaml:5: document 1, Secret default/s: data[a]: not base64; encode it, or write it as plain text below stringData (Secret) or data (ConfigMap)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := Decode("f.yaml", []byte(c.text))
			if d := cmp.Diff(c.want, names(m)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.errs, errorsOf(m)); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
			if (m.Err() != nil) != (len(c.errs) > 0) {
				t.Errorf("Err() = %v", m.Err())
			}
		})
	}
}

// CVE-2025-4563: Decode must refuse a pod with resource claims, because the mirror of such a static pod would give the node access to
// claims that were not allocated to it.
func TestCVE20254563StaticPodHasNoResourceClaims(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"resourceClaims: [{name: a, resourceClaimName: gpu}]", "resourceClaims: [{name: a, resourceClaimTemplateName: gpu}]",
	} {
		m := Decode("f.yaml", []byte(strings.Replace(web, "spec:\n", "spec:\n  "+spec+"\n", 1)))
		if len(m.Pods) != 0 || len(m.Errors) == 0 || !strings.Contains(m.Err().Error(), "spec.resourceClaims: Forbidden") {
			t.Errorf("%s: %d pods, %v", spec, len(m.Pods), m.Err())
		}
	}
	m := Decode("f.yaml", []byte(web+"    resources: {claims: [{name: a}]}\n"))
	if len(m.Pods) != 0 || !strings.Contains(m.Err().Error(), "resources.claims: Forbidden") {
		t.Errorf("claims of a container: %d pods, %v", len(m.Pods), m.Err())
	}
}

// TestDecodeRefuses adds one wrong line to a correct pod in each case. Decode must return an error that names the field, the line and what
// to do.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, container, want string }{
		{"", "ports: [{containerPort: eighty}]", `:9: document 1, Pod default/web: spec.containers[0].ports[0].containerPort: expected a whole number, found the string "eighty"`},
		{"", "ports: [{containerPort: 70000}]", `spec.containers[0].ports[0].containerPort: Invalid value: 70000: a port is between 1 and 65535`},
		{"", "ports: [{name: a, containerPort: 1}, {name: a, containerPort: 2}]", `spec.containers[0].ports[1].name: Duplicate value: "a"`},
		{"", "env: [{name: A, value: 1}]", `spec.containers[0].env[0].value: expected a string, found the number 1; put it in quotes`},
		{"", "env: [{name: A, value: yes}]", `spec.containers[0].env[0].value: expected a string, found true; put it in quotes`},
		{"", "env: {A: b}", `spec.containers[0].env: expected a list, found an object; begin each item with "- "`},
		{"", "env: [{name: A, valueFrom: {}}]", `spec.containers[0].env[0].valueFrom: Invalid value: 0: exactly one of`},
		{"", "resources: {limits: {cpu: 1 core}}", `spec.containers[0].resources.limits[cpu]: "1 core" is no Quantity: `},
		{"", "resources: {limits: {cpu: 1}, requests: {cpu: 2}}", `spec.containers[0].resources.requests[cpu]: Invalid value: "2": must be at most the limit, 1`},
		{"", "resources: {limits: {cpu: -1}}", `spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must not be negative`},
		{"", "volumeMounts: [{name: data, mountPath: /data}]", `spec.containers[0].volumeMounts[0].name: Not found: "data"`},
		{"volumes: [{name: d}]", "volumeMounts: [{name: d, mountPath: /d, subPath: ../x}]", `spec.containers[0].volumeMounts[0].subPath: Invalid value: "../x": must be a relative path without '..'`},
		{"", "livenessProbe: {}", `spec.containers[0].livenessProbe: Invalid value: 0: exactly one of exec, httpGet, tcpSocket, grpc is needed`},
		{"", "livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}", `spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1`},
		{"", "imge: x", `spec.containers[0].imge: unknown field; did you mean "image"?`},
		{"", "x: y", `spec.containers[0].x: unknown field; remove it`},
		{"", "lifecycle: {preStop: {exec: {}}}", `spec.containers[0].lifecycle.preStop.exec.command: Required value: name a command`},
		{"", "imagePullPolicy: Sometimes", `spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`},
		{"restartPolicy: always", "", `spec.restartPolicy: Unsupported value: "always": supported values: "Always", "OnFailure", "Never"`},
		{"terminationGracePeriodSeconds: -1", "", `spec.terminationGracePeriodSeconds: Invalid value: -1: must be at least 0`},
		{"dnsPolicy: None", "", `spec.dnsConfig.nameservers: Required value`},
		{"serviceAccountName: x", "", `:6: document 1, Pod default/web: spec.serviceAccountName: Forbidden: a pod of a node has no service account`},
		{"ephemeralContainers: [{name: d, image: i}]", "", `spec.ephemeralContainers: Forbidden`},
		{"volumes: [{name: d, persistentVolumeClaim: {claimName: x}}]", "", `spec.volumes[0].persistentVolumeClaim: Forbidden: claims are bound through the API server; use hostPath`},
		{"serviceAccount: x", "", `spec.serviceAccount: Forbidden: a pod of a node has no service account`},
		{"volumes: [{name: d, ephemeral: {volumeClaimTemplate: {spec: {}}}}]", "", `spec.volumes[0].ephemeral: Forbidden`},
		{"volumes: [{name: d, projected: {sources: [{clusterTrustBundle: {name: x, path: f}}]}}]", "", `clusterTrustBundle: Forbidden`},
		{"volumes: [{name: d, projected: {sources: [{podCertificate: {signerName: x/y}}]}}]", "", `podCertificate: Forbidden`},
		{"volumes: [{name: d, csi: {driver: x, nodePublishSecretRef: {name: s}}}]", "", `spec.volumes[0]: Forbidden: a volume of this kind reads its Secret from the API server`},
		{"volumes: [{name: d, azureFile: {secretName: s, shareName: x}}]", "", `spec.volumes[0]: Forbidden: a volume of this kind reads its Secret from the API server`},
		{"volumes: [{name: d, emptyDir: {}, hostPath: {path: /x}}]", "", `spec.volumes[0]: Forbidden: a volume is of one kind, this one is hostPath and emptyDir`},
		{"volumes: [{name: d}, {name: d}]", "", `spec.volumes[1].name: Duplicate value: "d"`},
		{"volumes: [{name: d, hostPath: {path: /a/../b}}]", "", `spec.volumes[0].hostPath.path: Invalid value`},
		{"volumes: [{name: d, configMap: {name: c, defaultMode: 0888}}]", "", `spec.volumes[0].configMap.defaultMode: `},
		{"initContainers: [{name: web, image: i}]", "", `spec.containers[0].name: Duplicate value: "web"`},
		{"initContainers: [{name: i, image: i, livenessProbe: {tcpSocket: {port: 1}}}]", "", `spec.initContainers[0].livenessProbe: Forbidden`},
		{"initContainers: [~]", "", `spec.initContainers[0]: empty item; remove it`},
		{"hostNetwork: true", "ports: [{containerPort: 80, hostPort: 81}]", `spec.containers[0].ports[0].hostPort: Invalid value: 81`},
	} {
		t.Run(strings.TrimSpace(c.spec+" "+c.container), func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(web, "spec:\n", "spec:\n  "+c.spec+"\n", 1)
			if c.spec == "" {
				text = web
			}
			m := Decode("f.yaml", []byte(text+"    "+c.container+"\n"))
			if len(m.Pods) != 0 || len(m.Errors) == 0 || !strings.Contains(m.Err().Error(), c.want) {
				t.Errorf("%d pods, errors %q,\nwanted one with %q", len(m.Pods), errorsOf(m), c.want)
			}
		})
	}
}

func TestDecodeRefusesNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Web", "../x", "a/b", "-a", strings.Repeat("a", 300)} {
		m := Decode("f", []byte(strings.Replace(web, "name: web\nspec", "name: "+name+"\nspec", 1)))
		if len(m.Pods) != 0 || m.Err() == nil {
			t.Errorf("%q is taken as a pod's name", name)
		}
	}
	for _, uid := range []string{"../x", "a b", "a/b", "é", "a_b"} {
		m := Decode("f", []byte(strings.Replace(web, "name: web\nspec", "name: web\n  uid: \""+uid+"\"\nspec", 1)))
		if len(m.Pods) != 0 || m.Err() == nil {
			t.Errorf("%q is taken as a UID", uid)
		}
	}
}

// TestDecodeDefaults checks that a decoded pod has the defaults that the API server would have set.
func TestDecodeDefaults(t *testing.T) {
	t.Parallel()
	m := Decode("f", []byte(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  initContainers:
  - {name: init, image: busybox}
  containers:
  - name: c
    image: web@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    ports: [{containerPort: 80}]
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {grpc: {port: 80}, periodSeconds: 3}
    lifecycle: {preStop: {httpGet: {port: 80}}}
    resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}
  volumes:
  - name: empty
  - {name: host, hostPath: {path: /x}}
  - {name: conf, configMap: {name: c}}
  - {name: sec, secret: {secretName: c, defaultMode: 0400}}
`))
	if m.Err() != nil {
		t.Fatal(m.Err())
	}
	s := m.Pods[0].Spec
	c := s.Containers[0]
	got := []any{
		s.RestartPolicy, s.DNSPolicy, *s.TerminationGracePeriodSeconds, s.SchedulerName, *s.EnableServiceLinks, s.SecurityContext != nil,
		s.InitContainers[0].ImagePullPolicy, c.ImagePullPolicy, c.TerminationMessagePath, c.TerminationMessagePolicy, c.Ports[0].Protocol, c.Ports[0].HostPort,
		c.Env[0].ValueFrom.FieldRef.APIVersion, c.LivenessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Scheme, c.LivenessProbe.PeriodSeconds,
		c.ReadinessProbe.PeriodSeconds, c.ReadinessProbe.FailureThreshold, *c.ReadinessProbe.GRPC.Service, c.Lifecycle.PreStop.HTTPGet.Path,
		c.Resources.Requests.Cpu().String(), c.Resources.Requests.Memory().String(),
		s.Volumes[0].EmptyDir != nil, *s.Volumes[1].HostPath.Type, *s.Volumes[2].ConfigMap.DefaultMode, *s.Volumes[3].Secret.DefaultMode,
	}
	want := []any{
		v1.RestartPolicyAlways, v1.DNSClusterFirst, int64(30), "default-scheduler", true, true,
		v1.PullAlways, v1.PullIfNotPresent, "/dev/termination-log", v1.TerminationMessageReadFile, v1.ProtocolTCP, int32(80),
		"v1", "/", v1.URISchemeHTTP, int32(10), int32(3), int32(3), "", "/",
		"1", "1Gi", true, v1.HostPathUnset, int32(0o644), int32(0o400),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("defaults (-want +got):\n%s", d)
	}
}

// TestStaticIdentity checks that the UID of a static pod depends on the content, the source and the name of its manifest, and on the node,
// but not on layout and comments.
func TestStaticIdentity(t *testing.T) {
	t.Parallel()
	of := func(text string, o Origin) *v1.Pod {
		t.Helper()
		m := Decode(o.Name, []byte(text))
		if m.Err() != nil {
			t.Fatal(m.Err())
		}
		o.Seen = time.Unix(0, 0).UTC()
		return o.Static(m.Pods[0])
	}
	origin := Origin{Source: pod.SourceFile, Name: "/m/web.yaml", NodeName: "Node-1"}
	p := of(web, origin)
	if p.Name != "web-node-1" || p.Namespace != "default" || p.Spec.NodeName != "Node-1" {
		t.Errorf("named %s/%s on %s", p.Namespace, p.Name, p.Spec.NodeName)
	}
	if d := cmp.Diff(map[string]string{pod.AnnotationSource: "file", pod.AnnotationHash: p.Annotations[pod.AnnotationHash], pod.AnnotationSeen: "1970-01-01T00:00:00Z"}, p.Annotations); d != "" || p.Annotations[pod.AnnotationHash] == "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}, p.Spec.Tolerations); d != "" {
		t.Errorf("tolerations (-want +got):\n%s", d)
	}
	if p.Spec.PriorityClassName != "system-node-critical" || *p.Spec.Priority != 2000001000 {
		t.Errorf("priority %q %v", p.Spec.PriorityClassName, p.Spec.Priority)
	}
	if !pod.IsStatic(p) || !pod.RefOf(p).Plausible() {
		t.Errorf("not a static pod: %v", p.ObjectMeta)
	}
	// All versions of the agent must compute this UID: if a version computed another one, every static pod would restart at the upgrade.
	if p.UID != "1ac6043a26b1f0c7ff88e12cef786044" {
		t.Errorf("UID %s", p.UID)
	}
	same := of("# a comment\n"+strings.Replace(web, "  name: web\nspec", "  name:   \"web\"\nspec", 1), origin)
	if same.UID != p.UID {
		t.Error("a comment makes another pod")
	}
	for name, other := range map[string]*v1.Pod{
		"content": of(strings.Replace(web, ":1", ":2", 1), origin),
		"file":    of(web, Origin{Source: pod.SourceFile, Name: "/m/other.yaml", NodeName: "Node-1"}),
		"source":  of(web, Origin{Source: pod.SourceURL, Name: "/m/web.yaml", NodeName: "Node-1"}),
		"node":    of(web, Origin{Source: pod.SourceFile, Name: "/m/web.yaml", NodeName: "node-2"}),
	} {
		if other.UID == p.UID {
			t.Errorf("another %s, the same UID", name)
		}
	}
	given := of(strings.Replace(web, "  name: web\n", "  name: web\n  uid: mine\n", 1), origin)
	if given.UID != "mine" {
		t.Errorf("UID %s, the manifest says mine", given.UID)
	}
}

// YAML aliases of one long text can expand a small manifest to gigabytes. The test checks that Decode accepts a few aliases, and refuses a
// manifest that would expand to more than ten times its text.
func TestAliasesExpandTenTimesAtMost(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20_000)
	bomb := func(aliases int) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: big}\ndata:\n  a: &a " + long + "\n" +
			func() (b string) {
				for i := range aliases {
					b += fmt.Sprintf("  k%d: *a\n", i)
				}
				return b
			}()
	}
	if m := Decode("few", []byte(bomb(5))); m.Err() != nil || len(m.ConfigMaps) != 1 || m.ConfigMaps[0].Data["k4"] != long {
		t.Errorf("five aliases: %v, %d config maps", m.Err(), len(m.ConfigMaps))
	}
	for name, text := range map[string]string{
		"many":    bomb(10_000),
		"nested":  "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c]\n",
		"endless": "a: &a [*a]\n",
		"merged":  "a: &a {x: " + long + "}\nb:\n" + strings.Repeat("- {<<: *a, y: 1}\n", 1000),
	} {
		m := Decode(name, []byte(text))
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), "more than 10 times its text") {
			t.Errorf("%s: %v", name, err)
		}
		if len(m.Pods)+len(m.ConfigMaps) > 0 {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// A manifest may have millions of errors. The test checks that Decode returns only the first ones, each with a text of a bounded length,
// and says that there are more.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	const many = 1000
	lines := func(line string) string {
		var b strings.Builder
		for i := range many {
			fmt.Fprintf(&b, line+"\n", i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"unknown fields":     "apiVersion: v1\nkind: Pod\n" + lines("x%d: 1"),
		"fields of a list":   "apiVersion: v1\nkind: List\n" + lines("x%d: 1"),
		"items":              "apiVersion: v1\nkind: List\nitems:\n" + lines("- %d"),
		"labels":             strings.Replace(web, "metadata:\n", "metadata:\n  labels:\n"+lines("    x%d: ä"), 1),
		"documents":          lines("--- %d"),
		"duplicate fields":   "a: 1\n" + strings.Repeat("a: 1\n", many),
		"broken documents":   lines("--- [%d"),
		"wrong environment":  web + "    env:\n" + lines("    - name: =%d"),
		"duplicates in JSON": "{\"a\":1" + strings.Repeat(",\"a\":1", many) + "}",
	} {
		m := Decode(name, []byte(text))
		if n := len(m.Errors); n != maxErrors+1 || m.Errors[n-1].Detail != "more than 100 errors; correct these first" {
			t.Errorf("%s: %d errors, the last is %v", name, n, m.Errors[max(n-1, 0):])
		}
	}
	long := strings.Repeat("x", 1<<20)
	for name, text := range map[string]string{
		"a name": `{"apiVersion":"v1","kind":"Pod","` + long + `":1}`, "a value": `{"apiVersion":"v1","kind":"Pod","spec":"` + long + `"}`,
		"a kind": `{"apiVersion":"v1","kind":"` + long + `"}`, "an object": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + long + `"},"x":1}`,
	} {
		m := Decode(name, []byte(text))
		if len(m.Errors) != 1 {
			t.Fatalf("%s: %d errors", name, len(m.Errors))
		}
		if e := m.Errors[0]; max(len(e.Object), len(e.Field), len(e.Detail)) > pod.TextBytes {
			t.Errorf("%s: an error of %d, %d and %d bytes", name, len(e.Object), len(e.Field), len(e.Detail))
		}
	}
}

// Decoding deeply nested objects must take memory in proportion to the size of the manifest, although the path of each field contains the
// names of all fields above it.
//
// The test is not parallel, because it counts the allocations of the process.
func TestDeepManifestCostsLittleMemory(t *testing.T) {
	const depth = 2000
	text := []byte(strings.Repeat("{"+strings.Repeat("x", 500)+": ", depth) + "1" + strings.Repeat("}", depth))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := Decode("deep", text)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; len(m.Errors) != 1 || n > 200*uint64(len(text)) {
		t.Errorf("a manifest of %d bytes costs %d; errors %v", len(text), n, m.Err())
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(web))
	f.Add([]byte("\f"))
	f.Add([]byte("a: &a [*a]\n---\n<<: {a: b}\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"kind":"Pod","apiVersion":"v1","spec":{"volumes":[{"name":"x"}],"containers":[null]}}]}`))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels: {a: 1}\nspec:\n  resources: {limits: {cpu: 1}}\n  containers: [{name: a, resources: {limits: {cpu: 1e99}}}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := Decode("f", data)
		for _, p := range m.Pods {
			p = Origin{Source: pod.SourceFile, Name: "f", NodeName: "n", Seen: time.Now()}.Static(p)
			if !pod.RefOf(p).Plausible() || len(p.Spec.Containers) == 0 || p.ObjectMeta.DeletionTimestamp != (*metav1.Time)(nil) {
				t.Errorf("taken: %v", p.ObjectMeta)
			}
		}
		_ = m.Err()
	})
}
