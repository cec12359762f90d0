package packages

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file is a file in a package.
type file struct {
	path   string // path without leading slash
	data   []byte
	mode   os.FileMode
	link   string // target, if the file is a symbolic link
	config bool   // the file is configuration, which the administrator may change
	only   string // kind of package that has the file: deb or rpm; "": both
}

// These are the units from deploy/systemd: ownUnit is in the package wherry, takingUnit in wherry-kubelet.
const (
	unitDir    = "usr/lib/systemd/system/"
	ownUnit    = "wherry-kubelet.service"
	takingUnit = "kubelet.service"
)

// own returns the files of the package wherry: everything except what replaces the machine's kubelet.
func (s *Source) own(arch string) ([]file, error) {
	program, ok := s.Programs[arch]
	if !ok {
		return nil, fmt.Errorf("no program for %s", arch)
	}
	unit, err := s.deployed("systemd/" + ownUnit)
	if err != nil {
		return nil, err
	}
	const local = "/usr/local/bin/wherry"
	if !bytes.Contains(unit, []byte(local)) {
		return nil, fmt.Errorf("%s does not run %s", ownUnit, local)
	}
	hardening, err := s.deployed("systemd/kubelet.service.d/20-hardening.conf")
	if err != nil {
		return nil, err
	}
	files := []file{
		{path: "usr/bin/wherry", data: program, mode: 0o755},
		{path: unitDir + ownUnit, data: bytes.ReplaceAll(unit, []byte(local), []byte("/usr/bin/wherry"))},
		{path: unitDir + ownUnit + ".d/20-hardening.conf", data: hardening},
		{path: "usr/share/bash-completion/completions/wherry", data: s.Completion["bash"]},
		{path: "usr/share/zsh/vendor-completions/_wherry", data: s.Completion["zsh"], only: "deb"},
		{path: "usr/share/zsh/site-functions/_wherry", data: s.Completion["zsh"], only: "rpm"},
		{path: "usr/share/fish/vendor_completions.d/wherry.fish", data: s.Completion["fish"]},
		{path: "usr/share/doc/wherry/copyright", data: s.License},
		{path: "usr/share/doc/wherry/changelog.gz", data: compressed(s.Changelog)},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Manual)) {
		files = append(files, file{path: "usr/share/man/man1/" + name + ".gz", data: compressed(s.Manual[name])})
	}
	return files, nil
}

// taking returns the files of the package wherry-kubelet, with which the agent replaces the machine's kubelet.
func (s *Source) taking() ([]file, error) {
	files := []file{
		{path: "usr/bin/kubelet", link: "wherry"},
		{path: "usr/share/doc/wherry-kubelet/copyright", data: s.License},
	}
	for _, f := range []struct {
		from, to string
		config   bool
		only     string
	}{
		{"systemd/" + takingUnit, unitDir + takingUnit, false, ""},
		// The name sorts before 10-kubeadm.conf of the package kubeadm, so that kubeadm's file takes precedence if it is installed.
		{"systemd/kubelet.service.d/10-kubeadm.conf", unitDir + takingUnit + ".d/05-arguments.conf", false, ""},
		{"systemd/kubelet.service.d/20-hardening.conf", unitDir + takingUnit + ".d/20-hardening.conf", false, ""},
		{"default/kubelet", "etc/default/kubelet", true, ""},
		// The rpm package of upstream's kubelet has this file. When it is removed, the package manager would put the administrator's arguments
		// aside, if the file belonged to no other package.
		{"default/sysconfig", "etc/sysconfig/kubelet", true, "rpm"},
	} {
		data, err := s.deployed(f.from)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: f.to, data: data, config: f.config, only: f.only})
	}
	return files, nil
}

func (s *Source) deployed(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.Deploy, filepath.FromSlash(name)))
}

// script returns the script postinst, prerm or postrm (name) of a package that has this unit.
func (s *Source) script(name, unit string) ([]byte, error) {
	data, err := s.deployed("packages/" + name + ".sh")
	return bytes.ReplaceAll(data, []byte("@UNIT@"), []byte(unit)), err
}

// compressed returns data in gzip format. The header has no name and no time, so that equal data gives equal bytes.
func compressed(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // returns no error, because the level is valid
	_, _ = w.Write(data)                                  // returns no error, because it writes into memory
	_ = w.Close()
	return b.Bytes()
}

// perm returns the permissions of the file; 0644 if mode is 0.
func (f *file) perm() os.FileMode {
	if f.mode == 0 {
		return 0o644
	}
	return f.mode
}

// The function of returns the files that belong in a kind of package (deb or rpm).
func of(files []file, kind string) []file {
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return f.only != "" && f.only != kind })
}

// fileVersion returns the version for names of files and images, which may not contain a tilde.
func (s *Source) fileVersion() string { return strings.ReplaceAll(s.Version, "~", "-") }
