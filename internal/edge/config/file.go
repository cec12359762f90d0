package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	kubelet "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

const (
	fileAPIVersion = "kubelet.config.k8s.io/v1beta1"
	fileKind       = "KubeletConfiguration"
)

// pathFields are the fields that hold a path. A relative path is relative to the directory of the configuration file.
var pathFields = [][]string{
	{"staticPodPath"}, {"authentication", "x509", "clientCAFile"}, {"tlsCertFile"}, {"tlsPrivateKeyFile"},
	{"resolvConf"}, {"volumePluginDir"}, {"podLogsDir"},
}

// readFile reads one configuration file, YAML or JSON, as a map that can be merged. It checks the file against KubeletConfiguration: the
// error names every unknown or repeated field and every value of a wrong type, with its path and line. It is an error if the file has
// more than most bytes; size is the number of its bytes.
func readFile(name string, most int64) (m map[string]any, from *yamldoc.Document, size int, err error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("resolve the path of configuration file %s: %w", name, err)
	}
	data, err := readBounded(abs, min(most, maxFile))
	if err != nil {
		return nil, nil, 0, fmt.Errorf("read configuration file: %w", err)
	}
	from = newDocument(name, fmt.Sprintf("not a field of %s in Kubernetes %s: remove or correct it", fileAPIVersion, KubernetesVersion))
	m, _, err = from.Check(data, fileAPIVersion, fileKind, &kubelet.KubeletConfiguration{})
	if err != nil {
		return nil, nil, 0, fmt.Errorf("configuration file %w", err)
	}
	resolvePaths(m, filepath.Dir(abs))
	return m, from, len(data), nil
}

// newDocument returns the document of a configuration file. advice is for those who wrote a field that does not exist.
func newDocument(name, advice string) *yamldoc.Document {
	return &yamldoc.Document{Name: name, Unknown: func(path, nearest string) string {
		if nearest != "" {
			nearest = meant(nearest)
		}
		return fmt.Sprintf("unknown field %s%s: %s", path, nearest, advice)
	}}
}

// meant returns a suggestion for a misspelled name.
func meant(name string) string { return fmt.Sprintf(" (did you mean %q?)", name) }

func resolvePaths(m map[string]any, dir string) {
	for _, path := range pathFields {
		at := m
		for _, key := range path[:len(path)-1] {
			at, _ = at[key].(map[string]any)
		}
		last := path[len(path)-1]
		if s, ok := at[last].(string); ok && s != "" && !filepath.IsAbs(s) {
			at[last] = filepath.Join(dir, s)
		}
	}
}

// readDropIns reads the *.conf files of a directory and its subdirectories, in lexical order.
func readDropIns(dir string) (all []map[string]any, from []*yamldoc.Document, err error) {
	files, _, err := dropIns(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read drop-in directory (--config-dir): %w", err)
	}
	left := int64(maxFiles)
	for _, path := range files {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() { // opening a named pipe would block until a program writes to it
			err = fmt.Errorf("%s is not a regular file: remove it", path)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read drop-in directory (--config-dir): %w", err)
		}
		m, o, size, err := readFile(path, left)
		if err != nil {
			return nil, nil, fmt.Errorf("read drop-in directory (--config-dir): %w", err)
		}
		left -= int64(size)
		all, from = append(all, m), append(from, o)
	}
	return all, from, nil
}

// mergePatch applies patch to base as RFC 7386 defines it: maps merge, other values replace, null deletes.
func mergePatch(base, patch map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(patch))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			below, _ := out[k].(map[string]any)
			out[k] = mergePatch(below, v)
		default:
			out[k] = v
		}
	}
	return out
}

// setPaths adds to set the path of each leaf field that the map m of a file sets. known has all leaf fields.
func setPaths(m map[string]any, known map[string]reflect.Type, prefix string, set map[string]string) {
	for k, v := range m {
		path := prefix + k
		if _, leaf := known[path]; leaf {
			set[path] = ""
			continue
		}
		if below, ok := v.(map[string]any); ok {
			setPaths(below, known, path+".", set)
		}
	}
}

// toConfiguration and toMap convert between a map of fields, which can be merged, and a KubeletConfiguration.
func toConfiguration(m map[string]any, kc *kubelet.KubeletConfiguration) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode merged configuration: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, kc); err != nil {
		return fmt.Errorf("decode merged configuration: %w", err)
	}
	return nil
}

func toMap(kc *kubelet.KubeletConfiguration) (map[string]any, error) {
	data, err := json.Marshal(kc)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	v, err := yamldoc.Plain(data)
	if err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	m, _ := v.(map[string]any)
	// Values that are empty on purpose are added again, because omitempty drops them, and a missing value would mean the default.
	if kc.EvictionHard != nil && len(kc.EvictionHard) == 0 {
		m["evictionHard"] = map[string]any{}
	}
	if kc.EnforceNodeAllocatable != nil && len(kc.EnforceNodeAllocatable) == 0 {
		m["enforceNodeAllocatable"] = []any{}
	}
	return m, nil
}
