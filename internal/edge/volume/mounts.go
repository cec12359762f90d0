package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// MountInput is the input of Mounts: one attempt of a container.
type MountInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Env is the resolved environment, which subPathExpr refers to.
	Env []crispec.EnvVar
	// Hosts is the content of /etc/hosts. If it is nil, the container keeps its image's file.
	Hosts []byte
	// RecursiveReadOnly says whether the runtime (handler) can mount read-only recursively.
	RecursiveReadOnly bool
	// Image returns the pulled image of an image volume. subPath is the part of the image that is mounted; "" means all of it. Image is
	// nil if the agent does not support image volumes.
	Image func(volume *v1.Volume, subPath string) (*runtimeapi.ImageSpec, error)
}

const hostsPath = "/etc/hosts"

// Mounts returns the mounts for the next attempt of a container: its volumes, with subPaths made and opened safely, its hosts
// file, and a new file for its termination message. Call it after SetUp has succeeded. The error is an *Error. The cause of the error
// may disappear (for example, a missing file appears), so the caller should try again.
func (v *Volumes) Mounts(ctx context.Context, in MountInput) ([]*runtimeapi.Mount, error) {
	c := in.Container
	mounts := make([]*runtimeapi.Mount, 0, len(c.VolumeMounts)+2)
	for i := range c.VolumeMounts {
		m, err := mountOf(&in, i, places{v.layout, v.readRecord}, func(s subPath) (string, error) { return v.bindSubPath(ctx, s) })
		if err != nil {
			return nil, mountError(&in, i, err)
		}
		mounts = append(mounts, m)
		if err := ctx.Err(); err != nil {
			return nil, failed("", err)
		}
	}
	own, err := v.podFiles(ctx, &in)
	if err != nil {
		return nil, failed("", err)
	}
	return append(mounts, own...), nil
}

func mountError(in *MountInput, index int, err error) *Error {
	vm := &in.Container.VolumeMounts[index]
	return &Error{
		Volume: vm.Name, Reason: ReasonFailedMount, Err: err,
		Message: fmt.Sprintf("container %q, volumeMounts[%d] at %s: %v", in.Container.Name, index, vm.MountPath, err),
	}
}

// places finds the volumes of pods on the node.
type places struct {
	layout layout
	// bound returns the record of a volume with a claim or of an inline CSI volume. If there is no record, the error is errNotSetUp.
	bound func(uid types.UID, volume string) (bound, error)
}

// mountOf makes the mount of one volumeMount. bind mounts a subPath and returns the path of that mount on the node.
func mountOf(in *MountInput, index int, where places, bind func(subPath) (string, error)) (*runtimeapi.Mount, error) {
	vm := &in.Container.VolumeMounts[index]
	at := slices.IndexFunc(in.Pod.Spec.Volumes, func(vol v1.Volume) bool { return vol.Name == vm.Name })
	if at < 0 {
		return nil, fmt.Errorf("the pod has no volume %q: add it to spec.volumes", vm.Name)
	}
	vol := &in.Pod.Spec.Volumes[at]
	k, err := kindOf(vol)
	if err != nil {
		return nil, err
	}
	propagation, err := propagationOf(vm.MountPropagation)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(vm, in.RecursiveReadOnly)
	if err != nil {
		return nil, err
	}
	sub, err := subPathOf(vm, in.Env)
	if err != nil {
		return nil, err
	}
	dir, b, err := where.of(in.Pod, vol, k)
	if err != nil {
		return nil, err
	}
	m := &runtimeapi.Mount{
		ContainerPath:     rooted(vm.MountPath),
		Readonly:          vm.ReadOnly || k.files() || b.ReadOnly || isReadOnly(vol),
		RecursiveReadOnly: recursive,
		Propagation:       propagation,
		// Files of the host, of servers and of images keep their SELinux labels, and a volume that is mounted with a label has no others.
		SelinuxRelabel: b.Kind != kindHostPath && b.Kind != kindNFS && k != kindImage && b.SELinux == "",
	}
	if k == kindImage {
		return m, imageMount(m, in, vol, sub)
	}
	m.HostPath = dir
	if sub != "" {
		m.HostPath, err = bind(subPath{in: in, index: index, volume: vol, dir: cmp.Or(b.PersistentVolume, vol.Name), kind: k, root: m.HostPath, path: sub})
	}
	return m, err
}

// of returns the path of a volume on the node, and its record. For a volume without a record, b has only the field Kind.
func (w places) of(p *v1.Pod, vol *v1.Volume, k kind) (dir string, b bound, err error) {
	switch k {
	case kindHostPath:
		return vol.HostPath.Path, bound{Kind: k}, nil
	case kindClaim, kindCSI, kindInTree:
		if b, err = w.bound(p.UID, vol.Name); err != nil {
			return "", b, err
		}
		return b.dir(w.layout, p.UID), b, nil
	}
	return w.layout.volume(p.UID, k, vol.Name), bound{Kind: k}, nil
}

// isReadOnly reports whether a volume whose server or disk the pod itself names is read-only.
func isReadOnly(vol *v1.Volume) bool {
	return vol.NFS != nil && vol.NFS.ReadOnly || vol.ISCSI != nil && vol.ISCSI.ReadOnly || vol.FC != nil && vol.FC.ReadOnly
}

// imageMount completes the mount of an image volume, which the runtime itself mounts.
func imageMount(m *runtimeapi.Mount, in *MountInput, vol *v1.Volume, sub string) error {
	if in.Image == nil {
		return fmt.Errorf("%w: image", ErrUnsupported)
	}
	image, err := in.Image(vol, sub)
	if err != nil {
		return fmt.Errorf("image %s: %w", vol.Image.Reference, err)
	}
	m.Image, m.ImageSubPath, m.Readonly = image, sub, true
	return nil
}

func propagationOf(mode *v1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("mountPropagation %q is unknown: use None, HostToContainer or Bidirectional", *mode)
}

// recursiveReadOnly follows the documented rules: the mount must be read-only and have no propagation. "IfPossible" depends on
// what the runtime supports; "Enabled" fails if the runtime does not support it.
func recursiveReadOnly(vm *v1.VolumeMount, runtimeCan bool) (bool, error) {
	if vm.RecursiveReadOnly == nil || *vm.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !vm.ReadOnly {
		return false, errors.New("recursiveReadOnly is set, but readOnly is not: set readOnly: true")
	}
	if p := vm.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		return false, fmt.Errorf("recursiveReadOnly does not go with mountPropagation %s: use None", *p)
	}
	switch *vm.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return runtimeCan, nil
	case v1.RecursiveReadOnlyEnabled:
		if !runtimeCan {
			return false, errors.New("recursiveReadOnly is Enabled, but the container runtime (handler) cannot do it: use IfPossible, or a newer runtime and kernel")
		}
		return true, nil
	}
	return false, fmt.Errorf("recursiveReadOnly %q is unknown: use Disabled, IfPossible or Enabled", *vm.RecursiveReadOnly)
}

// subPathOf returns the checked subPath of a mount. It expands a subPathExpr.
func subPathOf(vm *v1.VolumeMount, env []crispec.EnvVar) (string, error) {
	sub := vm.SubPath
	if vm.SubPathExpr != "" {
		var missing []string
		var err error
		sub, err = crispec.Expand(vm.SubPathExpr, func(name string) (string, bool) {
			value := ""
			for _, v := range env { // if several have the same name, the last one applies
				if v.Name == name {
					value = v.Value
				}
			}
			if value == "" { // refused, because with an empty subPath the container would get the whole volume
				missing = append(missing, name)
			}
			return value, value != ""
		})
		if err != nil {
			return "", fmt.Errorf("subPathExpr: %w", err)
		}
		if len(missing) > 0 {
			return "", fmt.Errorf("subPathExpr %q: the container has no value for environment variable %s", vm.SubPathExpr, strings.Join(missing, ", "))
		}
	}
	if sub == "" {
		return "", nil
	}
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("subPath %q must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", fmt.Errorf("subPath %q must not contain '..'", sub)
	}
	return filepath.Clean(sub), nil
}
