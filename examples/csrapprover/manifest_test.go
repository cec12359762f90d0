package main

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

// The manifest grants exactly the rights that the program uses, to the service account of its pods, and its arguments are valid.
func TestManifest(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../deploy/csrapprover/csrapprover.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var (
		account corev1.ServiceAccount
		role    rbacv1.ClusterRole
		binding rbacv1.ClusterRoleBinding
		deploy  appsv1.Deployment
	)
	into := []any{&account, &role, &binding, &deploy}
	documents := strings.Split(string(data), "\n---\n")
	if len(documents) != len(into) {
		t.Fatalf("%d documents", len(documents))
	}
	for i, d := range documents {
		if err := yaml.UnmarshalStrict([]byte(d), into[i]); err != nil {
			t.Fatal(err)
		}
	}
	pod := deploy.Spec.Template
	if !maps.Equal(deploy.Spec.Selector.MatchLabels, pod.Labels) {
		t.Errorf("the Deployment selects %v, its pods have %v", deploy.Spec.Selector.MatchLabels, pod.Labels)
	}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}
	if pod.Spec.ServiceAccountName != account.Name || deploy.Namespace != account.Namespace || !slices.Equal(binding.Subjects, []rbacv1.Subject{subject}) || binding.RoleRef.Name != role.Name {
		t.Errorf("the pods are %s/%s, the role %s is bound to %v", deploy.Namespace, pod.Spec.ServiceAccountName, binding.RoleRef.Name, binding.Subjects)
	}
	if _, err := parse(flag.NewFlagSet("csrapprover", flag.ContinueOnError), pod.Spec.Containers[0].Args); err != nil {
		t.Error(err)
	}

	granted := map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				granted[strings.Join(append([]string{rule.APIGroups[0], resource, verb}, rule.ResourceNames...), " ")] = true
			}
		}
	}
	// The API server asks for this right when the request is approved.
	used := map[string]bool{"certificates.k8s.io signers approve kubernetes.io/kubelet-serving": true}
	client := fake.NewClientset(nodeOne(), newAsk(t).signed(t))
	follow(t, client, func(*testing.T, *lines) { synctest.Wait() })
	for _, a := range client.Actions() {
		resource := a.GetResource().Resource
		if a.GetSubresource() != "" {
			resource += "/" + a.GetSubresource()
		}
		used[strings.Join([]string{a.GetResource().Group, resource, a.GetVerb()}, " ")] = true
	}
	if !maps.Equal(granted, used) {
		t.Errorf("granted are\n%v\nused are\n%v", slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)))
	}
}
