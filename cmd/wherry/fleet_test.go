package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
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
	_, list, _ := strings.Cut(err.Error(), "use one of ") // the error names all kinds
	kinds := strings.Split(list, ", ")
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
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if of, is := strings.CutPrefix(f.Usage, "of "); is {
			of, _, _ = strings.Cut(of, ":")
			if want := strings.Split(of, " and "); !slices.Equal(faultFlags[f.Name], want) {
				t.Errorf("--%s is for the faults %q, but its help says %q", f.Name, faultFlags[f.Name], want)
			}
		}
	})
}
