package replay_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
)

var update = flag.Bool("update", false, "write the present decisions into testdata")

// TestTurns decides each exported turn in testdata again. To make a test of a turn that showed a fault, copy its file to testdata
// and write the right decision into the copy.
func TestTurns(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no turns", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			turn, err := replay.Parse(file, data)
			if err != nil {
				t.Fatal(err)
			}
			now := turn.Again()
			if *update {
				turn.Plan = now
				if data, err = turn.Encode(); err == nil {
					err = os.WriteFile(file, data, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(turn.Plan, now); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const secret = "s3cr3t"

// secretive returns a pod in which every text that a user or a program can write is the secret.
func secretive() *v1.Pod {
	p := &v1.Pod{}
	fill(reflect.ValueOf(p).Elem(), 0)
	p.Namespace, p.Name, p.UID = "ns", "web", "u1"
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].Name, list[i].Image = "app", "img:1"
		}
	}
	p.Annotations = map[string]string{"kubernetes.io/config.source": "api", "kubectl.kubernetes.io/last-applied-configuration": secret, "x": secret}
	return p
}

// fill sets every string inside v to the secret. It makes one element for each list, and stops at a depth of 12.
func fill(v reflect.Value, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(secret)
	case reflect.Pointer:
		if v.Type().Elem() == reflect.TypeFor[metav1.Time]() {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(secret))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String || v.Type().Elem().Kind() != reflect.String {
			return // a map of quantities by resource name has no texts
		}
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(secret).Convert(v.Type().Key()), reflect.ValueOf(secret).Convert(v.Type().Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(f, depth+1)
			}
		}
	}
}

// TestNothingSecret exports a pod in which every text is a secret, and expects that the export has none of these texts. The
// exceptions are the fields that harmless lists: names, and fields for which the API has a list of possible values.
func TestNothingSecret(t *testing.T) {
	t.Parallel()
	mem := &decide.Memory{Stop: &decide.Stop{Reason: "Evicted", Message: secret, Disruption: secret}}
	mem.Resize.PendingMessage, mem.Resize.Error = secret, secret
	c := mem.Ensure("app")
	c.WaitingReason, c.WaitingMessage = "ErrImagePull", secret
	mem.Retry = []decide.Retry{{Op: pod.OpSetUp, Message: secret}}
	in := &decide.Input{
		Pod: secretive(), Memory: mem, Policy: new(decide.Policy), Now: time.Now(),
		Observed: &pod.Observed{Containers: []pod.Container{{ID: "c1", Name: "app", Said: pod.SaidOf("Error", secret)}}},
	}
	turn := replay.Of(pod.Ref{Namespace: "ns", Name: "web", UID: "u1"}, in)
	data, err := turn.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	var found []string
	walk("", tree, func(path string) { found = append(found, path) })
	var bad []string
	for _, path := range found {
		if !harmless(path) {
			bad = append(bad, path)
		}
	}
	if len(bad) > 0 {
		t.Errorf("these texts are exported:\n%s", strings.Join(bad, "\n"))
	}
	if in.Pod.Spec.Containers[0].Command[0] != secret || in.Observed.Containers[0].Said.Message != secret || mem.Stop.Message != secret {
		t.Error("the export has changed its input")
	}
}

// harmless reports whether the field at path holds a name or one of a fixed set of words, so that it may be exported.
func harmless(path string) bool {
	last := path[strings.LastIndex(path, ".")+1:]
	for _, name := range []string{
		"name", "resourceVersion", "image", "reference", "pullPolicy", "workingDir", "protocol", "hostIP", "mountPath", "subPath", "subPathExpr", "devicePath",
		"terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "restartPolicy", "restartPolicyRules", "action", "operator", "dnsPolicy",
		"serviceAccountName", "serviceAccount", "nodeName", "hostname", "subdomain", "schedulerName", "priorityClassName", "preemptionPolicy", "runtimeClassName",
		"setHostnameAsFQDN", "hostnameOverride", "os", "phase", "reason", "type", "status", "qosClass", "resize", "podIP", "ip", "imageID", "containerID", "host", "port",
		"scheme", "service", "stopSignal", "recursiveReadOnly", "mountPropagation", "resourceName", "restartPolicyForContainer", "targetContainerName", "nominatedNodeName",
		"topologyKey", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy", "conditionType", "resourceClaimName", "resourceClaimTemplateName", "request",
		"signal", "resourceID", "health", "containers", "imageRef", "containerName", "requestName",
	} {
		if last == name {
			return true
		}
	}
	for _, part := range []string{".securityContext.", ".dnsConfig.", ".topologySpreadConstraints", ".schedulingGroup.", ".workloadRef.", ".allocatedResourcesStatus", ".hostIPs", ".podIPs"} {
		if strings.Contains(path, part) {
			return true
		}
	}
	return false
}

// walk calls see with the path of each text that contains the secret.
func walk(path string, v any, see func(path string)) {
	switch v := v.(type) {
	case map[string]any:
		for k, below := range v {
			if strings.Contains(k, secret) {
				see(path + ".KEY")
			}
			walk(path+"."+k, below, see)
		}
	case []any:
		for _, below := range v {
			walk(path, below, see)
		}
	case string:
		if strings.Contains(v, secret) {
			see(path)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, want string }{
		{"", "not a turn that was exported"},
		{"[]", "not a turn that was exported"},
		{`{"kind": "Pod"}`, `kind "Pod"`},
		{`{"kind": "WherryTurn", "schema": 7, "agent": "v9"}`, `schema 7, of an agent of version "v9"`},
		{`{"kind": "WherryTurn", "schema": 7, "input": {"node": {"gpu": 1, "NetworkReady": true}, "observed": {"Containers": [{"Tint": 1}]}}}`, "does not know: input.node.gpu, input.observed.Containers.Tint; decide"},
		{`{"kind": "WherryTurn", "schema": 0, "input": {"memory": {"SetUp": true}, "pod": {"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}}}}`, "the meaning of a field differs"},
		{`{"kind": "WherryTurn", "schema": 7, ` + manyFields(12) + `}`, "and 2 more"},
		{`{"kind": "WherryTurn", "schema": 1, "surprise": 1}`, "surprise"},
		{`{"kind": "WherryTurn", "schema": 1}`, "input.observed"},
		{`{"kind": "WherryTurn", "schema": 1, "input": {"observed": {"Containers": [{"State": "melted"}]}}}`, `"melted"`},
		{`{"kind": "WherryTurn", "schema": 1, "input": {"observed": {}, "inFlight": [{"Op": "melt"}]}}`, `"melt"`},
		{strings.Repeat(" ", replay.MaxBytes+1), "more than 8388608 bytes"},
	} {
		if _, err := replay.Parse("f.json", []byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: %v, want %s", c.data, err, c.want)
		}
	}
}

// manyFields returns n JSON fields that no version of the schema has.
func manyFields(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"new%02d": 1`, i))
	}
	return strings.Join(out, ", ")
}

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		was, now []string
		want     string
		same     bool
	}{
		{[]string{"a", "b"}, []string{"a", "b"}, "  a|  b", true},
		{[]string{"a", "b"}, []string{"a", "c"}, "  a|- b|+ c", false},
		{[]string{"a", "b"}, []string{"b", "a"}, "  a|  b|  (the same lines in another order)", false},
	} {
		lines, same := replay.Diff(c.was, c.now)
		if diff := cmp.Diff(c.want, strings.Join(lines, "|")); diff != "" || same != c.same {
			t.Error(diff, same)
		}
	}
}

// FuzzParse checks that no file content causes a panic: neither in Parse, nor when the parsed turn is decided again or written as a
// script.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if turn, err := replay.Parse("f", data); err == nil {
			turn.Again()
			turn.Steps()
			if _, err := turn.Script(); err != nil {
				t.Error(err)
			}
		}
	})
}
