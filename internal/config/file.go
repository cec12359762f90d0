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
)

const (
	fileAPIVersion = "kubelet.config.k8s.io/v1beta1"
	fileKind       = "KubeletConfiguration"
)

// pathFields are the fields that hold a path. A relative one is taken from the directory of the file that says it.
var pathFields = [][]string{
	{"staticPodPath"}, {"authentication", "x509", "clientCAFile"}, {"tlsCertFile"}, {"tlsPrivateKeyFile"},
	{"resolvConf"}, {"volumePluginDir"}, {"podLogsDir"},
}

// readFile reads one configuration file, YAML or JSON, into the plain form that merges. It has been checked against
// KubeletConfiguration: every unknown or repeated field and every value of a wrong type is in the error, with its path.
func readFile(name string) (map[string]any, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("find configuration file %s: %w", name, err)
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
	var kc kubelet.KubeletConfiguration
	strict, err := kjson.UnmarshalStrict(asJSON, &kc)
	if err != nil {
		return nil, wrongType(err)
	}
	for i, e := range strict {
		strict[i] = explainStrict(e)
	}
	return m, errors.Join(strict...)
}

// wrongType says in the words of the file what encoding/json says in the words of Go.
func wrongType(err error) error {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return fmt.Errorf("%s: is a %s, must be %s", te.Field, te.Value, typeWords(te.Type))
	}
	return err
}

func typeWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64, reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a map"
	default:
		return "a " + t.String()
	}
}

// explainStrict adds to `unknown field "x.y"` what could be meant.
func explainStrict(err error) error {
	_, path, ok := strings.Cut(err.Error(), "unknown field ")
	if !ok {
		return err
	}
	path = strings.Trim(path, `"`)
	var known []string
	for p := range leaves(reflect.TypeFor[kubelet.KubeletConfiguration]()) {
		known = append(known, p)
	}
	return fmt.Errorf("unknown field %s%s: not a field of %s in Kubernetes %s: remove or correct it",
		path, didYouMean(path, known), fileAPIVersion, KubernetesVersion)
}

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

// readDropIns reads the *.conf files of a directory and those below, in lexical order.
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

// mergePatch lays patch over base as RFC 7386 says: maps merge, everything else replaces, null deletes.
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

// setPaths lists the leaf paths that a file says.
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

// toConfiguration and toMap change between the plain form and the type.
func toConfiguration(m map[string]any, kc *kubelet.KubeletConfiguration) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode merged configuration: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, kc); err != nil {
		return fmt.Errorf("decode merged configuration: %w", wrongType(err))
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
	// omitempty drops what is empty on purpose, where nil would mean the default.
	if kc.EvictionHard != nil && len(kc.EvictionHard) == 0 {
		m["evictionHard"] = map[string]any{}
	}
	if kc.EnforceNodeAllocatable != nil && len(kc.EnforceNodeAllocatable) == 0 {
		m["enforceNodeAllocatable"] = []any{}
	}
	return m, nil
}
