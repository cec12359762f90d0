package credplugin

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// These are the API versions of configuration files and of plugins. The versions have the same fields, except that only v1 has
// tokenAttributes.
var (
	configVersions = []string{"kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"}
	pluginVersions = []string{"credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1"}
)

// readConfig reads the providers of a file, or of the files of a directory (*.json, *.yaml, *.yml) in the order of their names.
// It returns every problem that it finds, and the hash of the files as upstream's kubelet computes it. The input of the hash is
// the length of each file, in 8 bytes, followed by its content.
func readConfig(path string, tokens bool) ([]kubeletv1.CredentialProvider, string, error) {
	files, err := configFiles(path)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	var all []kubeletv1.CredentialProvider
	var problems []error
	for _, file := range files {
		providers, err := readFile(file, tokens, sum)
		if err != nil {
			problems = append(problems, err)
		}
		all = append(all, providers...)
	}
	byName := map[string]bool{}
	for _, p := range all {
		if p.Name != "" && byName[p.Name] {
			problems = append(problems, fmt.Errorf("%s: two providers have the name %q: give each a name of its own", path, p.Name))
		}
		byName[p.Name] = true
	}
	if len(all) == 0 && len(problems) == 0 {
		problems = append(problems, fmt.Errorf("%s: it lists no provider: add one under providers, or remove --image-credential-provider-config", path))
	}
	return all, fmt.Sprintf("sha256:%x", sum.Sum(nil)), errors.Join(problems...)
}

func configFiles(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential provider plugins: %w", err)
	}
	if !st.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // in the order of names
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential provider plugins: %w", err)
	}
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) && !e.IsDir() {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read the configuration of credential provider plugins: directory %s has no .json, .yaml or .yml file", path)
	}
	return files, nil
}

func readFile(file string, tokens bool, sum hash.Hash) ([]kubeletv1.CredentialProvider, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential provider plugins: %w", err)
	}
	defer f.Close()
	raw, err := hostfs.ReadBounded(f, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential provider plugins: %w", err)
	}
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(raw))))
	sum.Write(raw)
	var c kubeletv1.CredentialProviderConfig
	d := yamldoc.Document{Name: file}
	if err := d.DecodePlain(raw, &c); err != nil { // of any API version: those that are known have the same fields
		return nil, err
	}
	if c.Kind != "CredentialProviderConfig" || !slices.Contains(configVersions, c.APIVersion) {
		d.Bad("", fmt.Sprintf("kind and apiVersion are %q and %q: they must be CredentialProviderConfig and one of %s",
			c.Kind, c.APIVersion, strings.Join(configVersions, ", ")))
	}
	for i := range c.Providers {
		v := validator{at: fmt.Sprintf("providers[%d]", i), configVersion: c.APIVersion, tokens: tokens, file: &d}
		v.provider(&c.Providers[i])
	}
	return c.Providers, errors.Join(d.Errs...)
}

// validator adds the problems of one provider to its file.
type validator struct {
	at            string // the path of the provider
	configVersion string
	tokens        bool
	file          *yamldoc.Document
}

func (v *validator) bad(field, format string, args ...any) {
	v.file.Bad(v.at+"."+field, fmt.Sprintf(format, args...))
}

func (v *validator) provider(p *kubeletv1.CredentialProvider) {
	switch {
	case p.Name == "":
		v.bad("name", "it is required: it is the name of the program in the plugins' directory")
	case p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ \t\n\x00"):
		v.bad("name", "%q is not the name of a program: it must have no slash and no space", p.Name)
	}
	if len(p.MatchImages) == 0 {
		v.bad("matchImages", "it is required: name the registries that the plugin has credentials for")
	}
	for i, m := range p.MatchImages {
		if _, err := pullaccess.ParsePattern(m); err != nil {
			v.bad(fmt.Sprintf("matchImages[%d]", i), "%q: %v", m, err)
		}
	}
	switch {
	case p.DefaultCacheDuration == nil:
		v.bad("defaultCacheDuration", "it is required; 0s keeps nothing")
	case p.DefaultCacheDuration.Duration < 0:
		v.bad("defaultCacheDuration", "%s is less than zero", p.DefaultCacheDuration.Duration)
	}
	if !slices.Contains(pluginVersions, p.APIVersion) {
		v.bad("apiVersion", "%q must be one of %s", p.APIVersion, strings.Join(pluginVersions, ", "))
	}
	for i, e := range p.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") || strings.Contains(e.Value, "\x00") {
			v.bad(fmt.Sprintf("env[%d]", i), "%q is not the name of a variable, or its value has a zero byte", e.Name)
		}
	}
	if p.TokenAttributes != nil {
		v.token(p)
	}
}

func (v *validator) token(p *kubeletv1.CredentialProvider) {
	a := p.TokenAttributes
	switch {
	case !v.tokens:
		v.bad("tokenAttributes", "it needs the feature gate KubeletServiceAccountTokenForCredentialProviders")
	case v.configVersion != configVersions[0]:
		v.bad("tokenAttributes", "it needs a configuration of apiVersion %s", configVersions[0])
	case p.APIVersion != pluginVersions[0]:
		v.bad("tokenAttributes", "it needs a plugin of apiVersion %s", pluginVersions[0])
	}
	if a.ServiceAccountTokenAudience == "" {
		v.bad("tokenAttributes.serviceAccountTokenAudience", "it is required")
	}
	if a.RequireServiceAccount == nil {
		v.bad("tokenAttributes.requireServiceAccount", "it is required: true or false")
	} else if !*a.RequireServiceAccount && len(a.RequiredServiceAccountAnnotationKeys) > 0 {
		v.bad("tokenAttributes.requiredServiceAccountAnnotationKeys", "it needs requireServiceAccount: true")
	}
	if a.CacheType != kubeletv1.TokenServiceAccountTokenCacheType && a.CacheType != kubeletv1.ServiceAccountServiceAccountTokenCacheType {
		v.bad("tokenAttributes.cacheType", "%q must be Token or ServiceAccount", a.CacheType)
	}
	keys := slices.Concat(a.RequiredServiceAccountAnnotationKeys, a.OptionalServiceAccountAnnotationKeys)
	slices.SortFunc(keys, cmp.Compare)
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			v.bad("tokenAttributes", "annotation key %q is named twice", keys[i])
		}
	}
	if len(keys) > 0 && keys[0] == "" {
		v.bad("tokenAttributes", "an annotation key is empty")
	}
}
