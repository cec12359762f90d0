package hostfs

import "testing"

// LoopsOf returns the names of the loop devices that are attached to a path.
func LoopsOf(t *testing.T, path string) []string {
	t.Helper()
	names, err := loopsOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
