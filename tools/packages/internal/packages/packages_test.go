package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample returns a small Source with the project's real units and scripts.
func sample() *Source {
	return &Source{
		Version: "0.1.0~git20010203040506.abcdef12", Kubernetes: "1.36.3", Time: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC),
		Programs: map[string][]byte{"amd64": []byte("\x7fELF for amd64"), "arm64": []byte("\x7fELF for arm64")},
		Manual:   map[string][]byte{"wherry.1": []byte(".TH wherry 1\n"), "wherry-run.1": []byte(".TH wherry-run 1\n")},
		Completion: map[string][]byte{
			"bash": []byte("complete wherry\n"), "zsh": []byte("#compdef wherry\n"), "fish": []byte("complete -c wherry\n"),
		},
		Deploy: "../../../../deploy", License: []byte("Apache-2.0\n"), Changelog: []byte("# Changelog\n"),
	}
}

func all(t *testing.T, s *Source) map[string][]byte {
	t.Helper()
	files, err := s.All()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// pick returns the name and content of the only file whose name contains all the parts.
func pick(t *testing.T, files map[string][]byte, parts ...string) (string, []byte) {
	t.Helper()
	var found []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(name, p) }) {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		t.Fatalf("files with %q: %q of %q", parts, found, slices.Sorted(maps.Keys(files)))
	}
	return found[0], files[found[0]]
}

// The packages do not depend on the place and the time of the build: another directory, another SOURCE_DATE_EPOCH and another host name
// change nothing.
func TestTwoBuildsAreEqual(t *testing.T) {
	first := all(t, sample())
	if len(first) != 12 { // for each of two architectures: two packages as .deb and .rpm, a tarball and an image
		t.Errorf("made %q", slices.Sorted(maps.Keys(first)))
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	second := all(t, sample())
	for name, data := range first {
		if !bytes.Equal(second[name], data) {
			t.Errorf("two builds of %s differ", name)
		}
		if len(host) > 4 && bytes.Contains(data, []byte(host)) {
			t.Errorf("%s names the machine that made it", name)
		}
	}
	// The files in a package have the time of the commit, so packages of a later commit differ. Images (.oci.tar) do not contain the time of
	// the commit.
	later := sample()
	later.Time = later.Time.Add(time.Hour)
	for name, data := range all(t, later) {
		if bytes.Equal(first[name], data) && !strings.Contains(name, ".oci.") {
			t.Errorf("%s does not have the time of its commit", name)
		}
	}
}

// command runs a program of this machine, and skips the test if the program is missing.
func command(t *testing.T, program string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("this machine has no %s", program)
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", program, args, err, out)
	}
	return string(out)
}

func put(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDebs(t *testing.T) {
	t.Parallel()
	files := all(t, sample())
	name, data := pick(t, files, "wherry-kubelet_", "_arm64.deb")
	deb := put(t, name, data)
	fields := command(t, "dpkg-deb", "-f", deb)
	for _, want := range []string{
		"Package: wherry-kubelet\n", "Version: 0.1.0~git20010203040506.abcdef12\n", "Architecture: arm64\n", "Provides: kubelet (= 1.36.3)\n",
		"Conflicts: kubelet\n", "Replaces: kubelet\n", "Depends: wherry (= 0.1.0~git20010203040506.abcdef12)\n",
	} {
		if !strings.Contains(fields+"\n", want) {
			t.Errorf("no %q in\n%s", want, fields)
		}
	}
	dir := t.TempDir()
	command(t, "dpkg-deb", "-R", deb, dir)
	conffiles, err := os.ReadFile(filepath.Join(dir, "DEBIAN", "conffiles"))
	if err != nil || string(bytes.TrimSpace(conffiles)) != "/etc/default/kubelet" {
		t.Errorf("files of the administrator: %q, %v", conffiles, err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "usr/bin/kubelet")); target != "wherry" {
		t.Errorf("/usr/bin/kubelet is %q, %v", target, err)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		path := filepath.Join(dir, "DEBIAN", script)
		command(t, "sh", "-n", path)
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("kubelet.service")) || bytes.Contains(text, []byte("@UNIT@")) {
			t.Errorf("%s is not about kubelet.service: %v\n%s", script, err, text)
		}
	}

	name, data = pick(t, files, "wherry_", "_amd64.deb")
	list := command(t, "dpkg-deb", "-c", put(t, name, data))
	for _, want := range []string{
		"./usr/bin/wherry", "./usr/lib/systemd/system/wherry-kubelet.service", "./usr/share/man/man1/wherry-run.1.gz",
		"./usr/share/bash-completion/completions/wherry", "./usr/share/zsh/vendor-completions/_wherry",
	} {
		if !strings.Contains(list, want+"\n") {
			t.Errorf("no %s in\n%s", want, list)
		}
	}
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " 2001-02-03 ") || !strings.Contains(line, " root/root ") {
			t.Errorf("not of the commit's time, or not root's: %s", line)
		}
	}
	if strings.Contains(list, "/usr/bin/kubelet") || strings.Contains(list, "site-functions") {
		t.Errorf("what is not its own is in it:\n%s", list)
	}
}

func TestRPMs(t *testing.T) {
	t.Parallel()
	files := all(t, sample())
	name, data := pick(t, files, "wherry-kubelet-", "aarch64.rpm")
	file := put(t, name, data)
	query := func(args ...string) string {
		return command(t, "rpm", append([]string{"-qp", "--dbpath", t.TempDir()}, append(args, file)...)...)
	}
	if got, want := query("--qf", `%{NAME} %{VERSION} %{ARCH} %{BUILDTIME} %{BUILDHOST}`), "wherry-kubelet 0.1.0~git20010203040506.abcdef12 aarch64 981173106 localhost"; got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
	if got := query("--provides"); !strings.Contains(got, "kubelet = 1.36.3\n") {
		t.Errorf("provides %q", got)
	}
	if got := query("--conflicts"); !strings.Contains(got, "kubelet\n") {
		t.Errorf("conflicts with %q", got)
	}
	if got := query("--requires"); !strings.Contains(got, "wherry = 0.1.0~git20010203040506.abcdef12\n") {
		t.Errorf("requires %q", got)
	}
	if got := strings.Fields(query("--configfiles")); !slices.Equal(got, []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"}) {
		t.Errorf("files of the administrator: %q", got)
	}
}

// A machine with rpm keeps the administrator's arguments of upstream's kubelet, in /etc/sysconfig/kubelet. The unit reads the file, the package has
// it, so that it is not put aside with the package of upstream's kubelet, and what the package has there sets nothing.
func TestArgumentsOfAMachineWithRPM(t *testing.T) {
	t.Parallel()
	files, err := sample().taking()
	if err != nil {
		t.Fatal(err)
	}
	const args = "etc/sysconfig/kubelet"
	has := func(kind string) (f file, ok bool) {
		list := of(files, kind)
		i := slices.IndexFunc(list, func(f file) bool { return f.path == args })
		if i < 0 {
			return f, false
		}
		return list[i], true
	}
	if _, ok := has("deb"); ok {
		t.Error("the .deb has it")
	}
	f, ok := has("rpm")
	if !ok || !f.config {
		t.Errorf("the .rpm has it: %t; it belongs to the administrator: %t", ok, f.config)
	}
	for line := range strings.Lines(string(f.data)) {
		if !strings.HasPrefix(line, "#") {
			t.Errorf("it sets %q", line)
		}
	}
	own, err := sample().own("amd64")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(own, files...) {
		if (strings.HasSuffix(f.path, "05-arguments.conf") || strings.HasSuffix(f.path, ownUnit)) && !strings.Contains(string(f.data), "\nEnvironmentFile=-/"+args+"\n") {
			t.Errorf("the unit does not read it:\n%s", f.data)
		}
	}
}

// entries returns the files of a tar archive.
func entries(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTarballAndImage(t *testing.T) {
	t.Parallel()
	files := all(t, sample())
	name, data := pick(t, files, "linux-arm64.tar.gz")
	base := strings.TrimSuffix(name, ".tar.gz")
	inside := entries(t, decompressed(t, data))
	if string(inside[base+"/usr/bin/wherry"]) != "\x7fELF for arm64" {
		t.Errorf("the program is missing in %q", slices.Sorted(maps.Keys(inside)))
	}
	for _, want := range []string{"/usr/bin/kubelet", "/etc/default/kubelet", "/usr/lib/systemd/system/kubelet.service"} {
		if _, ok := inside[base+want]; !ok {
			t.Errorf("no %s", want)
		}
	}
	for arch, other := range map[string]string{"amd64": "arm64", "arm64": "amd64"} {
		_, data := pick(t, files, arch+".oci.tar")
		if !bytes.Contains(data, []byte(`"architecture":"`+arch+`"`)) || bytes.Contains(data, []byte(other)) {
			t.Errorf("the image for %s is not all for it", arch)
		}
		if !bytes.Contains(data, []byte(`localhost/wherry:0.1.0-git20010203040506.abcdef12`)) {
			t.Error("the image does not have its version")
		}
	}
}

func decompressed(t *testing.T, data []byte) []byte {
	t.Helper()
	if at := binary.LittleEndian.Uint32(data[4:8]); at != 0 {
		t.Errorf("a time in the compressed file: %d", at)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
