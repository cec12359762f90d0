package config

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// KubernetesVersion is the release of Kubernetes whose kubelet Wherry follows; WherryVersion is Wherry's own.
const (
	KubernetesVersion = "v1.36.3"
	WherryVersion     = "0.1.0"
)

// KubeletVersion is what the node reports as nodeInfo.kubeletVersion: Kubernetes' version with Wherry's as semver
// build metadata, so that version skew checks compare the part that they know.
const KubeletVersion = KubernetesVersion + "+wherry." + WherryVersion

// Build is how this binary was made, from the Go toolchain's own record.
type Build struct {
	GitVersion, GitCommit, GoVersion, Platform string
	Modified                                   bool
}

// ThisBuild reads the record that the Go toolchain left in the binary.
func ThisBuild() Build {
	b := Build{GitVersion: KubeletVersion, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.GitCommit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Raw is the form of `kubelet --version=raw`.
func (b Build) Raw() string {
	parts := strings.SplitN(strings.TrimPrefix(KubernetesVersion, "v"), ".", 3)
	tree := "clean"
	if b.Modified {
		tree = "dirty"
	}
	return fmt.Sprintf("version.Info{Major:%q, Minor:%q, GitVersion:%q, GitCommit:%q, GitTreeState:%q, GoVersion:%q, Platform:%q}",
		parts[0], parts[1], b.GitVersion, b.GitCommit, tree, b.GoVersion, b.Platform)
}
