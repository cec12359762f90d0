package simcri

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull describes the pull of an image.
type Pull struct {
	// Took is the duration of the pull.
	Took time.Duration
	// Err is the error of the pull; nil: it succeeds.
	Err error
	// Users are the users who may pull the image; empty: everybody.
	Users []string
	// Size is the size of the image in bytes; 0: a size derived from the name.
	Size uint64
	// UID is the user ID of the image. User is its user name, if it has one. Without both the user is root.
	UID  *int64
	User string
}

// DefaultPull describes a pull that takes no time. It fails for registries under .invalid, which do not exist.
func DefaultPull(image string) Pull {
	named, err := reference.ParseNormalizedNamed(image)
	if err == nil && strings.HasSuffix(reference.Domain(named), ".invalid") {
		return Pull{Err: status.Errorf(codes.Unknown, "failed to pull and unpack image %q: failed to resolve reference %q: dial tcp: lookup %s: no such host",
			image, image, reference.Domain(named))}
	}
	return Pull{}
}

// image is a present image.
type image struct {
	id     string // sha256:...
	tags   []string
	digest string // name@sha256:...
	size   uint64
	uid    *int64
	user   string
}

func (i *image) tag() string {
	if len(i.tags) > 0 {
		return i.tags[0]
	}
	return ""
}

func (i *image) ref() string {
	if i.digest != "" {
		return i.digest
	}
	return i.id
}

// canonical returns the full name of an image, with a tag or digest.
func canonical(name string) string {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return name
	}
	return named.String()
}

// resolve returns the image with an ID or name, or nil. The caller holds the lock.
func (r *Runtime) resolve(name string) *image {
	if i := r.images[name]; i != nil {
		return i
	}
	if i := r.images["sha256:"+name]; i != nil {
		return i
	}
	if i := r.imageNames[name]; i != nil {
		return i
	}
	return r.imageNames[canonical(name)]
}

// pullOf describes the pull of an image: as a rule says, if one matches, and else as Config.Pull.
func (r *Runtime) pullOf(name string) Pull {
	p := r.cfg.Pull(name)
	rule := r.cfg.Rules.FindImage(name)
	if rule == nil {
		rule = r.cfg.Rules.FindImage(canonical(name))
	}
	if rule == nil {
		return p
	}
	if size := rule.Size.Value(); size > 0 {
		p.Size = uint64(size)
	}
	if p.Size == 0 {
		p.Size = r.sizeOf(canonical(name))
	}
	r.mu.Lock()
	n := time.Now().UnixMilli() // not a count, which follows from the order of what happens at the same instant
	r.mu.Unlock()
	p.Took = rule.Takes(p.Size, r.chance("pull", name, n)).Truncate(time.Millisecond)
	if rule.Error != "" && (rule.Chance == 0 || r.chance("pull error", name, n) < rule.Chance) {
		p.Err = status.Errorf(codes.Unknown, "failed to pull and unpack image %q: %s", name, rule.Error)
	}
	return p
}

// sizeOf returns the size of an image for which nothing says one. It follows from the name.
func (r *Runtime) sizeOf(full string) uint64 {
	sum := r.derive("image", full)
	return 4<<20 + binary.LittleEndian.Uint64(sum[:])%(120<<20)
}

// addImage makes an image present. The caller holds the lock, or r is not shared yet.
func (r *Runtime) addImage(name string, p Pull) *image {
	full := canonical(name)
	if i := r.imageNames[full]; i != nil {
		return i
	}
	sum := r.derive("image", full)
	i := &image{id: "sha256:" + hex.EncodeToString(sum[:]), size: p.Size, uid: p.UID, user: p.User}
	if i.size == 0 {
		i.size = r.sizeOf(full)
	}
	manifest := r.derive("manifest", full)
	digest := "sha256:" + hex.EncodeToString(manifest[:])
	repo, _, byDigest := strings.Cut(full, "@")
	if byDigest {
		digest = full[len(repo)+1:]
	} else {
		i.tags = []string{full}
	}
	if named, err := reference.ParseDockerRef(full); err == nil {
		repo = named.Name()
	}
	i.digest = repo + "@" + digest
	r.images[i.id] = i
	r.imageNames[full], r.imageNames[i.digest] = i, i
	return i
}

func (i *image) describe() *runtimeapi.Image {
	out := &runtimeapi.Image{Id: i.id, RepoTags: i.tags, RepoDigests: []string{i.digest}, Size: i.size, Username: i.user}
	switch {
	case i.uid != nil:
		out.Uid = &runtimeapi.Int64Value{Value: *i.uid}
	case i.user == "":
		out.Uid = &runtimeapi.Int64Value{}
	}
	return out
}

// PullImage makes an image present after the duration of its pull.
func (r *Runtime) PullImage(ctx context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if _, err := reference.ParseNormalizedNamed(name); err != nil {
		return nil, errInvalid("failed to parse image reference %q: %v", name, err)
	}
	f, err := r.enter(ctx, "PullImage", func() target { return target{pod: req.GetSandboxConfig().GetMetadata().GetName(), container: name} })
	if err != nil {
		return nil, err
	}
	p := r.pullOf(name)
	if err := pause(ctx, max(p.Took, 0)); err != nil {
		return nil, err
	}
	if p.Err != nil {
		return nil, p.Err
	}
	if user := req.GetAuth().GetUsername(); len(p.Users) > 0 && !slices.Contains(p.Users, user) {
		return nil, status.Errorf(codes.Unknown, "failed to pull and unpack image %q: failed to authorize: pull access denied for user %q", name, user)
	}
	r.mu.Lock()
	i := r.addImage(name, p)
	r.pulls[name]++
	r.mu.Unlock()
	return leave(ctx, f, &runtimeapi.PullImageResponse{ImageRef: i.id})
}

// Pulls returns how many times an image was pulled under this name.
func (r *Runtime) Pulls(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[name]
}

// Has reports whether an image is present under a name.
func (r *Runtime) Has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resolve(name) != nil
}

// ImageStatus describes one image. A missing image is no error.
func (r *Runtime) ImageStatus(ctx context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	f, err := r.enter(ctx, "ImageStatus", func() target { return target{container: req.GetImage().GetImage()} })
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.ImageStatusResponse{}
	r.mu.Lock()
	if i := r.resolve(req.GetImage().GetImage()); i != nil {
		resp.Image = i.describe()
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// ListImages lists the images, or the one that the filter names.
func (r *Runtime) ListImages(ctx context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	f, err := r.enter(ctx, "ListImages", nil)
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListImagesResponse{}
	r.mu.Lock()
	if name := req.GetFilter().GetImage().GetImage(); name != "" {
		if i := r.resolve(name); i != nil {
			resp.Images = append(resp.Images, i.describe())
		}
	} else {
		for _, i := range r.images {
			resp.Images = append(resp.Images, i.describe())
		}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// RemoveImage removes an image with all its names. It is idempotent.
func (r *Runtime) RemoveImage(ctx context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	f, err := r.enter(ctx, "RemoveImage", func() target { return target{container: req.GetImage().GetImage()} })
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if i := r.resolve(req.GetImage().GetImage()); i != nil {
		delete(r.images, i.id)
		r.deleteLater(i.size, time.Now())
		for name, o := range r.imageNames {
			if o == i {
				delete(r.imageNames, name)
			}
		}
	}
	r.mu.Unlock()
	return leave(ctx, f, &runtimeapi.RemoveImageResponse{})
}

// ImageFsInfo returns the disk usage of images.
func (r *Runtime) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	f, err := r.enter(ctx, "ImageFsInfo", nil)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	var bytes uint64
	for _, i := range r.images {
		bytes += i.size
	}
	inodes := uint64(1000 * len(r.images))
	r.mu.Unlock()
	usage := func(bytes, inodes uint64) *runtimeapi.FilesystemUsage {
		return &runtimeapi.FilesystemUsage{
			Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.cfg.ImageFsPath},
			UsedBytes: &runtimeapi.UInt64Value{Value: bytes}, InodesUsed: &runtimeapi.UInt64Value{Value: inodes},
		}
	}
	return leave(ctx, f, &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems:     []*runtimeapi.FilesystemUsage{usage(bytes, inodes)},
		ContainerFilesystems: []*runtimeapi.FilesystemUsage{usage(bytes, inodes)},
	})
}
