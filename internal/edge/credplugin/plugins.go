package credplugin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	kubeletv1 "k8s.io/kubelet/config/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// maxRuns bounds how many runs of one plugin there are at once. Pods choose the images, and so could start any number of runs. Each plugin has a bound
// of its own, so that one that hangs delays only the images that it is for.
const maxRuns = 8

// maxKept bounds the number of cached answers. There may be one for each service account and image.
const maxKept = 1000

// Config configures Plugins.
type Config struct {
	// File is a CredentialProviderConfig, or a directory of them. Dir is the directory of the programs. Both are required.
	File, Dir string
	// Tokens allows tokenAttributes (the feature gate KubeletServiceAccountTokenForCredentialProviders).
	Tokens bool
	// Token returns a token of the pod's service account, bound to the pod, for the audience. Account returns a service account.
	// Both are nil on a node without an API server.
	Token   func(ctx context.Context, p *v1.Pod, audience string) (string, error)
	Account func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// Meter counts runs. Required.
	Meter Meter
	// Log gets a warning for each plugin that fails. Required.
	Log *slog.Logger
	// Timeout bounds a run, and the time that a run waits for its turn. Default: one minute.
	Timeout time.Duration
}

// Meter counts runs. Its methods must not block.
type Meter interface {
	// CredentialPluginRan is called after each run of a plugin.
	CredentialPluginRan(name string, took time.Duration, err error)
	// CredentialPluginsRead is called with the hash of the configuration that Load has read.
	CredentialPluginsRead(hash string)
}

// Plugins are the credential provider plugins of a node. Methods may be called concurrently.
type Plugins struct {
	cfg     Config
	plugins []plugin
	flights singleflight.Group

	// A run continues when its caller stops waiting, because other callers may wait for it too. close cancels all runs.
	closing context.Context
	close   context.CancelFunc
	runs    sync.WaitGroup

	mu   sync.Mutex
	kept map[string]answer
}

// plugin is one configured program.
type plugin struct {
	kubeletv1.CredentialProvider
	path     string
	patterns []pullaccess.Pattern
	running  chan struct{} // has one value for each run in progress
}

// answer is the cached answer of a plugin, with the time until which it may be used.
type answer struct {
	credentials []pullaccess.PluginCredential
	until       time.Time
}

// fresh reports whether the answer may still be used: that much time has not passed, and the clock does not show that time either. While the machine sleeps, no
// time passes for a process, but credentials expire.
func (a *answer) fresh(now time.Time) bool {
	return now.Before(a.until) && now.Round(0).Before(a.until.Round(0))
}

// Load reads the configuration. It returns every problem of the files, and names each program that is missing.
func Load(cfg Config) (*Plugins, error) {
	if cfg.File == "" || cfg.Dir == "" {
		return nil, errors.New("credential provider plugins need both --image-credential-provider-config and --image-credential-provider-bin-dir")
	}
	providers, sum, err := readConfig(cfg.File, cfg.Tokens)
	if err != nil {
		return nil, err
	}
	p := &Plugins{cfg: cfg, kept: map[string]answer{}}
	p.closing, p.close = context.WithCancel(context.Background())
	p.cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	for _, provider := range providers {
		one := plugin{CredentialProvider: provider, path: filepath.Join(cfg.Dir, provider.Name), running: make(chan struct{}, maxRuns)}
		if st, err := os.Stat(one.path); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("credential provider plugin %q: %s is not a program that can be run: install it there, or remove the provider from %s", provider.Name, one.path, cfg.File)
		}
		for _, m := range provider.MatchImages {
			pattern, err := pullaccess.ParsePattern(m)
			if err != nil {
				return nil, err
			}
			one.patterns = append(one.patterns, pattern)
		}
		p.plugins = append(p.plugins, one)
	}
	cfg.Meter.CredentialPluginsRead(sum)
	return p, nil
}

// Close kills the plugins that run and waits for their end. Credentials returns errors from then on.
func (p *Plugins) Close() {
	p.mu.Lock()
	p.close() // from now on begin returns false
	p.mu.Unlock()
	p.runs.Wait()
}

// begin adds a run to the group for which Close waits. After Close it returns false, and the caller must not run the plugin.
func (p *Plugins) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Err() != nil {
		return false
	}
	p.runs.Add(1)
	return true
}

// Credentials returns the credentials of all plugins that match a repository (host/path): "Multiple providers may match against a
// single image, in which case credentials from all providers will be returned". The error names each plugin that failed.
func (p *Plugins) Credentials(ctx context.Context, of *v1.Pod, repository string) (all []pullaccess.PluginCredential, err error) {
	var failed []error
	for i := range p.plugins {
		one := &p.plugins[i]
		if !slices.ContainsFunc(one.patterns, func(at pullaccess.Pattern) bool { return at.Matches(repository) }) {
			continue
		}
		got, err := p.ask(ctx, one, of, repository)
		if err != nil {
			err = fmt.Errorf("credential provider plugin %q: %w", one.Name, err)
			if ctx.Err() == nil {
				p.cfg.Log.Warn("a credential provider plugin gave no credentials", "plugin", one.Name, "repository", repository, "err", err)
			}
			failed = append(failed, err)
		}
		all = append(all, got...)
	}
	return all, errors.Join(failed...)
}

// ask returns the answer of one plugin: from the cache, or from a run that equal requests at the same time share.
func (p *Plugins) ask(ctx context.Context, one *plugin, of *v1.Pod, repository string) ([]pullaccess.PluginCredential, error) {
	who, err := p.identify(ctx, one, of)
	if err != nil || who == nil {
		return nil, err
	}
	if got, ok := p.remembered(one, who, repository); ok {
		return got, nil
	}
	question := strings.Join([]string{one.Name, who.key, repository}, "\x00")
	flight := p.flights.DoChan(question, func() (any, error) {
		if !p.begin() {
			return nil, errors.New("the node stops")
		}
		defer p.runs.Done()
		return p.run(p.closing, one, of, who, repository)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-flight:
		got, _ := r.Val.([]pullaccess.PluginCredential)
		return got, r.Err
	}
}

// run waits until the plugin has fewer than maxRuns runs, then runs it and caches its answer.
func (p *Plugins) run(ctx context.Context, one *plugin, of *v1.Pod, who *identity, repository string) ([]pullaccess.PluginCredential, error) {
	late := time.NewTimer(p.cfg.Timeout)
	defer late.Stop()
	select {
	case one.running <- struct{}{}:
		defer func() { <-one.running }()
	case <-late.C:
		return nil, fmt.Errorf("%d runs of it for other images did not end within %s, so this one was not begun", maxRuns, p.cfg.Timeout)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := p.addToken(ctx, one, of, who); err != nil {
		return nil, err
	}
	began := time.Now()
	response, err := one.exec(ctx, p.cfg.Timeout, pluginapi.CredentialProviderRequest{
		Image: repository, ServiceAccountToken: who.token, ServiceAccountAnnotations: who.annotations,
	})
	p.cfg.Meter.CredentialPluginRan(one.Name, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	got, err := credentialsOf(response, who, one)
	if err != nil {
		return nil, err
	}
	if unused := len(response.Auth) - len(got); unused > 0 {
		p.cfg.Log.Warn("a credential provider plugin returned credentials for what is no registry with an optional port and path; they are not used", "plugin", one.Name, "repository", repository, "credentials", unused)
	}
	p.keep(one, who, repository, response, got)
	return got, nil
}

// credentialsOf returns the credentials in an answer, in the order of pullaccess.Pattern.Compare, so that the same answer always
// gives the same list. As with upstream's kubelet, an entry that is for no registry is left out and does not affect the others. No text of an
// entry may get into an error.
func credentialsOf(response *pluginapi.CredentialProviderResponse, who *identity, one *plugin) ([]pullaccess.PluginCredential, error) {
	var got []pullaccess.PluginCredential
	for pattern, auth := range response.Auth {
		if who.token != "" && auth.Password == who.token && one.TokenAttributes.CacheType != kubeletv1.TokenServiceAccountTokenCacheType {
			return nil, errors.New("it returned the service account's token as the password: that needs tokenAttributes.cacheType: Token")
		}
		at, err := pullaccess.ParsePattern(pattern)
		if err != nil {
			continue
		}
		got = append(got, pullaccess.PluginCredential{Pattern: at, Username: auth.Username, Password: auth.Password, Account: who.account})
	}
	if len(response.Auth) > 0 && len(got) == 0 {
		return nil, errors.New("it returned credentials, but none of them for a registry with an optional port and path")
	}
	inorder.Sort(got, func(a, b pullaccess.PluginCredential) int { return a.Pattern.Compare(b.Pattern) })
	return got, nil
}

// identity is the service account, with its token, that a plugin receives in its request.
type identity struct {
	// key distinguishes identities in the cache. It is empty if the plugin gets no token.
	key     string
	account *kubelet.ImagePullServiceAccount
	// token is requested only when it is needed, for the key or for the run.
	token       string
	annotations map[string]string
}

// identify returns the identity for the plugin's request about a pod. It returns nil if the plugin is not for the pod: it needs a service
// account and the pod has none, or it needs an annotation that the account does not have. Workloads opt in to a plugin with such an
// annotation, so that its absence is no error.
func (p *Plugins) identify(ctx context.Context, one *plugin, of *v1.Pod) (*identity, error) {
	attributes := one.TokenAttributes
	if attributes == nil {
		return &identity{}, nil
	}
	if of == nil || of.Spec.ServiceAccountName == "" || pod.IsStatic(of) || p.cfg.Token == nil || p.cfg.Account == nil {
		if *attributes.RequireServiceAccount {
			return nil, nil
		}
		return &identity{}, nil
	}
	account, err := p.cfg.Account(ctx, of.Namespace, of.Spec.ServiceAccountName)
	if err != nil {
		return nil, fmt.Errorf("get service account %s/%s: %w", of.Namespace, of.Spec.ServiceAccountName, err)
	}
	who := &identity{
		account:     &kubelet.ImagePullServiceAccount{UID: string(account.UID), Namespace: account.Namespace, Name: account.Name},
		annotations: map[string]string{},
	}
	for _, key := range attributes.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[key]
		if !ok {
			p.cfg.Log.Debug("a credential provider plugin is not for a service account", "plugin", one.Name, "account", account.Namespace+"/"+account.Name, "annotation", key)
			return nil, nil
		}
		who.annotations[key] = value
	}
	for _, key := range attributes.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[key]; ok {
			who.annotations[key] = value
		}
	}
	// Answers that are cached by account can be found without a token.
	if attributes.CacheType == kubeletv1.TokenServiceAccountTokenCacheType {
		if err := p.addToken(ctx, one, of, who); err != nil {
			return nil, err
		}
	}
	who.key, err = digest(who.account, who.annotations, who.token)
	return who, err
}

// addToken requests the token of an identity that has a service account and no token yet.
func (p *Plugins) addToken(ctx context.Context, one *plugin, of *v1.Pod, who *identity) (err error) {
	if who.account == nil || who.token != "" {
		return nil
	}
	if who.token, err = p.cfg.Token(ctx, of, one.TokenAttributes.ServiceAccountTokenAudience); err != nil {
		return fmt.Errorf("get a token of service account %s/%s: %w", who.account.Namespace, who.account.Name, err)
	}
	return nil
}

// digest returns a hash of the parts of an identity, which is its key in the cache. It does not reveal the token.
func digest(of ...any) (string, error) {
	raw, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("name an identity: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// scope returns the part of the repository's name under which an answer is cached: "caching key to use based on the image".
func scope(kind pluginapi.PluginCacheKeyType, repository string) string {
	switch kind {
	case pluginapi.RegistryPluginCacheKeyType:
		repository, _, _ = strings.Cut(repository, "/")
	case pluginapi.GlobalPluginCacheKeyType:
		repository = ""
	case pluginapi.ImagePluginCacheKeyType:
	}
	return string(kind) + "\x00" + repository
}

func (p *Plugins) remembered(one *plugin, who *identity, repository string) ([]pullaccess.PluginCredential, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range []pluginapi.PluginCacheKeyType{pluginapi.ImagePluginCacheKeyType, pluginapi.RegistryPluginCacheKeyType, pluginapi.GlobalPluginCacheKeyType} {
		if a, ok := p.kept[one.Name+"\x00"+who.key+"\x00"+scope(kind, repository)]; ok && a.fresh(time.Now()) {
			return a.credentials, true
		}
	}
	return nil, false
}

func (p *Plugins) keep(one *plugin, who *identity, repository string, response *pluginapi.CredentialProviderResponse, got []pullaccess.PluginCredential) {
	keepFor := one.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		keepFor = response.CacheDuration.Duration
	}
	if keepFor <= 0 {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.makeRoom(now)
	p.kept[one.Name+"\x00"+who.key+"\x00"+scope(response.CacheKeyType, repository)] = answer{got, now.Add(keepFor)}
}

// makeRoom drops the answers that have expired. If there are still too many, it drops the one that expires first. The caller
// holds p.mu.
func (p *Plugins) makeRoom(now time.Time) {
	oldest := ""
	for key, a := range p.kept {
		if !a.fresh(now) {
			delete(p.kept, key)
		} else if oldest == "" || a.until.Before(p.kept[oldest].until) {
			oldest = key
		}
	}
	if len(p.kept) >= maxKept {
		delete(p.kept, oldest)
	}
}
