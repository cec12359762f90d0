package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/core/strict"
)

const (
	fileAPIVersion = "kubelet.config.k8s.io/v1beta1"
	fileKind       = "KubeletConfiguration"
)

// pathFields are the fields that hold a path. A relative path starts at the directory of its file.
var pathFields = [][]string{
	{"staticPodPath"}, {"authentication", "x509", "clientCAFile"}, {"tlsCertFile"}, {"tlsPrivateKeyFile"},
	{"resolvConf"}, {"volumePluginDir"}, {"podLogsDir"},
}

// readFile reads one configuration file, YAML or JSON, as a map that can be merged. It checks the file against
// KubeletConfiguration: the error names every unknown or repeated field and every value of a wrong type, with its path.
func readFile(name string) (map[string]any, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("resolve the path of configuration file %s: %w", name, err)
	}
	data, err := os.ReadFile(abs)
	if err != nil {
		return nil, fmt.Errorf("read configuration file: %w", err)
	}
	m, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", name, err)
	}
	resolvePaths(m, filepath.Dir(abs))
	return m, nil
}

func decode(data []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("the file is empty: write at least apiVersion: %s and kind: %s", fileAPIVersion, fileKind)
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("not valid YAML or JSON: %w", err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(asJSON, &m); err != nil {
		return nil, errors.New("not a map of fields: write apiVersion, kind and fields of a " + fileKind)
	}
	if m["apiVersion"] != fileAPIVersion || m["kind"] != fileKind {
		return nil, fmt.Errorf("apiVersion %v, kind %v: must be %s and %s", m["apiVersion"], m["kind"], fileAPIVersion, fileKind)
	}
	return m, checkFields(asJSON, &kubelet.KubeletConfiguration{}, func(path, meant string) error {
		return fmt.Errorf("unknown field %s%s: not a field of %s in Kubernetes %s: remove or correct it", path, meant, fileAPIVersion, KubernetesVersion)
	})
}

// checkFields returns an error for every field of a file that obj, a pointer to a struct, does not have, and for every value of
// a wrong type. unknown makes the error of a field that does not exist; its parameter meant is ` (did you mean "x"?)` or empty.
func checkFields(asJSON []byte, obj any, unknown func(path, meant string) error) error {
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("not valid YAML or JSON: %w", err)
	}
	var errs []error
	for _, p := range (strict.Types{}).Check(v, obj) {
		switch {
		case !p.Unknown:
			errs = append(errs, fmt.Errorf("%s: %s", p.Path, p.Detail))
		case p.Nearest == "":
			errs = append(errs, unknown(p.Path, ""))
		default:
			errs = append(errs, unknown(p.Path, meant(p.Path[:strings.LastIndexByte(p.Path, '.')+1]+p.Nearest)))
		}
	}
	return errors.Join(errs...)
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
func readDropIns(dir string) ([]map[string]any, error) {
	var all []map[string]any
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".conf" {
			return err
		}
		m, err := readFile(path)
		all = append(all, m)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read drop-in directory (--config-dir): %w", err)
	}
	return all, nil
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

// setPaths collects the leaf paths that a file sets.
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

// toConfiguration and toMap convert between the map and the type.
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
	m := map[string]any{}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	// omitempty drops values that are empty on purpose, but nil would mean the default.
	if kc.EvictionHard != nil && len(kc.EvictionHard) == 0 {
		m["evictionHard"] = map[string]any{}
	}
	if kc.EnforceNodeAllocatable != nil && len(kc.EnforceNodeAllocatable) == 0 {
		m["enforceNodeAllocatable"] = []any{}
	}
	return m, nil
}
