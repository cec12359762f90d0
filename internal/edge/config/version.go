package config

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// KubernetesVersion is the release of Kubernetes that Wherry follows. WherryVersion is Wherry's own version.
const (
	KubernetesVersion = "v1.36.3"
	WherryVersion     = "0.1.0"
)

// KubeletVersion is the version that the node reports in nodeInfo.kubeletVersion: the version of Kubernetes, followed by Wherry's version
// as semver build metadata. So checks of version skew compare the version of Kubernetes.
const KubeletVersion = KubernetesVersion + "+wherry." + WherryVersion

// Build describes how this binary was built.
type Build struct {
	GitVersion, GitCommit, GoVersion, Platform string
	Modified                                   bool
}

// ThisBuild returns the build information that the Go toolchain put into the binary.
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

// Raw returns the output of `kubelet --version=raw`.
func (b Build) Raw() string {
	parts := strings.SplitN(strings.TrimPrefix(KubernetesVersion, "v"), ".", 3)
	tree := "clean"
	if b.Modified {
		tree = "dirty"
	}
	return fmt.Sprintf("version.Info{Major:%q, Minor:%q, GitVersion:%q, GitCommit:%q, GitTreeState:%q, GoVersion:%q, Platform:%q}",
		parts[0], parts[1], b.GitVersion, b.GitCommit, tree, b.GoVersion, b.Platform)
}
