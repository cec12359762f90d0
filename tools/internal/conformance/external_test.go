package conformance

import (
	"os"
	"strings"
	"testing"
)

// The tests are told about each driver under the name and with the class with which it is deployed. Only disks are attached, and only local
// disks have a topology for whose capacity the provisioner asks.
func TestExternalDriversAreDeployedAsTheTestsKnowThem(t *testing.T) {
	t.Parallel()
	o := Options{Suite: SuiteExternal, Checkout: "../../.."}
	for _, kind := range externalKinds() {
		definition, err := os.ReadFile(o.testDriver(kind))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := externalObjects(kind, "/volumes/"+kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\n  Name: " + externalName(kind) + "\n", "\nStorageClass: {FromExistingClassName: " + kind + "}\n"} {
			if !strings.Contains(string(definition), want) {
				t.Errorf("%s has no %q", o.testDriver(kind), want)
			}
		}
		for want, there := range map[string]bool{
			"\nkind: StorageClass\nmetadata: {name: " + kind + "}\nprovisioner: " + externalName(kind) + "\n": true,
			"--dir=/volumes/" + kind:           true,
			"- name: provisioner\n":            true,
			"- name: resizer\n":                true,
			"- name: attacher\n":               kind == "disk",
			"attachRequired: true\n":           kind == "disk",
			"storageCapacity: true\n":          kind == "local",
			"--enable-capacity":                kind == "local",
			"--max-volumes=0\n":                kind != "disk",
			"<no value>":                       false,
			"namespace: " + externalName(kind): false, // the name of a namespace has no dots
			"\nkind: Namespace\nmetadata: {name: " + externalNamespace(kind) + "}\n": true,
			"fsGroupPolicy: File\n":      kind != "local",
			"volumeBindingMode: Immedia": kind != "local",
		} {
			if strings.Contains(objects, want) != there {
				t.Errorf("the objects of %s: %q is there: %v, want %v:\n%s", kind, want, !there, there, objects)
			}
		}
	}
}
