package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

func sample() []Image {
	files := []File{{Path: "bin/a", Mode: 0o755, Data: []byte("a")}, {Path: "tmp", Mode: os.ModeDir | os.ModeSticky | 0o777}, {Path: "bin/b", Mode: os.ModeSymlink | 0o777, Link: "a"}}
	return []Image{
		{Reference: "example.org/x:1", Files: files, User: "1000", Cmd: []string{"a"}},
		{Reference: "example.org/x:2", Files: files, User: "1000", Cmd: []string{"a"}},
	}
}

func archive(t *testing.T, set []Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteArchive(&b, set); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveIsAFunctionOfItsInput(t *testing.T) {
	t.Parallel()
	reversed := sample()
	for i := range reversed {
		slices.Reverse(reversed[i].Files)
	}
	if !bytes.Equal(archive(t, sample()), archive(t, reversed)) {
		t.Error("the order in which files are given changes the archive")
	}
}

func TestEveryReferenceHasAnImageOfItsOwn(t *testing.T) {
	t.Parallel()
	entries := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archive(t, sample()))); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		entries[header.Name] = data
	}
	var index manifest
	if err := json.Unmarshal(entries["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	configs := map[string]string{}
	for _, d := range index.Manifests {
		var m manifest
		if err := json.Unmarshal(blob(t, entries, d), &m); err != nil {
			t.Fatal(err)
		}
		name := d.Annotations["io.containerd.image.name"]
		if other, taken := configs[m.Config.Digest]; taken {
			t.Errorf("%s and %s have one image ID", other, name)
		}
		configs[m.Config.Digest] = name
		blob(t, entries, *m.Config)
		blob(t, entries, m.Layers[0])
	}
	if len(configs) != 2 {
		t.Errorf("%d images, want 2", len(configs))
	}
}

// blob returns the blob of a descriptor from the entries of an archive, and checks its digest and size.
func blob(t *testing.T, entries map[string][]byte, d descriptor) []byte {
	t.Helper()
	data, ok := entries["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if !ok || int64(len(data)) != d.Size || digestOf(data) != d.Digest {
		t.Errorf("blob %s: there %t, %d bytes, want %d", d.Digest, ok, len(data), d.Size)
	}
	return data
}

func TestNamesAreThoseOfTheSet(t *testing.T) {
	t.Parallel()
	const busybox = "/bin/busybox"
	if _, err := os.Stat(busybox); err != nil {
		t.Skip("no busybox-static on this machine")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	set, err := Set(Programs{Busybox: busybox, Web: self, Pause: self})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, image := range set {
		names = append(names, image.Reference)
	}
	if want := Names(); !slices.Equal(names, want) {
		t.Errorf("set has %q, Names returns %q", names, want)
	}
}
