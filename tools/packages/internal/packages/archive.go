package packages

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"

	"github.com/wherry-node/wherry/tools/internal/images"
)

// Repository is the name of wherry's own container image, without a tag. Its host is localhost, because no registry has the image: a user
// loads the image from a file.
const Repository = "localhost/wherry"

// tarball returns a tar archive with the files of both packages below one directory, for machines without a package manager.
func (s *Source) tarball(arch string) (name string, data []byte, err error) {
	own, err := s.own(arch)
	if err != nil {
		return "", nil, err
	}
	taking, err := s.taking()
	if err != nil {
		return "", nil, err
	}
	base := "wherry-" + s.fileVersion() + "-linux-" + arch
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range of(append(own, taking...), "deb") {
		header := &tar.Header{
			Name: base + "/" + f.path, Mode: int64(f.perm()), Size: int64(len(f.data)), Typeflag: tar.TypeReg, ModTime: s.Time, Format: tar.FormatUSTAR,
		}
		if f.link != "" {
			header.Typeflag, header.Linkname, header.Mode, header.Size = tar.TypeSymlink, f.link, 0o777, 0
		}
		if err := w.WriteHeader(header); err != nil {
			return "", nil, fmt.Errorf("write %s: %w", f.path, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return "", nil, fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return "", nil, err
	}
	return base + ".tar.gz", compressed(b.Bytes()), nil
}

// image returns a tar archive with an OCI image that contains the agent, for `ctr images import` and `podman load`.
func (s *Source) image(arch string) (name string, data []byte, err error) {
	program, ok := s.Programs[arch]
	if !ok {
		return "", nil, fmt.Errorf("no program for %s", arch)
	}
	var b bytes.Buffer
	err = images.WriteArchive(&b, []images.Image{{
		Reference: Repository + ":" + s.fileVersion(), Architecture: arch, Entrypoint: []string{"/usr/bin/wherry"}, Env: []string{images.SearchPath},
		Labels: map[string]string{"org.opencontainers.image.source": homepage, "org.opencontainers.image.licenses": "Apache-2.0"},
		Files: []images.File{
			{Path: "usr/bin/wherry", Mode: 0o755, Data: program},
			{Path: "usr/bin/kubelet", Mode: os.ModeSymlink | 0o777, Link: "wherry"},
			{Path: "tmp", Mode: os.ModeDir | os.ModeSticky | 0o777},
		},
	}})
	return "wherry-" + s.fileVersion() + "-linux-" + arch + ".oci.tar", b.Bytes(), err
}
