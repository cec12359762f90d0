package config

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// No field of KubeletConfiguration is ignored silently: the table named fields has each of them, and nothing else.
func TestEveryFieldIsKnown(t *testing.T) {
	t.Parallel()
	var want []string
	for path := range leaves(reflect.TypeFor[kubelet.KubeletConfiguration]()) {
		want = append(want, path)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("fields of KubeletConfiguration against the table (-type +table):\n%s", diff)
	}
}

// Each gate in gateUses exists and can be set. If it is on by default and not honoured, its entry says whether the default has an effect.
// Each field that is not honoured has a reason.
func TestEveryUseHasItsReason(t *testing.T) {
	t.Parallel()
	for name, use := range gateUses {
		if fact, known := gateFacts[name]; !known || fact.locked {
			t.Errorf("gate %s is locked or unknown (%t): remove it from the table", name, known)
		} else if fact.on && use.state == stateNotHonoured && !use.defaultActs && len(use.inert) == 0 {
			t.Errorf("gate %s is on and not honoured: say whether its default acts", name)
		}
	}
	for path, use := range fields {
		if use.state != stateHonoured && use.why == "" {
			t.Errorf("%s is not honoured and has no reason", path)
		}
	}
}

// Each test that an entry of the tables fields and gateUses names exists, and mentions the field or gate.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	for _, table := range []map[string]fieldUse{fields, gateUses} {
		for path, use := range table {
			name := path[strings.LastIndexByte(path, '.')+1:]
			for _, test := range use.tests {
				if !speaksOf(t, test, name) {
					t.Errorf("%s: there is no test %s that speaks of %s", path, test, name)
				}
			}
		}
	}
}

// speaksOf reports whether a test (internal/edge/config.TestX) contains a word, in upper or lower case.
func speaksOf(t *testing.T, test, word string) bool {
	t.Helper()
	dir, name, _ := strings.Cut(test, ".")
	files, err := filepath.Glob(filepath.Join("..", "..", "..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, body, ok := strings.Cut(string(data), "\nfunc "+name+"(")
		body, _, _ = strings.Cut(body, "\n}\n")
		if ok && strings.Contains(strings.ToLower(name+body), strings.ToLower(word)) {
			return true
		}
	}
	return false
}

// Every flag that sets a field names an existing field.
func TestFlagsNameFields(t *testing.T) {
	t.Parallel()
	cfg := baseConfig()
	for flag, path := range newFlagSet(&cfg).field {
		if _, ok := fields[path]; !ok {
			t.Errorf("--%s sets %s, which is not a field", flag, path)
		}
	}
}

// Applying the defaults twice changes nothing, and the defaults are valid.
func TestDefaultsSettle(t *testing.T) {
	t.Parallel()
	once := baseConfig()
	twice := once.Kubelet.DeepCopy()
	setDefaults(twice, Gates{})
	if diff := cmp.Diff(once.Kubelet, *twice); diff != "" {
		t.Errorf("(-once +twice):\n%s", diff)
	}
	if errs := validate(&once, nil); len(errs) > 0 {
		t.Errorf("defaults are not valid: %v", errs)
	}
}
