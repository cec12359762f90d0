package vm

import (
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
)

// The Key of a recipe changes if, and only if, something in the recipe changes.
func TestKeyFollowsTheRecipe(t *testing.T) {
	t.Parallel()
	make := func() Recipe {
		return Recipe{
			Suite: "bookworm", Mirror: "http://m", Packages: []string{"a", "b"}, DiskMiB: 1024,
			Files: fstest.MapFS{"etc/fstab": {Data: []byte("x")}, "etc/hosts": {Data: []byte("y")}}, Links: map[string]string{"a": "b", "c": "d"},
		}
	}
	key := func(change func(*Recipe)) string {
		r := make()
		change(&r)
		k, err := r.Key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	seen := []string{key(func(*Recipe) {})}
	if key(func(*Recipe) {}) != seen[0] {
		t.Error("the same recipe has two keys")
	}
	for name, change := range map[string]func(*Recipe){
		"suite":    func(r *Recipe) { r.Suite = "trixie" },
		"mirror":   func(r *Recipe) { r.Mirror = "http://n" },
		"packages": func(r *Recipe) { r.Packages = append(r.Packages, "c") },
		"size":     func(r *Recipe) { r.DiskMiB++ },
		"links":    func(r *Recipe) { r.Links["c"] = "e" },
		"a file": func(r *Recipe) {
			r.Files = fstest.MapFS{"etc/fstab": {Data: []byte("z")}, "etc/hosts": {Data: []byte("y")}}
		},
		"a file's name": func(r *Recipe) {
			r.Files = fstest.MapFS{"etc/fstab": {Data: []byte("x")}, "etc/host": {Data: []byte("y")}}
		},
		"text moved on":  func(r *Recipe) { r.Files = fstest.MapFS{"etc/fstab": {Data: []byte("xy")}, "etc/hosts": {}} },
		"packages' join": func(r *Recipe) { r.Packages = []string{"a b"} },
	} {
		k := key(change)
		if slices.Contains(seen, k) {
			t.Errorf("%s: the key stays", name)
		}
		seen = append(seen, k)
	}
}

// The Debian recipe has everything in the guest that this package needs.
func TestDebianHasWhatTheDriverNeeds(t *testing.T) {
	t.Parallel()
	r := Debian()
	for _, name := range []string{"qemu-guest-agent", "linux-image-cloud-amd64", "systemd-sysv", "dbus", "initramfs-tools", "e2fsprogs"} {
		if !slices.Contains(r.Packages, name) {
			t.Errorf("%s is not in the image", name)
		}
	}
	if !slices.IsSorted(r.Packages) {
		t.Error("the packages are not sorted")
	}
	files := 0
	if err := r.each(func(string, fs.FileMode, []byte) error { files++; return nil }); err != nil || files < 8 {
		t.Errorf("%d files of the guest are compiled in (%v)", files, err)
	}
}
