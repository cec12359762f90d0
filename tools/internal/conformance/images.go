package conformance

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/wherry-node/wherry/tools/internal/images"
)

// e2eImages begins the names of the images that the tests use. The list of images is that of Kubernetes v1.36.3
// (test/utils/image/manifest.go, `e2e.test --list-images`).
const e2eImages = "registry.k8s.io/e2e-test-images/"

const busybox = "busybox:1.37.0-1"

// Unavailable returns the images that Images does not build, with the reasons. Tests that need one of them fail with any kubelet.
func Unavailable() map[string]string {
	return map[string]string{
		e2eImages + "apparmor-loader:1.4":                        "loads AppArmor profiles with Debian's tools, which this kernel has no use for",
		e2eImages + "node-perf/npb-ep:1.6.0":                     "Fortran benchmarks",
		e2eImages + "node-perf/npb-is:1.7.0":                     "Fortran benchmarks",
		e2eImages + "node-perf/pytorch-wide-deep:1.0.0":          "Python",
		e2eImages + "perl:5.26":                                  "no static perl",
		e2eImages + "sample-apiserver:1.29.2":                    "an API server; only SuiteKubeadm has it",
		e2eImages + "volume/iscsi:2.7":                           "needs kernel modules",
		e2eImages + "volume/nfs:1.6.0":                           "needs kernel modules",
		"registry.k8s.io/build-image/distroless-iptables:v0.9.6": "dynamic iptables; not a matter of nodes",
		"registry.k8s.io/etcd:3.6.8-0":                           "only the test of an API server needs it; kubeadm's cluster has it",
		"registry.k8s.io/sig-storage/nfs-provisioner:v4.0.8":     "needs kernel modules",
		"gcr.io/k8s-authenticated-test/agnhost:2.6":              "asks for an account in a registry of the internet",
		"invalid.registry.k8s.io/invalid/alpine:3.1":             "does not exist, which is what its test wants",
	}
}

// placeholders returns images with the names of images that the node suite pulls after tests of image collection, and that no test here runs.
// They contain pause. That of perl also has thousands of files, as the original, because a test wants inodes back from removed images.
func placeholders(bin string) ([]images.Image, error) {
	pause, err := programs{bin}.file("pause", "images/pause", 0o755)
	if err != nil {
		return nil, err
	}
	var set []images.Image
	for _, name := range []string{
		e2eImages + "perl:5.26", e2eImages + "node-perf/npb-ep:1.6.0", e2eImages + "node-perf/npb-is:1.7.0", e2eImages + "node-perf/pytorch-wide-deep:1.0.0",
		e2eImages + "sample-device-plugin:1.7", e2eImages + "volume/nfs:1.6.0", "registry.k8s.io/etcd:3.6.8-0", "gcr.io/cadvisor/cadvisor:v0.47.2",
		"registry.k8s.io/node-problem-detector/node-problem-detector:v1.34.0", "docker.io/nfvpe/sriov-device-plugin:v3.1",
	} {
		files := []images.File{pause}
		if strings.Contains(name, "perl") {
			for i := range filesOfPerl {
				files = append(files, images.File{Path: fmt.Sprintf("usr/lib/perl/%d/%d.pm", i/500, i), Mode: 0o644})
			}
		}
		set = append(set, images.Image{Reference: name, Files: files, Entrypoint: []string{"/pause"}, Env: []string{images.SearchPath}})
	}
	return set, nil
}

const filesOfPerl = 15000

// programs reads the files for the images from the directory bin and its subdirectory conformance.
type programs struct{ bin string }

func (p programs) file(at, name string, mode os.FileMode) (images.File, error) {
	data, err := os.ReadFile(filepath.Join(p.bin, name))
	if err != nil {
		return images.File{}, fmt.Errorf("read program of an image: %w", err)
	}
	return images.File{Path: at, Mode: mode, Data: data}, nil
}

// Images builds the tests' images from the programs in the directory bin. Each image has an image ID of its own.
func Images(ctx context.Context, bin string) ([]images.Image, error) {
	base, err := system(bin)
	if err != nil {
		return nil, err
	}
	agnhost, pause, err := agnhostFiles(bin, base)
	if err != nil {
		return nil, err
	}
	// With busybox' nsenter, tests that enter a node's mount namespace would find busybox' own commands there instead of the node's.
	dynamic, err := images.Dynamic(ctx, "dig", "getent", "nsenter")
	if err != nil {
		return nil, fmt.Errorf("%w (Debian packages bind9-dnsutils, libc-bin and util-linux)", err)
	}
	dynamic = append(dynamic, images.File{Path: "etc/nsswitch.conf", Mode: 0o644, Data: []byte("hosts: files dns\n")}) // for getent
	agnhost = append(agnhost, dynamic...)
	set := []images.Image{pause}
	add := func(name string, files []images.File, entrypoint ...string) *images.Image {
		set = append(set, images.Image{Reference: e2eImages + name, Files: files, Entrypoint: entrypoint, Env: []string{images.SearchPath}})
		return &set[len(set)-1]
	}
	for _, tag := range []string{"2.63.0", "2.55"} {
		add("agnhost:"+tag, agnhost, "/agnhost").Cmd = []string{"pause"}
	}
	add("glibc-dns-testing:2.0.0", append(base[:len(base):len(base)], dynamic...)).Cmd = []string{"sh"}
	for _, name := range []string{"kitten", "nautilus"} {
		// Tests mount these images as volumes, and ask the web server for this file.
		data := fmt.Appendf(nil, "{\"image\": \"%s.jpg\"}\n", name)
		add(name+":1.8", append(agnhost[:len(agnhost):len(agnhost)], images.File{Path: "data.json", Mode: 0o644, Data: data},
			images.File{Path: "etc/os-release", Mode: 0o644, Data: []byte("NAME=\"Alpine Linux\"\n")}), "/agnhost").Cmd = []string{"test-webserver"}
	}
	add(busybox, base).Cmd = []string{"sh"}
	add("busybox:1.36.1-1", base).Cmd = []string{"sh"} // not in the list, but named by the tests of MemoryQoS
	add("ipc-utils:1.4", base).Cmd = []string{"sh"}
	nonroot := add("nonroot:1.5", base)
	nonroot.Cmd, nonroot.User = []string{"sh"}, "1234"
	for _, one := range []struct {
		name, program, at string
		mode              os.FileMode
		run               []string
	}{
		{"nginx:1.15-4", "images/web", "usr/sbin/nginx", 0o755, []string{"nginx"}},
		{"nginx:1.27-0", "images/web", "usr/sbin/nginx", 0o755, []string{"nginx"}},
		{"nonewprivs:1.4", "conformance/nonewprivs", "usr/local/bin/nnp", 0o755 | os.ModeSetuid | os.ModeSetgid, []string{"nnp"}},
		{"regression-issue-74839:1.4", "conformance/regression-issue-74839", "regression-issue-74839", 0o755, []string{"/regression-issue-74839"}},
		{"resource-consumer:1.14", "conformance/resource-consumer", "consumer", 0o755, []string{"/consumer"}},
	} {
		file, err := programs{bin}.file(one.at, one.program, one.mode)
		if err != nil {
			return nil, err
		}
		image := add(one.name, append(base[:len(base):len(base)], file), one.run...)
		if strings.HasPrefix(one.name, "nginx") {
			image.Env = append(image.Env, "PORT=80")
		}
	}
	return set, nil
}

// system returns the files of a small system: busybox, the tools that Debian's busybox lacks (images/applets), and bash for scripts that
// need it.
func system(bin string) ([]images.File, error) {
	files, err := images.BusyboxFiles("/bin/busybox")
	if err != nil {
		return nil, err
	}
	var kept []images.File
	for _, f := range files {
		switch f.Path {
		case "bin/sh", "bin/nc", "etc/group": // these files are created below
		case "etc/passwd":
			// As in the original image, other user IDs have no entry in /etc/passwd, so that they get group 0.
			kept = append(kept, images.File{Path: f.Path, Mode: f.Mode, Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n")},
				images.File{Path: "etc/group", Mode: f.Mode, Data: []byte("root:x:0:\nnobody:x:65534:\n")})
		default:
			kept = append(kept, f)
		}
	}
	p := programs{bin}
	for _, program := range [][2]string{{"bin/bash", "conformance/bash-static"}, {"bin/applets", "conformance/applets"}} {
		file, err := p.file(program[0], program[1], 0o755)
		if err != nil {
			return nil, err
		}
		kept = append(kept, file)
	}
	for _, name := range []string{"sh", "nc", "curl", "nmeter", "printenv"} {
		kept = append(kept, images.File{Path: "bin/" + name, Mode: os.ModeSymlink | 0o777, Link: "applets"})
	}
	return append(kept, images.File{Path: "usr/bin/curl", Mode: os.ModeSymlink | 0o777, Link: "../../bin/applets"}), nil
}

// agnhostFiles returns the files of agnhost, the multi-purpose program of the tests, and the image that agnhost's built-in registry serves.
func agnhostFiles(bin string, base []images.File) ([]images.File, images.Image, error) {
	p := programs{bin}
	agnhost, err := p.file("agnhost", "conformance/agnhost", 0o755)
	if err != nil {
		return nil, images.Image{}, err
	}
	program, err := p.file("pause", "images/pause", 0o755)
	if err != nil {
		return nil, images.Image{}, err
	}
	// agnhost netexec serves HTTPS with this certificate, which Build copies from the tests' module.
	certificate, err := p.file("localhost.crt", "conformance/localhost.crt", 0o644)
	if err != nil {
		return nil, images.Image{}, err
	}
	key, err := p.file("localhost.key", "conformance/localhost.key", 0o644)
	if err != nil {
		return nil, images.Image{}, err
	}
	pause := images.Image{
		Reference: "registry.k8s.io/pause:3.10.2", Files: []images.File{program}, Entrypoint: []string{"/pause"},
		Env: []string{images.SearchPath}, User: "65535:65535",
	}
	files := []images.File{
		agnhost,
		certificate, key,
		{Path: "agnhost-2", Mode: os.ModeSymlink | 0o777, Link: "agnhost"},
		{Path: "uploads", Mode: os.ModeDir | 0o755},
		{Path: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home/user:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{Path: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\nnogroup:x:65534:\n")},
	}
	for _, f := range base {
		if f.Path != "etc/passwd" && f.Path != "etc/group" {
			files = append(files, f)
		}
	}
	served, err := servedImage(images.Image{Reference: "localhost:5000/pause:testing", Files: pause.Files, Entrypoint: pause.Entrypoint, Env: pause.Env, User: pause.User}, "pause", "testing")
	return append(files, served...), pause, err
}

// servedImage returns the files of an image in the directory layout of agnhost's command fake-registry-server.
func servedImage(image images.Image, name, tag string) ([]images.File, error) {
	blobs, manifest, err := image.Blobs()
	if err != nil {
		return nil, err
	}
	dir := path.Join("var/registry", name)
	files := []images.File{{Path: path.Join(dir, "manifests", tag), Mode: 0o644, Data: []byte(manifest + "\n")}}
	for digest, data := range blobs {
		kind, hash := "blobs", strings.TrimPrefix(digest, "sha256:")
		if digest == manifest {
			kind = "manifests"
		}
		files = append(files, images.File{Path: path.Join(dir, kind, "sha256", hash[:2], hash, "data"), Mode: 0o644, Data: data})
	}
	return files, nil
}
