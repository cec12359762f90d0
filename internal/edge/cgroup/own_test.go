package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"v2":           {"0::/system.slice/wherry.service\n", "/system.slice/wherry.service"},
		"v2 root":      {"0::/\n", "/"},
		"v1":           {"9:name=systemd:/other\n4:memory:/agents/one\n2:cpu,cpuacct:/agents/one\n0::/\n", "/agents/one"},
		"v1 apart":     {"4:memory:/agents/one\n2:cpu,cpuacct:/\n0::/\n", ""},
		"v1 no memory": {"2:cpu:/agents/one\n0::/\n", ""},
		"outside":      {"0::/../neighbour\n", "/neighbour"},
		"colons":       {"0::/a:b\n", "/a:b"},
		"nothing":      {"", ""},
		"nonsense":     {"cpu\n::\n", "/"},
	} {
		file := filepath.Join(t.TempDir(), "cgroup")
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := Own(file)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	if _, err := Own(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file gave no error")
	}
}
