package build

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/images"
)

// Target is one thing to build.
type Target struct {
	Name   string
	Module string   // directory of the module, relative to the checkout
	Args   []string // arguments of the go command; {bin} stands for the output directory
	Env    []string
	// Makes are the files below bin/ that the build writes.
	Makes []string
	// Wants are the Debian packages that the build needs.
	Wants []string
	// OnDemand targets are built only if they are named, because they take long and few users need them.
	OnDemand bool
}

// The linker (-ldflags) gets these versions. They have to be equal to those in the go.mod files, where the linker cannot find them.
const (
	KubernetesVersion = "v1.36.3"
	containerdVersion = "v2.4.2"
	critoolsVersion   = "v1.36.0"
)

func kubernetesFlags() string {
	const v = "k8s.io/component-base/version."
	major, minor, _ := strings.Cut(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	return fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s -X %sgitTreeState=clean", v, KubernetesVersion, v, major, v, minor[:strings.IndexByte(minor, '.')], v)
}

// Targets returns all targets, in the order in which they are built.
func Targets() []Target {
	static := []string{"CGO_ENABLED=0"}
	return []Target{
		{Name: "wherry", Module: ".", Env: static, Makes: []string{"wherry"},
			// Without the tag grpcnotrace, grpc's request traces bring in html/template, whose calls of methods by name make the
			// linker keep every exported method of every type: 19 of 55 MB. The flag -buildmode=pie is left out, because without
			// cgo it makes a program that needs ld-linux.so on the node and is 10.6 % larger (30.8 MB instead of 27.9). The random
			// addresses of PIE protect against memory errors, which are rare in Go.
			// Functions begin at multiples of 16 bytes, as with other compilers, instead of Go's 32: 300 KiB less of padding.
			Args: []string{"build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w -funcalign=16", "-o", "{bin}/wherry", "./cmd/wherry"}},
		{Name: "wherry-controlplane", Module: "controlplane", Env: static, Makes: []string{"wherry-controlplane"},
			Args: []string{"build", "-ldflags", kubernetesFlags(), "-o", "{bin}/wherry-controlplane", "./cmd/wherry-controlplane"}},
		{Name: "runc", Module: "tools/runc", Env: []string{"CGO_ENABLED=1"}, Makes: []string{"runc"}, Wants: []string{"libseccomp-dev", "pkg-config", "gcc"},
			Args: []string{"build", "-tags", "seccomp", "-ldflags", "-s -w", "-o", "{bin}/runc", "github.com/opencontainers/runc"}},
		{Name: "containerd", Module: "tools/containerd", Env: static, Makes: []string{"containerd", "containerd-shim-runc-v2", "ctr"},
			Args: []string{"build", "-ldflags", "-s -w -X github.com/containerd/containerd/v2/version.Version=" + containerdVersion, "-o", "{bin}/", "tool"}},
		{Name: "CNI plugins", Module: "tools/cni", Env: static, Makes: []string{"cni/ptp", "cni/host-local", "cni/loopback", "cni/portmap", "cni/bridge"},
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/cni/", "tool"}},
		{Name: "crictl", Module: "tools/critools", Env: static, Makes: []string{"crictl"},
			Args: []string{"build", "-ldflags", "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=" + critoolsVersion, "-o", "{bin}/crictl", "sigs.k8s.io/cri-tools/cmd/crictl"}},
		{Name: "critest", Module: "tools/critools", Env: static, Makes: []string{"critest"},
			Args: []string{"test", "-c", "-vet=off", "-ldflags", "-s -w", "-o", "{bin}/critest", "sigs.k8s.io/cri-tools/cmd/critest"}},
		{Name: "kubectl", Module: "tools/kubectl", Env: static, Makes: []string{"kubectl"},
			Args: []string{"build", "-ldflags", kubernetesFlags(), "-o", "{bin}/kubectl", "."}},
		{Name: "metrics-server", Module: "tools/metricsserver", Env: static, Makes: []string{"metrics-server"},
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server"}},
		{Name: "image programs", Module: "tools", Env: static, Makes: []string{"images/web"},
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/images/web", "./images/web"}},
		{Name: "csimock", Module: "conformance", Env: static, Makes: []string{"csimock"},
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/csimock", "./csimock"}},
		{Name: "example CSI driver", Module: ".", Env: static, Makes: []string{"csi/driver"}, OnDemand: true,
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/csi/driver", "./examples/csi"}},
		{Name: "csrapprover", Module: ".", Env: static, Makes: []string{"csrapprover"}, OnDemand: true,
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/csrapprover", "./examples/csrapprover"}},
		{Name: "CSI sidecars", Module: "tools/csi", Env: static, Makes: []string{"csi/csi-provisioner", "csi/csi-attacher", "csi/csi-resizer"}, OnDemand: true,
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/csi/", "tool"}},
		{Name: "CSI stand-ins", Module: "conformance", Env: static, Makes: []string{"csi/hostpathplugin", "csi/csiregistrar"}, OnDemand: true,
			Args: []string{"build", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", "{bin}/csi/", "./hostpathplugin", "./csiregistrar"}},
		{Name: "CoreDNS", Module: "tools/coredns", Env: static, Makes: []string{"images/coredns"}, OnDemand: true,
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/images/coredns", "."}},
		{Name: "kubernetes", Module: "controlplane", Env: static, Makes: []string{"images/kubernetes"}, OnDemand: true,
			Args: []string{"build", "-ldflags", kubernetesFlags(), "-o", "{bin}/images/kubernetes", "./cmd/kubernetes"}},
		{Name: "e2e.test", Module: "conformance", Env: static, Makes: []string{"conformance/e2e.test"}, OnDemand: true,
			Args: []string{"test", "-c", "-vet=off", "-tags", "grpcnotrace", "-ldflags", kubernetesFlags(), "-o", "{bin}/conformance/e2e.test", "k8s.io/kubernetes/test/e2e"}},
		{Name: "e2e_node.test", Module: "conformance", Env: static, Makes: []string{"conformance/e2e_node.test"}, OnDemand: true,
			Args: []string{"test", "-c", "-vet=off", "-tags", "grpcnotrace", "-ldflags", kubernetesFlags(), "-o", "{bin}/conformance/e2e_node.test", "k8s.io/kubernetes/test/e2e_node"}},
		{Name: "conformance programs", Module: "conformance", Env: static, OnDemand: true,
			Makes: []string{"conformance/agnhost", "conformance/ginkgo", "conformance/nonewprivs", "conformance/regression-issue-74839", "conformance/resource-consumer"},
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/conformance/", "github.com/onsi/ginkgo/v2/ginkgo",
				testImages + "agnhost", testImages + "nonewprivs", testImages + "regression-issue-74839", testImages + "resource-consumer"}},
		{Name: "logind stand-in", Module: "conformance", Env: static, Makes: []string{"conformance/logind"}, OnDemand: true,
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/conformance/logind", "./logind"}},
		{Name: "conformance applets", Module: "tools", Env: static, Makes: []string{"conformance/applets"}, OnDemand: true,
			Args: []string{"build", "-ldflags", "-s -w", "-o", "{bin}/conformance/applets", "./images/applets"}},
		{Name: "kubelet", Module: "conformance", Env: static, Makes: []string{"conformance/kubelet"}, OnDemand: true,
			Args: []string{"build", "-ldflags", kubernetesFlags(), "-o", "{bin}/conformance/kubelet", "k8s.io/kubernetes/cmd/kubelet"}},
	}
}

const testImages = "k8s.io/kubernetes/test/images/"

// Run builds the targets with the given names; without names, all targets that are not OnDemand.
func Run(ctx context.Context, checkout string, names []string, progress io.Writer) error {
	bin := filepath.Join(checkout, "bin")
	for _, dir := range []string{"cni", "conformance", "csi"} { // go build does not create the output directories
		if err := os.MkdirAll(filepath.Join(bin, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(Targets(), func(t Target) bool { return t.Name == name }) {
			return fmt.Errorf("build %s: there is no target with this name", name)
		}
	}
	targets := slices.DeleteFunc(Targets(), func(t Target) bool {
		if len(names) == 0 {
			return t.OnDemand
		}
		return !slices.Contains(names, t.Name)
	})
	for i, target := range targets {
		began := time.Now()
		fmt.Fprintf(progress, "[%2d/%d] %-20s ", i+1, len(targets), target.Name)
		if err := target.make(ctx, checkout, bin); err != nil {
			fmt.Fprintln(progress, "failed")
			return fmt.Errorf("build %s: %w", target.Name, err)
		}
		fmt.Fprintf(progress, "%5.1f s\n", time.Since(began).Seconds())
	}
	return nil
}

func (t Target) make(ctx context.Context, checkout, bin string) error {
	args := slices.Clone(t.Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{bin}", bin)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(checkout, t.Module)
	cmd.Env = append(append(os.Environ(), "GOFLAGS=", "GOWORK=off"), t.Env...)
	cmd.WaitDelay = 10 * time.Second // a compiler may outlive a canceled go command and keep the output open; the wait for it ends after this time
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("in %s: go %s: %w\n%s", t.Module, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Images writes the archive bin/images.tar with the development images (images.Set), and returns its path.
func Images(ctx context.Context, checkout string) (string, error) {
	bin := filepath.Join(checkout, "bin")
	pause := filepath.Join(bin, "images", "pause")
	source := filepath.Join(checkout, "tools", "images", "pause", "pause.c")
	cmd := exec.CommandContext(ctx, "gcc", "-Os", "-static", "-s", "-Wall", "-Werror", "-o", pause, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pause: %w\n%s", err, out)
	}
	set, err := images.Set(images.Programs{Busybox: "/bin/busybox", Web: filepath.Join(bin, "images", "web"), Pause: pause})
	if err != nil {
		return "", fmt.Errorf("make images: %w", err)
	}
	archive := filepath.Join(bin, "images.tar")
	return archive, images.WriteArchiveFile(archive, set)
}

// DNSImage writes bin/coredns.tar, the image of the cluster's DNS server, unless that file is newer than the program bin/images/coredns. It
// returns the path of the archive.
func DNSImage(checkout string) (string, error) {
	program, archive := filepath.Join(checkout, "bin", "images", "coredns"), filepath.Join(checkout, "bin", "coredns.tar")
	source, err := os.Stat(program)
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", images.CoreDNS, err)
	}
	if made, err := os.Stat(archive); err == nil && made.ModTime().After(source.ModTime()) {
		return archive, nil
	}
	image, err := images.DNS(program)
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", images.CoreDNS, err)
	}
	return archive, images.WriteArchiveFile(archive, []images.Image{image})
}

// ImageNames returns the references in bin/images.tar.
func ImageNames() []string { return images.Names() }
