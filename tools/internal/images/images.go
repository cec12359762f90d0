package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// File is an entry in the only layer of an image. For directories and links, Mode contains the type bits of os.FileMode.
type File struct {
	Path string // path without leading slash
	Mode os.FileMode
	UID  int
	GID  int
	Data []byte
	Link string // target of a symbolic link
}

// Image is one image under one reference.
type Image struct {
	Reference string
	// Architecture is the architecture of the image's programs, as Go names it; "": that of this machine.
	Architecture string
	Files        []File
	Entrypoint   []string
	Cmd          []string
	Env          []string
	User         string
	WorkingDir   string
	Volumes      []string
	StopSignal   string
	Labels       map[string]string
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type imageConfig struct {
	Created      string          `json:"created"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Config       containerConfig `json:"config"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

type containerConfig struct {
	User       string              `json:",omitempty"`
	Env        []string            `json:",omitempty"`
	Entrypoint []string            `json:",omitempty"`
	Cmd        []string            `json:",omitempty"`
	WorkingDir string              `json:",omitempty"`
	Volumes    map[string]struct{} `json:",omitempty"`
	StopSignal string              `json:",omitempty"`
	Labels     map[string]string   `json:",omitempty"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// WriteArchive writes images as one OCI layout in a tar archive, for `ctr images import`.
func WriteArchive(w io.Writer, images []Image) error {
	blobs := map[string][]byte{}
	put := func(mediaType string, data []byte) descriptor {
		digest := digestOf(data)
		blobs[strings.TrimPrefix(digest, "sha256:")] = data
		return descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(data))}
	}
	index := manifest{SchemaVersion: 2, MediaType: indexType}
	for _, image := range images {
		d, err := image.put(put)
		if err != nil {
			return fmt.Errorf("make image %s: %w", image.Reference, err)
		}
		d.Platform = &platform{Architecture: image.arch(), OS: "linux"}
		d.Annotations = map[string]string{
			"io.containerd.image.name":          image.Reference,
			"org.opencontainers.image.ref.name": image.Reference[strings.LastIndexByte(image.Reference, ':')+1:],
		}
		index.Manifests = append(index.Manifests, d)
	}
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	files := []File{
		{Path: "oci-layout", Mode: 0o644, Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{Path: "index.json", Mode: 0o644, Data: data},
		{Path: "blobs", Mode: os.ModeDir | 0o755},
		{Path: "blobs/sha256", Mode: os.ModeDir | 0o755},
	}
	for hash, blob := range blobs {
		files = append(files, File{Path: "blobs/sha256/" + hash, Mode: 0o644, Data: blob})
	}
	return writeTar(w, files)
}

// WriteArchiveFile writes images as WriteArchive does into a file, which it replaces only when the new archive is complete.
func WriteArchiveFile(path string, images []Image) error {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(WriteArchive(file, images), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(path+".new", path)
}

func (i *Image) arch() string {
	if i.Architecture == "" {
		return runtime.GOARCH
	}
	return i.Architecture
}

// Blobs returns the blobs of the image by digest, and the digest of its manifest.
func (i Image) Blobs() (blobs map[string][]byte, manifest string, err error) {
	blobs = map[string][]byte{}
	d, err := i.put(func(mediaType string, data []byte) descriptor {
		digest := digestOf(data)
		blobs[digest] = data
		return descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(data))}
	})
	return blobs, d.Digest, err
}

// put calls the function put for each blob of the image, and returns the descriptor of the manifest.
func (i Image) put(put func(mediaType string, data []byte) descriptor) (descriptor, error) {
	var layer bytes.Buffer
	if err := writeTar(&layer, withParents(i.Files)); err != nil {
		return descriptor{}, err
	}
	layerDescriptor := put(layerType, layer.Bytes())
	labels := map[string]string{"wherry.reference": i.Reference} // gives every reference an image ID of its own
	for k, v := range i.Labels {
		labels[k] = v
	}
	config := imageConfig{
		Created: "1970-01-01T00:00:00Z", Architecture: i.arch(), OS: "linux",
		Config: containerConfig{
			User: i.User, Env: i.Env, Entrypoint: i.Entrypoint, Cmd: i.Cmd, WorkingDir: i.WorkingDir,
			StopSignal: i.StopSignal, Labels: labels,
		},
	}
	for _, v := range i.Volumes {
		if config.Config.Volumes == nil {
			config.Config.Volumes = map[string]struct{}{}
		}
		config.Config.Volumes[v] = struct{}{}
	}
	config.RootFS.Type = "layers"
	config.RootFS.DiffIDs = []string{layerDescriptor.Digest} // equal to the digest of the blob, because the layer is not compressed
	configData, err := json.Marshal(config)
	if err != nil {
		return descriptor{}, err
	}
	configDescriptor := put(configType, configData)
	data, err := json.Marshal(manifest{
		SchemaVersion: 2, MediaType: manifestType, Config: &configDescriptor, Layers: []descriptor{layerDescriptor},
	})
	if err != nil {
		return descriptor{}, err
	}
	return put(manifestType, data), nil
}

// withParents returns files and, in addition, each of their parent directories that files does not contain.
func withParents(files []File) []File {
	have := map[string]bool{}
	for _, f := range files {
		have[f.Path] = true
	}
	all := slices.Clone(files)
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if !have[dir] {
				have[dir] = true
				all = append(all, File{Path: dir, Mode: os.ModeDir | 0o755})
			}
		}
	}
	return all
}

func writeTar(w io.Writer, files []File) error {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	archive := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{
			Name: f.Path, Mode: int64(f.Mode.Perm()), Uid: f.UID, Gid: f.GID, Size: int64(len(f.Data)),
			Typeflag: tar.TypeReg, Format: tar.FormatPAX, ModTime: time.Unix(0, 0).UTC(),
		}
		for bit, octal := range map[os.FileMode]int64{os.ModeSticky: 0o1000, os.ModeSetgid: 0o2000, os.ModeSetuid: 0o4000} {
			if f.Mode&bit != 0 {
				header.Mode |= octal
			}
		}
		switch {
		case f.Mode.IsDir():
			header.Typeflag, header.Name, header.Size = tar.TypeDir, f.Path+"/", 0
		case f.Mode&os.ModeSymlink != 0:
			header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, f.Link, 0
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
		if header.Size > 0 {
			if _, err := archive.Write(f.Data); err != nil {
				return fmt.Errorf("write %s: %w", f.Path, err)
			}
		}
	}
	return archive.Close()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
