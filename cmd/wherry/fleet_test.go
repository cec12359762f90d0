package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent/fleet"
)

// The help of `wherry fleet fault` describes each kind of fault, and the completion knows each.
func TestFaultsAreDescribed(t *testing.T) {
	t.Parallel()
	f, err := fleet.New(fleet.Config{Groups: []fleet.Group{{Count: 1}}, Client: &rest.Config{Host: "https://127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: "none"})
	if err == nil {
		t.Fatal("a fault of no kind is no error")
	}
	_, list, _ := strings.Cut(err.Error(), "use one of [") // the error names all kinds
	kinds := strings.Fields(strings.TrimSuffix(list, "]"))
	if len(kinds) < 10 {
		t.Fatalf("kinds of faults: %q, from %v", kinds, err)
	}
	cmd := newFleetFault()
	for _, kind := range kinds {
		if !strings.Contains(cmd.Long, "\n  "+kind+" ") {
			t.Errorf("the help does not describe %s", kind)
		}
		if !slices.Contains(cmd.ValidArgs, kind) {
			t.Errorf("the completion does not know %s", kind)
		}
	}
}
