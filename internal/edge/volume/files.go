package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// defaultFileMode is the mode of files if the volume specifies none ("Defaults to 0644").
const defaultFileMode = 0o644

// resolver makes the list of a volume's files, with their content, from the volume's source. It reads objects and writes no file.
type resolver struct {
	ctx         context.Context
	objects     Objects
	credentials Credentials
	pod         Pod
	// present returns the content of a file of the volume, or nil if the volume has no such file. The function is nil if the volume
	// is not on a disk.
	present func(path string) []byte
}

var errNoObjects = errors.New("this node has no API server to read it from: run the pod on a node that has joined a cluster, or give it the files by hostPath")

// volume returns the files of a volume whose content comes from the API.
func (r *resolver) volume(vol *v1.Volume) (map[string]file, error) {
	switch {
	case vol.ConfigMap != nil:
		s := vol.ConfigMap
		return r.configMap(s.Name, s.Items, mode(s.DefaultMode), isTrue(s.Optional))
	case vol.Secret != nil:
		s := vol.Secret
		return r.secret(s.SecretName, s.Items, mode(s.DefaultMode), isTrue(s.Optional))
	case vol.DownwardAPI != nil:
		return r.downwardAPI(vol.DownwardAPI.Items, mode(vol.DownwardAPI.DefaultMode))
	case vol.Projected != nil:
		return r.projected(vol.Name, vol.Projected)
	}
	return nil, fmt.Errorf("volume %q has no files of its own", vol.Name)
}

func (r *resolver) configMap(name string, items []v1.KeyToPath, mode fs.FileMode, optional bool) (map[string]file, error) {
	if r.objects == nil {
		return nil, fmt.Errorf("configmap %q: %w", name, errNoObjects)
	}
	cm, err := r.objects.ConfigMap(r.ctx, r.pod.Pod, name)
	if err != nil {
		if optional && apierrors.IsNotFound(err) {
			return map[string]file{}, nil
		}
		return nil, sourceError("configmap", r.pod.Pod.Namespace, name, err)
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, cm.BinaryData)
	return project(data, items, mode, optional, "configmap "+name)
}

func (r *resolver) secret(name string, items []v1.KeyToPath, mode fs.FileMode, optional bool) (map[string]file, error) {
	if r.objects == nil {
		return nil, fmt.Errorf("secret %q: %w", name, errNoObjects)
	}
	s, err := r.objects.Secret(r.ctx, r.pod.Pod, name)
	if err != nil {
		if optional && apierrors.IsNotFound(err) {
			return map[string]file{}, nil
		}
		return nil, sourceError("secret", r.pod.Pod.Namespace, name, err)
	}
	return project(s.Data, items, mode, optional, "secret "+name)
}

// sourceError returns an error that names the missing object and the remedy.
func sourceError(what, namespace, name string, err error) error {
	if apierrors.IsNotFound(err) {
		lack := pod.LackSecret
		if what == "configmap" {
			lack = pod.LackConfigMap
		}
		return &pod.Lacking{What: lack, Err: &worded{
			text:  fmt.Sprintf("%s %q not found: create it in namespace %q, or mark it optional; the volume is made as soon as it exists", what, name, namespace),
			cause: err,
		}}
	}
	return fmt.Errorf("read %s %s/%s: %w", what, namespace, name, err)
}

// worded is an error that gives its cause a clearer text.
type worded struct {
	text  string
	cause error
}

func (e *worded) Error() string { return e.text }
func (e *worded) Unwrap() error { return e.cause }

// several joins errors in one line of text.
type several []error

func (e several) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e several) Unwrap() []error { return e }

// project selects keys of data: all keys under their own names or, if there are items, the keys in items under the paths in items.
func project(data map[string][]byte, items []v1.KeyToPath, mode fs.FileMode, optional bool, what string) (map[string]file, error) {
	files := make(map[string]file, len(data))
	if len(items) == 0 {
		for key, value := range data {
			files[key] = file{Data: value, Mode: mode, UID: -1}
		}
		return files, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return nil, &pod.Lacking{What: pod.LackKey, Err: fmt.Errorf("%s references non-existent key %q: add the key, remove the item, or mark the source optional", what, item.Key)}
		}
		f := file{Data: value, Mode: mode, UID: -1}
		if item.Mode != nil {
			f.Mode = fileMode(*item.Mode)
		}
		if err := put(files, item.Path, f); err != nil {
			return nil, fmt.Errorf("%s, key %q: %w", what, item.Key, err)
		}
	}
	return files, nil
}

// put adds a file under its cleaned path. It replaces an earlier file of the same path.
func put(files map[string]file, path string, f file) error {
	if err := checkPath(path); err != nil {
		return err
	}
	files[filepath.Clean(path)] = f
	return nil
}

func (r *resolver) downwardAPI(items []v1.DownwardAPIVolumeFile, defaultMode fs.FileMode) (map[string]file, error) {
	files := make(map[string]file, len(items))
	for i := range items {
		item := &items[i]
		f := file{Mode: defaultMode, UID: -1}
		if item.Mode != nil {
			f.Mode = fileMode(*item.Mode)
		}
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = crispec.Field(crispec.FieldInput{Pod: r.pod.Pod, PodIPs: r.pod.PodIPs, HostIPs: r.pod.HostIPs}, item.FieldRef)
		case item.ResourceFieldRef != nil:
			value, err = crispec.ResourceField(item.ResourceFieldRef, r.pod.Pod, nil, r.pod.NodeAllocatable)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef is set")
		}
		if err == nil {
			f.Data = []byte(value)
			err = put(files, item.Path, f)
		}
		if err != nil {
			return nil, fmt.Errorf("downwardAPI item %q: %w", item.Path, err)
		}
	}
	return files, nil
}

// parallelSources is how many sources of a projected volume are read at once. The author of the pod chooses the number of sources, and each may
// send a request, which takes a turn at the limit of the node's requests.
const parallelSources = 4

// projected merges its sources in order: if two give the same path, the later one wins, as in upstream's kubelet. It
// reads several sources at once, because each may wait for the API server.
func (r *resolver) projected(volume string, src *v1.ProjectedVolumeSource) (map[string]file, error) {
	got := make([]map[string]file, len(src.Sources))
	errs := make([]error, len(src.Sources))
	var begun atomic.Int64
	read := func() {
		for i := int(begun.Add(1)) - 1; i < len(src.Sources); i = int(begun.Add(1)) - 1 {
			got[i], errs[i] = r.projection(sourceAt{volume, i, mode(src.DefaultMode)}, &src.Sources[i])
			if errs[i] != nil {
				errs[i] = fmt.Errorf("sources[%d]: %w", i, errs[i])
			}
		}
	}
	var wg sync.WaitGroup
	for range min(parallelSources, len(src.Sources)) - 1 {
		wg.Go(read)
	}
	read() // this goroutine is one of the readers
	wg.Wait()
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		return nil, several(errs)
	}
	files := map[string]file{}
	for _, g := range got {
		maps.Copy(files, g)
	}
	return files, nil
}

// sourceAt names one source of a projected volume: the volume, the index of the source, and the mode of files that have none of their own.
type sourceAt struct {
	volume string
	source int
	mode   fs.FileMode
}

func (r *resolver) projection(at sourceAt, s *v1.VolumeProjection) (map[string]file, error) {
	mode := at.mode
	switch {
	case s.ConfigMap != nil:
		return r.configMap(s.ConfigMap.Name, s.ConfigMap.Items, mode, isTrue(s.ConfigMap.Optional))
	case s.Secret != nil:
		return r.secret(s.Secret.Name, s.Secret.Items, mode, isTrue(s.Secret.Optional))
	case s.DownwardAPI != nil:
		return r.downwardAPI(s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		return r.token(s.ServiceAccountToken, mode)
	case s.ClusterTrustBundle != nil:
		return r.trustBundle(s.ClusterTrustBundle, mode)
	case s.PodCertificate != nil:
		return r.podCertificate(at, s.PodCertificate)
	}
	return nil, fmt.Errorf("%w: a projection newer than this agent", ErrUnsupported)
}

// token makes the file of a service account token.
func (r *resolver) token(s *v1.ServiceAccountTokenProjection, mode fs.FileMode) (map[string]file, error) {
	if r.objects == nil {
		return nil, fmt.Errorf("serviceAccountToken: %w", errNoObjects)
	}
	p := r.pod.Pod
	token, _, err := r.objects.ServiceAccountToken(r.ctx, p, s.Audience, s.ExpirationSeconds)
	if err != nil {
		return nil, fmt.Errorf("serviceAccountToken of %s/%s: %w", p.Namespace, p.Spec.ServiceAccountName, err)
	}
	files := map[string]file{}
	if err := put(files, s.Path, r.private([]byte(token), mode)); err != nil {
		return nil, fmt.Errorf("serviceAccountToken: %w", err)
	}
	return files, nil
}

// private makes a file for credentials. If all containers run as one user or the pod has an fsGroup, only that user or group may read
// the file. Otherwise the file keeps mode.
func (r *resolver) private(data []byte, mode fs.FileMode) file {
	f := file{Data: data, Mode: mode, UID: tokenOwner(r.pod.Pod)}
	if f.UID >= 0 || fsGroup(r.pod.Pod) >= 0 {
		f.Mode = 0o600
	}
	return f
}

func mode(m *int32) fs.FileMode {
	if m == nil {
		return defaultFileMode
	}
	return fileMode(*m)
}

// fileMode converts a mode of the API: the permission bits, and the three special bits above them.
func fileMode(m int32) fs.FileMode {
	out := fs.FileMode(m) & fs.ModePerm
	if m&0o4000 != 0 {
		out |= fs.ModeSetuid
	}
	if m&0o2000 != 0 {
		out |= fs.ModeSetgid
	}
	if m&0o1000 != 0 {
		out |= fs.ModeSticky
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }
