package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

// pathFields are the fields that hold a path. A relative path is relative to the directory of the configuration file.
var pathFields = [][]string{
	{"staticPodPath"}, {"authentication", "x509", "clientCAFile"}, {"tlsCertFile"}, {"tlsPrivateKeyFile"},
	{"resolvConf"}, {"volumePluginDir"}, {"podLogsDir"},
}

// readFile reads one configuration file, YAML or JSON, as a map that can be merged. It checks the file against KubeletConfiguration: the
// error names every unknown or repeated field and every value of a wrong type, with its path and line. It is an error if the file has
// more than most bytes; size is the number of its bytes.
func readFile(name string, most int64) (m map[string]any, from origin, size int, err error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, from, 0, fmt.Errorf("resolve the path of configuration file %s: %w", name, err)
	}
	data, err := readBounded(abs, min(most, maxFile))
	if err != nil {
		return nil, from, 0, fmt.Errorf("read configuration file: %w", err)
	}
	from = origin{name, linesOf(data)}
	if m, err = decode(data, from.lines); err != nil {
		return nil, from, 0, fmt.Errorf("configuration file %s: %w", name, err)
	}
	resolvePaths(m, filepath.Dir(abs))
	return m, from, len(data), nil
}

func decode(data []byte, lines map[string]int) (map[string]any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("the file is empty: write at least apiVersion: %s and kind: %s", fileAPIVersion, fileKind)
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("not valid YAML or JSON: %w", err)
	}
	m := map[string]any{}
	if err := unmarshalMap(asJSON, &m); err != nil {
		return nil, errors.New("not a map of fields: write apiVersion, kind and fields of a " + fileKind)
	}
	if m["apiVersion"] != fileAPIVersion || m["kind"] != fileKind {
		return nil, fmt.Errorf("apiVersion %v, kind %v: must be %s and %s", cmp.Or(m["apiVersion"], "none"), cmp.Or(m["kind"], "none"), fileAPIVersion, fileKind)
	}
	return m, checkFields(asJSON, lines, &kubelet.KubeletConfiguration{}, func(path, meant string) error {
		return fmt.Errorf("unknown field %s%s: not a field of %s in Kubernetes %s: remove or correct it", path, meant, fileAPIVersion, KubernetesVersion)
	})
}

// checkFields returns an error for every field of a file that obj, a pointer to a struct, does not have, and for every value of a
// wrong type, with the line of each. unknown creates the error for a field that does not exist; its parameter meant is ` (did you
// mean "x"?)` or empty.
func checkFields(asJSON []byte, lines map[string]int, obj any, unknown func(path, meant string) error) error {
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("not valid YAML or JSON: %w", err)
	}
	var errs []error
	for i, p := range (strict.Types{}).Check(v, obj) {
		if i == maxProblems {
			errs = append(errs, fmt.Errorf("and more than %d problems in all", maxProblems))
			break
		}
		var err error
		switch {
		case !p.Unknown:
			err = fmt.Errorf("%s: %s", p.Path, p.Detail)
		case p.Nearest == "":
			err = unknown(p.Path, "")
		default:
			err = unknown(p.Path, meant(p.Path[:strings.LastIndexByte(p.Path, '.')+1]+p.Nearest))
		}
		if line := lineOf(lines, p.Path); line > 0 {
			err = fmt.Errorf("line %d: %w", line, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// maxProblems bounds how many problems of one file an error names.
const maxProblems = 50

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
func readDropIns(dir string) (all []map[string]any, from []origin, err error) {
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

// unmarshalMap decodes a map and keeps every number as it is written, because float64 holds whole numbers only up to 2^53.
func unmarshalMap(data []byte, m *map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(m)
}

func toMap(kc *kubelet.KubeletConfiguration) (map[string]any, error) {
	data, err := json.Marshal(kc)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	m := map[string]any{}
	if err := unmarshalMap(data, &m); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	// Values that are empty on purpose are added again, because omitempty drops them, and a missing value would mean the default.
	if kc.EvictionHard != nil && len(kc.EvictionHard) == 0 {
		m["evictionHard"] = map[string]any{}
	}
	if kc.EnforceNodeAllocatable != nil && len(kc.EnforceNodeAllocatable) == 0 {
		m["enforceNodeAllocatable"] = []any{}
	}
	return m, nil
}
