package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"
)

// Flavor is the version of containerd.
type Flavor string

// Containerd2 is the containerd 2.x that this project builds. Debian is the containerd 1.6 of Debian 12.
const (
	Containerd2 Flavor = "containerd2"
	Debian      Flavor = "debian"
)

// Config configures one containerd instance.
type Config struct {
	Flavor Flavor
	// Dir is the directory of all files of the instance: config.toml, root, state, containerd.sock, cni, logs.
	Dir string
	// Bin is the directory of the programs that this project builds, and DebianBin that of the programs from Debian's packages.
	Bin, DebianBin string
	// PodSubnet is the range of pod IP addresses (a CIDR). Every instance needs a range of its own.
	PodSubnet string
	// SandboxImage is the image of pod sandboxes.
	SandboxImage string
	// Routed says that the pods' addresses have routes outside the node, so that what pods send is not masqueraded.
	Routed bool
	// NoNetwork leaves the CNI configuration out. A test writes it later with WriteNetwork.
	NoNetwork bool
	// Registries is the directory of containerd's registry configurations, HOST/hosts.toml; "": there are none, so containerd uses the
	// registries in the names of images.
	Registries string
}

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Socket returns the path of the instance's CRI socket.
func (c Config) Socket() string { return c.path("containerd.sock") }

func (c Config) pidFile() string { return c.path("containerd.pid") }
func (c Config) logFile() string { return c.path("containerd.log") }
func (c Config) programs() string {
	if c.Flavor == Debian {
		return c.DebianBin
	}
	return c.Bin
}

func (c Config) validate() error {
	switch {
	case c.Flavor != Containerd2 && c.Flavor != Debian:
		return fmt.Errorf("configure runtime: %q is neither %s nor %s", c.Flavor, Containerd2, Debian)
	case !filepath.IsAbs(c.Dir):
		return fmt.Errorf("configure runtime: directory %q is not absolute", c.Dir)
	case len(c.Socket()) > 100:
		return fmt.Errorf("configure runtime: the socket's path %s is too long (at most 100 bytes, because containerd appends .ttrpc)", c.Socket())
	}
	if p, err := netip.ParsePrefix(c.PodSubnet); err != nil || !p.Addr().Is4() || p.Bits() > 30 {
		return fmt.Errorf("configure runtime: pod subnet %q is not an IPv4 prefix such as 10.88.1.0/24", c.PodSubnet)
	}
	return nil
}

// The configurations turn off everything that would write outside Config.Dir: /opt/containerd, the NRI socket, and snapshotters that look
// for devices. RestrictOOM is for machines without CAP_SYS_RESOURCE, where a container cannot get a lower OOM score than containerd.
var configs = map[Flavor]*template.Template{
	Containerd2: template.Must(template.New("containerd2").Parse(`version = 3
root = "{{.Root}}"
state = "{{.State}}"
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.SandboxImage}}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{.Registries}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  cdi_spec_dirs = []
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.CNIBin}}"]
    conf_dir = "{{.CNIConf}}"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
{{range .Handlers}}    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.}}]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.}}.options]
        BinaryName = "{{$.Runc}}"
        Root = "{{$.RuncRoot}}"
        SystemdCgroup = false
{{end}}`)),
	Debian: template.Must(template.New("debian").Parse(`version = 2
root = "{{.Root}}"
state = "{{.State}}"
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.SandboxImage}}"
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Registries}}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.CNIBin}}"
    conf_dir = "{{.CNIConf}}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
{{range .Handlers}}    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.}}]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.}}.options]
        BinaryName = "{{$.Runc}}"
        Root = "{{$.RuncRoot}}"
        SystemdCgroup = false
{{end}}`)),
}

func (c Config) writeConfig() error {
	for _, dir := range []string{"root", "state", "runc", "cni/net.d", "cni/ipam"} {
		if err := os.MkdirAll(c.path(dir), 0o711); err != nil {
			return err
		}
	}
	runc := filepath.Join(c.Bin, "runc")
	if c.Flavor == Debian {
		runc = filepath.Join(c.DebianBin, "runc")
	}
	var b bytes.Buffer
	err := configs[c.Flavor].Execute(&b, map[string]any{
		"Root": c.path("root"), "State": c.path("state"), "Socket": c.Socket(), "SandboxImage": c.SandboxImage,
		"RestrictOOM": !mayLowerOOMScore(), "CNIBin": filepath.Join(c.Bin, "cni"), "CNIConf": c.path("cni/net.d"),
		"Runc": runc, "RuncRoot": c.path("runc"), "Registries": c.Registries,
		// The handler "alternative" is equal to "runc". With it users can try out RuntimeClasses.
		"Handlers": []string{"runc", "alternative"},
	})
	if err != nil {
		return fmt.Errorf("write containerd configuration: %w", err)
	}
	if err := os.WriteFile(c.path("config.toml"), b.Bytes(), 0o644); err != nil {
		return err
	}
	if c.NoNetwork {
		return nil
	}
	return c.WriteNetwork()
}

// WriteNetwork writes the CNI configuration. containerd notices it without a restart.
func (c Config) WriteNetwork() error {
	network := map[string]any{
		"cniVersion": "1.0.0",
		"name":       c.network(),
		"plugins": []any{
			map[string]any{
				"type": "ptp", "ipMasq": !c.Routed, "ipMasqBackend": "nftables", "mtu": 0,
				"ipam": map[string]any{
					"type": "host-local", "dataDir": c.path("cni/ipam"),
					"ranges": []any{[]any{map[string]string{"subnet": c.PodSubnet}}},
					"routes": []any{map[string]string{"dst": "0.0.0.0/0"}},
				},
			},
			map[string]any{"type": "portmap", "backend": "nftables", "capabilities": map[string]bool{"portMappings": true}},
		},
	}
	data, err := json.MarshalIndent(network, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path("cni/net.d/10-wherry.conflist"), data, 0o644)
}
