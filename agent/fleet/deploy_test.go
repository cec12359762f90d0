package fleet_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// manifests are the objects of the files in deploy/fleet, by "Kind namespace/name".
func manifests(t *testing.T, files ...string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "fleet", file))
		if err != nil {
			t.Fatal(err)
		}
		documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			text, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			var head metav1.PartialObjectMetadata
			if err := yaml.Unmarshal(text, &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			into := map[string]any{
				"v1 Namespace": &v1.Namespace{}, "v1 ServiceAccount": &v1.ServiceAccount{}, "v1 ConfigMap": &v1.ConfigMap{}, "v1 Service": &v1.Service{},
				"apps/v1 StatefulSet": &appsv1.StatefulSet{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
				"rbac.authorization.k8s.io/v1 Role": &rbacv1.Role{}, "rbac.authorization.k8s.io/v1 RoleBinding": &rbacv1.RoleBinding{},
				"rbac.authorization.k8s.io/v1 ClusterRole": &rbacv1.ClusterRole{}, "rbac.authorization.k8s.io/v1 ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			}[head.APIVersion+" "+head.Kind]
			if into == nil {
				t.Fatalf("%s: unknown kind %s %s", file, head.APIVersion, head.Kind)
			}
			if err := yaml.UnmarshalStrict(text, into); err != nil {
				t.Fatalf("%s: %s %s: %v", file, head.Kind, head.Name, err)
			}
			key := fmt.Sprintf("%s %s/%s", head.Kind, head.Namespace, head.Name)
			if out[key] != nil {
				t.Errorf("%s: two of %s", file, key)
			}
			out[key] = into
		}
	}
	return out
}

// get returns one of the manifests.
func get[T any](t *testing.T, all map[string]any, key string) T {
	t.Helper()
	got, ok := all[key].(T)
	if !ok {
		t.Fatalf("no %s", key)
	}
	return got
}

// The manifests fit each other: names, labels, mounts, and files that the command can read.
func TestManifestsOfAFleet(t *testing.T) {
	t.Parallel()
	all := manifests(t, "rbac.yaml", "fleet.yaml", "pods-with-tokens.yaml", "csi-drivers.yaml", "resource-slices.yaml")
	set := get[*appsv1.StatefulSet](t, all, "StatefulSet wherry-fleet/big")
	pod := set.Spec.Template
	for what, selector := range map[string]map[string]string{
		"StatefulSet":         set.Spec.Selector.MatchLabels,
		"Service":             get[*v1.Service](t, all, "Service wherry-fleet/"+set.Spec.ServiceName).Spec.Selector,
		"PodDisruptionBudget": get[*policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget wherry-fleet/big").Spec.Selector.MatchLabels,
	} {
		if fmt.Sprint(selector) != fmt.Sprint(pod.Labels) {
			t.Errorf("the %s selects %v, the pods have %v", what, selector, pod.Labels)
		}
	}
	get[*v1.ServiceAccount](t, all, "ServiceAccount wherry-fleet/"+pod.Spec.ServiceAccountName)
	get[*v1.Namespace](t, all, "Namespace /wherry-fleet")
	config := get[*v1.ConfigMap](t, all, "ConfigMap wherry-fleet/"+pod.Spec.Volumes[0].ConfigMap.Name)
	groups, err := fleet.ParseTemplate("template.yaml", []byte(config.Data["template.yaml"]))
	if err != nil || len(groups) != 2 {
		t.Errorf("template: %v", err)
	}
	if _, err := simulated.ParseRules(simulated.RulesFile{Name: "rules.yaml", Data: []byte(config.Data["rules.yaml"])}); err != nil {
		t.Errorf("rules: %v", err)
	}
	c := pod.Spec.Containers[0]
	for _, arg := range []string{"--template=" + c.VolumeMounts[0].MountPath + "/template.yaml", "--rules=" + c.VolumeMounts[0].MountPath + "/rules.yaml", "--identity=shared"} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("no argument %s: %v", arg, c.Args)
		}
	}
	for key, object := range all {
		if b, ok := object.(*rbacv1.RoleBinding); ok {
			if b.RoleRef.Kind == "Role" {
				get[*rbacv1.Role](t, all, "Role "+b.Namespace+"/"+b.RoleRef.Name)
			} else {
				get[*rbacv1.ClusterRole](t, all, "ClusterRole /"+b.RoleRef.Name)
			}
			checkSubject(t, key, b.Subjects)
		}
		if b, ok := object.(*rbacv1.ClusterRoleBinding); ok {
			get[*rbacv1.ClusterRole](t, all, "ClusterRole /"+b.RoleRef.Name)
			checkSubject(t, key, b.Subjects)
		}
	}
}

func checkSubject(t *testing.T, binding string, subjects []rbacv1.Subject) {
	t.Helper()
	if want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "fleet", Namespace: "wherry-fleet"}}; !slices.Equal(subjects, want) {
		t.Errorf("%s: subjects %+v", binding, subjects)
	}
}

// right is one verb that a rule of RBAC grants: in all namespaces if namespace is "".
type right struct{ namespace, group, resource, verb string }

// rights returns what roles grant. They have neither wildcards nor names of resources.
func rights(t *testing.T, all map[string]any) map[right]bool {
	t.Helper()
	out := map[right]bool{}
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			if len(r.ResourceNames)+len(r.NonResourceURLs) > 0 {
				t.Errorf("%v: this test does not know such rules", r)
			}
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						if strings.Contains(group+resource+verb, "*") {
							t.Errorf("%v has a wildcard", r)
						}
						out[right{namespace, group, resource, verb}] = false
					}
				}
			}
		}
	}
	for _, object := range all {
		switch o := object.(type) {
		case *rbacv1.Role:
			add(o.Namespace, o.Rules)
		case *rbacv1.ClusterRole:
			add("", o.Rules)
		}
	}
	return out
}

// checker knows which rights requests need.
type checker struct {
	mu      sync.Mutex
	rights  map[right]bool // each with whether a request has used it
	refused map[right]bool
}

// checked is the transport of one process, which refuses what no right allows.
type checked struct {
	*checker
	next http.RoundTripper
}

// RoundTrip passes a request on if there is a right for it.
func (c checked) RoundTrip(r *http.Request) (*http.Response, error) {
	want := rightFor(r)
	everywhere := want
	everywhere.namespace = ""
	c.mu.Lock()
	ok := false
	for _, w := range []right{want, everywhere} {
		if _, has := c.rights[w]; has {
			c.rights[w], ok = true, true
			break
		}
	}
	if !ok {
		c.refused[want] = true
	}
	c.mu.Unlock()
	if !ok {
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("forbidden")), Request: r}, nil
	}
	return c.next.RoundTrip(r)
}

// rightFor returns the right that a request needs.
func rightFor(r *http.Request) (out right) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" {
		out.group, parts = parts[1], parts[3:]
	} else {
		parts = parts[2:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		out.namespace, parts = parts[1], parts[2:]
	}
	out.resource = parts[0]
	if len(parts) > 2 {
		out.resource += "/" + parts[2]
	}
	out.verb = map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	switch {
	case out.verb == "delete" && len(parts) == 1:
		out.verb = "deletecollection"
	case out.verb != "":
	case r.URL.Query().Get("watch") != "":
		out.verb = "watch"
	case len(parts) > 1:
		out.verb = "get"
	default:
		out.verb = "list"
	}
	return out
}

// The rights of the manifests are enough for a shared fleet, and it uses each of them: nodes join and leave, pods run, end and are evicted, and a
// process takes the nodes of another.
func TestRightsOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShared(t, 10)
		c := &checker{rights: rights(t, manifests(t, "rbac.yaml")), refused: map[right]bool{}}
		run := func(name string) *process {
			return b.run(name, func(cfg *fleet.Config) {
				cfg.Identity, cfg.Shard.Namespace = fleet.Shared, "wherry-fleet"
				cfg.Client.Transport = checked{c, cfg.Client.Transport}
			})
		}
		_, err := b.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "wherry-fleet"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := run("a")
		b.settle(first)
		b.pod("runs", v1.RestartPolicyAlways, nil)
		b.pod("ends", v1.RestartPolicyNever, map[string]string{simulated.AnnotationRunFor: "1s"})
		b.pod("crashes", v1.RestartPolicyAlways, map[string]string{simulated.AnnotationRunFor: "1s"})
		time.Sleep(5 * time.Minute)
		if s := first.Status(); s.Pods.Running+s.Pods.Pending != 2 || s.Pods.Succeeded != 1 {
			t.Errorf("pods: %+v", s.Pods)
		}
		if err := b.admin.CoreV1().Pods("default").Delete(t.Context(), "runs", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		first.kill()
		second := run("c")
		time.Sleep(2 * time.Minute) // the lease of the first is deleted
		b.settle(second)
		if err := second.Scale("", 5); err != nil {
			t.Fatal(err)
		}
		b.awaitNodes(5)
		second.stop()
		for r := range c.refused {
			t.Errorf("the manifests do not allow %+v", r)
		}
		for r, used := range c.rights {
			if !used {
				t.Errorf("nothing uses %+v", r)
			}
		}
	})
}
