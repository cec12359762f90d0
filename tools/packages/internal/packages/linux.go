package packages

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// pack describes a package, from which both a .deb and an .rpm are made.
type pack struct {
	name, summary, about, unit string
	files                      []file
	// These are relations to other packages. The key is deb or rpm, because each has its own notation.
	needs, provides, conflicts, recommends map[string][]string
}

const (
	homepage   = "https://github.com/wherry-node/wherry"
	maintainer = "The Wherry authors <wherry@localhost>"
)

func (s *Source) packs(arch string) ([]pack, error) {
	own, err := s.own(arch)
	if err != nil {
		return nil, err
	}
	taking, err := s.taking()
	if err != nil {
		return nil, err
	}
	runtimes := []string{"containerd | cri-o | containerd.io"}
	return []pack{
		{
			name: "wherry", unit: ownUnit, files: own, recommends: map[string][]string{"deb": runtimes},
			summary: "Kubernetes node agent",
			about:   "The program, its manual and a unit, wherry-kubelet.service, which runs beside an\ninstalled kubelet package, in the place of that agent. It is not enabled.",
		},
		{
			name: "wherry-kubelet", unit: takingUnit, files: taking, recommends: map[string][]string{"deb": append(runtimes, "iptables | nftables")},
			summary: "Wherry as this machine's kubelet",
			about:   "Takes the place of the package kubelet: the same unit, program name and files.\nContainers go on while one takes the place of the other.",
			needs:   map[string][]string{"deb": {"wherry (= " + s.Version + ")"}, "rpm": {"wherry = " + s.Version}},
			provides: map[string][]string{
				"deb": {"kubelet (= " + s.Kubernetes + ")"}, "rpm": {"kubelet = " + s.Kubernetes},
			},
			conflicts: map[string][]string{"deb": {"kubelet"}, "rpm": {"kubelet"}},
		},
	}, nil
}

// packagers returns the writer for each kind of package. The keys, deb and rpm, are also the suffixes of the files.
func packagers() map[string]nfpm.Packager {
	return map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM}
}

// write returns the package as a file of a kind (deb or rpm) for an architecture: the file's name and its content.
func (p *pack) write(s *Source, kind, arch string) (name string, data []byte, err error) {
	dir, err := os.MkdirTemp("", "wherry-pack-") // nfpm reads the files of a package from paths, so they are written into a directory
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	info, err := p.info(s, kind, arch, dir)
	if err != nil {
		return "", nil, fmt.Errorf("package %s: %w", p.name, err)
	}
	packager := packagers()[kind]
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return "", nil, fmt.Errorf("package %s: %w", p.name, err)
	}
	var b bytes.Buffer
	if err := packager.Package(info, &b); err != nil {
		return "", nil, fmt.Errorf("package %s: %w", p.name, err)
	}
	return packager.ConventionalFileName(info), b.Bytes(), nil
}

func (p *pack) info(s *Source, kind, arch, dir string) (*nfpm.Info, error) {
	info := &nfpm.Info{
		Name: p.name, Arch: arch, Platform: "linux", Version: s.Version, VersionSchema: "none", MTime: s.Time,
		Section: "admin", Priority: "optional", Maintainer: maintainer, Homepage: homepage, License: "Apache-2.0", Vendor: "Wherry",
		Description: p.summary + "\n" + p.about, DisableGlobbing: true,
	}
	// Without BuildHost the package would contain the name of this machine.
	info.RPM.BuildHost, info.RPM.Summary, info.RPM.Group = "localhost", p.summary, "System Environment/Daemons"
	info.Depends, info.Provides, info.Conflicts, info.Recommends = p.needs[kind], p.provides[kind], p.conflicts[kind], p.recommends[kind]
	if kind == "deb" {
		info.Replaces = p.conflicts[kind]
	}
	for i, f := range of(p.files, kind) {
		c := &nfpmfiles.Content{Destination: "/" + f.path, FileInfo: &nfpmfiles.ContentFileInfo{Mode: f.perm(), MTime: s.Time}}
		switch {
		case f.link != "":
			c.Type, c.Source = nfpmfiles.TypeSymlink, f.link
		default:
			var err error
			if c.Source, err = stage(dir, fmt.Sprint(i), f.data); err != nil {
				return nil, err
			}
			if f.config {
				c.Type = nfpmfiles.TypeConfigNoReplace
			}
		}
		info.Contents = append(info.Contents, c)
	}
	for name, to := range map[string]*string{
		"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove, "postrm": &info.Scripts.PostRemove,
	} {
		text, err := s.script(name, p.unit)
		if err != nil {
			return nil, err
		}
		if *to, err = stage(dir, name, text); err != nil {
			return nil, err
		}
	}
	return info, nil
}

func stage(dir, name string, data []byte) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, data, 0o600)
}
