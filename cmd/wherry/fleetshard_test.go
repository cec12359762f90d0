package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// The command accepts the arguments that the StatefulSet in deploy/fleet gives it.
func TestArgumentsOfTheStatefulSet(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../deploy/fleet/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(data), "\n---\n")
	i := slices.IndexFunc(documents, func(d string) bool { return strings.Contains(d, "kind: StatefulSet") })
	if i < 0 {
		t.Fatal("no StatefulSet")
	}
	var set appsv1.StatefulSet
	if err := yaml.UnmarshalStrict([]byte(documents[i]), &set); err != nil {
		t.Fatal(err)
	}
	args := set.Spec.Template.Spec.Containers[0].Args
	if args[0] != "fleet" {
		t.Fatalf("arguments %v", args)
	}
	cmd := newFleet()
	if err := cmd.ParseFlags(args[1:]); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"in-cluster": "true", "yes": "true", "shard": "$(POD_NAME)", "shard-namespace": "$(POD_NAMESPACE)", "identity": "shared"} {
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s=%s, want %s", flag, got, want)
		}
	}
}
