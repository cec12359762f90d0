package credplugin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// site is a node for tests, whose plugins are shell scripts. Each run of a plugin adds a line to the file "runs".
type site struct {
	hash string // the hash of the configuration
	*testing.T
	dir string
	cfg Config

	mu     sync.Mutex
	meter  []string
	tokens int
}

// CredentialPluginsRead stores the hash.
func (s *site) CredentialPluginsRead(hash string) { s.hash = hash }

// CredentialPluginRan records a run.
func (s *site) CredentialPluginRan(name string, _ time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter = append(s.meter, fmt.Sprint(name, " ", err == nil))
}

// counted returns the runs that CredentialPluginRan has recorded. Only runs that have ended are recorded.
func (s *site) counted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.meter)
}

// newSite returns a site with one plugin named p, which is the given script. fields are added to the plugin's usual
// configuration.
func newSite(t *testing.T, script, fields string) *site {
	s := &site{T: t, dir: t.TempDir()}
	s.plugin("p", script)
	s.write("config.yaml", config("p", fields))
	s.cfg = Config{
		File: filepath.Join(s.dir, "config.yaml"), Dir: s.dir, Tokens: true, Meter: s, Log: slog.New(slog.DiscardHandler), Timeout: 30 * time.Second,
		Token: func(_ context.Context, p *v1.Pod, audience string) (string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tokens++
			return "token-of-" + p.Name + "-for-" + audience, nil
		},
		Account: func(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
			if name == "gone" {
				return nil, errors.New("not found")
			}
			return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{"role": "reader"},
			}}, nil
		},
	}
	return s
}

func config(name, fields string) string {
	return "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: " + name +
		"\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: [\"*.example.com\"]\n  defaultCacheDuration: 1h\n" + fields
}

func (s *site) write(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s *site) plugin(name, script string) {
	s.Helper()
	// The file is written under another name first, because the kernel does not run a program that is open for writing.
	s.write(name+".new", "#!/bin/sh\necho run >> "+s.dir+"/runs\n"+script+"\n")
	if err := errors.Join(os.Chmod(filepath.Join(s.dir, name+".new"), 0o755), os.Rename(filepath.Join(s.dir, name+".new"), filepath.Join(s.dir, name))); err != nil {
		s.Fatal(err)
	}
}

func (s *site) load() *Plugins {
	s.Helper()
	p, err := Load(s.cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.Close)
	return p
}

// runs returns how many runs of plugins have begun: each adds a line to the file "runs".
func (s *site) runs() int {
	raw, err := os.ReadFile(filepath.Join(s.dir, "runs"))
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	return strings.Count(string(raw), "\n")
}

// answering returns a script that prints a CredentialProviderResponse with these fields.
func answering(fields string) string {
	return `cat > /dev/null; echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",` + fields + `}'`
}

const auth = `"auth":{"*.example.com":{"username":"u","password":"secret"}}`

func podOf(name, account string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{ServiceAccountName: account}}
}

// A plugin runs only for images that match its configuration. Its answer is cached under the key that the answer selects.
func TestAnswersAreKeptByTheirKey(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]int{"Image": 3, "Registry": 2, "Global": 1} {
		s := newSite(t, answering(`"cacheKeyType":"`+kind+`",`+auth), "")
		p := s.load()
		for _, image := range []string{"a.example.com/x", "a.example.com/x", "a.example.com/y", "b.example.com/x", "other.org/x", "example.com/x"} {
			got, err := p.Credentials(t.Context(), nil, image)
			if err != nil {
				t.Fatal(err)
			}
			want := []pullaccess.PluginCredential{{Pattern: pullaccess.Pattern{Host: "*.example.com"}, Username: "u", Password: "secret"}}
			if strings.Count(strings.SplitN(image, "/", 2)[0], ".") == 1 {
				want = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", kind, image, diff)
			}
		}
		if s.runs() != want || len(s.counted()) != want {
			t.Errorf("cacheKeyType %s: %d runs (%d counted), want %d", kind, s.runs(), len(s.counted()), want)
		}
	}
}

// A cacheDuration in a plugin's answer replaces the configured default. If it is zero, the answer is not cached.
func TestAnswersAreKeptForTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, answering(`"cacheKeyType":"Global","cacheDuration":"0s",`+auth), "")
		p := s.load()
		ask := func(runs int) {
			t.Helper()
			if _, err := p.Credentials(t.Context(), nil, "a.example.com/x"); err != nil {
				t.Fatal(err)
			}
			if s.runs() != runs {
				t.Errorf("%d runs, want %d", s.runs(), runs)
			}
		}
		ask(1)
		ask(2)
		s.plugin("p", answering(`"cacheKeyType":"Global","cacheDuration":"10m",`+auth))
		ask(3)
		time.Sleep(10*time.Minute - time.Second)
		ask(3)
		time.Sleep(time.Second)
		ask(4)
	})
}

// Many different requests at the same time run at most maxRuns plugins at once.
func TestFewPluginsRunAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, "echo + >> $LOG; sleep 0.2; echo - >> $LOG\n"+answering(`"cacheKeyType":"Image",`+auth), "")
	s.write("config.yaml", config("p", "  env: [{name: LOG, value: "+s.dir+"/log}]\n"))
	p := s.load()
	var wg sync.WaitGroup
	for i := range 4 * maxRuns {
		wg.Go(func() {
			if _, err := p.Credentials(t.Context(), nil, fmt.Sprint("a.example.com/", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	now, most := 0, 0
	for _, c := range string(log) {
		switch c {
		case '+':
			now++
		case '-':
			now--
		}
		most = max(most, now)
	}
	if s.runs() != 4*maxRuns || most > maxRuns {
		t.Errorf("%d runs, %d of them at once, want %d and at most %d", s.runs(), most, 4*maxRuns, maxRuns)
	}
}

// A plugin that hangs delays only the images that it is for: those of another plugin get their credentials meanwhile.
func TestAPluginThatHangsDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, "exec sleep 300", "- {name: good, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [other.org], defaultCacheDuration: 0s}\n")
	s.plugin("good", answering(`"cacheKeyType":"Image",`+auth))
	p := s.load()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range 2 * maxRuns {
		wg.Go(func() { _, _ = p.Credentials(ctx, nil, fmt.Sprint("a.example.com/", i)) })
	}
	for s.runs() < maxRuns {
		runtime.Gosched()
	}
	if got, err := p.Credentials(t.Context(), nil, "other.org/x"); err != nil || len(got) != 1 {
		t.Errorf("the other plugin: %d credentials, %v", len(got), err)
	}
	if diff := cmp.Diff([]string{"good true"}, s.counted()); diff != "" {
		t.Errorf("runs that have ended (-want +got):\n%s", diff)
	}
}

// A run that cannot begin, because other runs of the plugin do not end, is given up after the time of a run.
func TestARunWaitsForItsTurnOnlySoLong(t *testing.T) {
	t.Parallel()
	s := newSite(t, answering(`"cacheKeyType":"Image",`+auth), "")
	s.cfg.Timeout = 10 * time.Millisecond
	p := s.load()
	for range maxRuns {
		p.plugins[0].running <- struct{}{}
	}
	_, err := p.Credentials(t.Context(), nil, "a.example.com/x")
	if err == nil || !strings.Contains(err.Error(), "was not begun") || !strings.Contains(err.Error(), `plugin "p"`) || s.runs() != 0 {
		t.Errorf("error %v, %d runs", err, s.runs())
	}
}

// Close kills the plugins that run, waits for their end, and prevents further runs. A run does not end when its caller goes away.
func TestClose(t *testing.T) {
	t.Parallel()
	s := newSite(t, "sleep 300", "")
	p := s.load()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.Credentials(ctx, nil, "a.example.com/x")
		ended <- err
	}()
	for s.runs() == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the caller's context ended", err)
	}
	if len(s.counted()) != 0 {
		t.Error("the run ended with its caller")
	}
	p.Close()
	if diff := cmp.Diff([]string{"p false"}, s.counted()); diff != "" {
		t.Errorf("runs after Close (-want +got):\n%s", diff)
	}
	if _, err := p.Credentials(t.Context(), nil, "a.example.com/x"); err == nil || s.runs() != 1 {
		t.Errorf("after Close: %v, %d runs", err, s.runs())
	}
}

// Equal requests at the same time start one process.
func TestEqualQuestionsShareARun(t *testing.T) {
	t.Parallel()
	s := newSite(t, "sleep 1\n"+answering(`"cacheKeyType":"Image","cacheDuration":"0s",`+auth), "")
	p := s.load()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := p.Credentials(t.Context(), nil, "a.example.com/x"); err != nil || len(got) != 1 {
				t.Errorf("got %d credentials, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if n := s.runs(); n > 3 { // one run is usual; there are more if the machine delays this test's goroutines for a second
		t.Errorf("%d runs for 20 equal questions", n)
	}
}

// If a plugin misbehaves, the error names the plugin and quotes nothing of its output. Credentials of other plugins are still
// returned.
func TestPluginsThatMisbehave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"fails":         {"echo hunter2 >&2; exit 3", "exit status 3"},
		"hangs":         {"sleep 300 & sleep 300", "did not answer within 2s"},
		"no end":        {"yes hunter2", "more than 1048576 bytes"},
		"not JSON":      {"echo hunter2", "is not the JSON"},
		"wrong kind":    {`echo '{"kind":"hunter2","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}'`, "is not a CredentialProviderResponse"},
		"wrong version": {`echo '{"kind":"CredentialProviderResponse","apiVersion":"hunter2/v1"}'`, "configured to speak"},
		"no cache key":  {answering(`"cacheKeyType":"hunter2"`), "none of Image, Registry and Global"},
		"bad place":     {answering(`"cacheKeyType":"Image","auth":{"hunter2%zz":{"password":"hunter2"}}`), "none of them for a registry"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, c.script, "- {name: good, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [a.example.com], defaultCacheDuration: 0s}\n")
			s.plugin("good", answering(`"cacheKeyType":"Image",`+auth))
			s.cfg.Timeout = 2 * time.Second
			if name != "hangs" {
				s.cfg.Timeout = time.Minute
			}
			got, err := s.load().Credentials(t.Context(), nil, "a.example.com/x")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `plugin "p"`) {
				t.Errorf("got error %v, want one of plugin p with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes the plugin: %v", err)
			}
			if len(got) != 1 {
				t.Errorf("%d credentials of the other plugin, want 1", len(got))
			}
		})
	}
}

// Credentials for what is no registry do not affect the other ones of an answer.
func TestCredentialsForNoRegistryAreLeftOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, answering(`"cacheKeyType":"Image","auth":{"%zz":{"password":"1"},"https://":{"password":"2"},"a.example.com/x":{"username":"u","password":"3"}}`), "")
	got, err := s.load().Credentials(t.Context(), nil, "a.example.com/x")
	if err != nil || len(got) != 1 || got[0].Password != "3" {
		t.Errorf("%+v, %v, want the one for a.example.com", got, err)
	}
}

// A plugin gets the request of the documented API on standard input, and the configured arguments and environment.
func TestWhatAPluginGets(t *testing.T) {
	t.Parallel()
	s := newSite(t, `cat > `+"$OUT"+`; echo "$0 $*" > $OUT.args; `+strings.TrimPrefix(answering(`"cacheKeyType":"Image",`+auth), "cat > /dev/null; "),
		"  args: [get, --quiet]\n")
	s.write("config.yaml", config("p", "  args: [get, --quiet]\n  env: [{name: OUT, value: "+s.dir+"/request}]\n"))
	if _, err := s.load().Credentials(t.Context(), nil, "a.example.com/x"); err != nil {
		t.Fatal(err)
	}
	request, err := os.ReadFile(filepath.Join(s.dir, "request"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"a.example.com/x"}`; strings.TrimSpace(string(request)) != want {
		t.Errorf("got %s\nwant %s", request, want)
	}
	args, err := os.ReadFile(filepath.Join(s.dir, "request.args"))
	if want := s.dir + "/p get --quiet\n"; err != nil || string(args) != want {
		t.Errorf("got %q, want %q, %v", args, want, err)
	}
}

const tokenFields = "  tokenAttributes: {serviceAccountTokenAudience: registry, requireServiceAccount: %t, cacheType: %s, requiredServiceAccountAnnotationKeys: [%s]}\n"

// A plugin with tokenAttributes gets a token of the pod's service account; its answer is cached for that account only.
func TestTokensOfServiceAccounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, answering(`"cacheKeyType":"Global",`+auth), fmt.Sprintf(tokenFields, true, "ServiceAccount", "role"))
	p := s.load()
	account := func(of *v1.Pod) string {
		t.Helper()
		got, err := p.Credentials(t.Context(), of, "a.example.com/x")
		if err != nil {
			return err.Error()
		}
		if len(got) == 0 {
			return "nothing"
		}
		return got[0].Account.Namespace + "/" + got[0].Account.Name + "/" + got[0].Account.UID
	}
	static := podOf("st", "a")
	static.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile.String()}
	got := []string{account(podOf("p1", "a")), account(podOf("p2", "a")), account(podOf("p3", "b")), account(podOf("p4", "")), account(nil), account(static), account(podOf("p5", "gone"))}
	want := []string{"ns/a/uid-a", "ns/a/uid-a", "ns/b/uid-b", "nothing", "nothing", "nothing", `credential provider plugin "p": get service account ns/gone: not found`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s.runs() != 2 || s.tokens != 2 {
		t.Errorf("%d runs with %d tokens, want one for each account", s.runs(), s.tokens)
	}

	s.write("config.yaml", config("p", fmt.Sprintf(tokenFields, true, "Token", "role")))
	p = s.load()
	account(podOf("p1", "a"))
	account(podOf("p2", "a")) // this pod has another token, so the cached answer is not used
	if s.runs() != 4 {
		t.Errorf("%d runs, want one more for each token", s.runs())
	}
}

// Only a plugin whose answers are cached by token may return the token itself.
func TestATokenIsNoPasswordForOthers(t *testing.T) {
	t.Parallel()
	script := answering(`"cacheKeyType":"Global","auth":{"*.example.com":{"password":"token-of-p1-for-registry"}}`)
	for kind, want := range map[string]bool{"ServiceAccount": false, "Token": true} {
		s := newSite(t, script, fmt.Sprintf(tokenFields, true, kind, ""))
		if _, err := s.load().Credentials(t.Context(), podOf("p1", "a"), "a.example.com/x"); (err == nil) != want {
			t.Errorf("cacheType %s: %v", kind, err)
		}
	}
}

func TestTokenAttributesNeedTheGate(t *testing.T) {
	t.Parallel()
	s := newSite(t, answering(auth), fmt.Sprintf(tokenFields, true, "Token", ""))
	s.cfg.Tokens = false
	if _, err := Load(s.cfg); err == nil || !strings.Contains(err.Error(), "KubeletServiceAccountTokenForCredentialProviders") {
		t.Errorf("got %v, want an error that names KubeletServiceAccountTokenForCredentialProviders", err)
	}
}

// A wrong configuration makes Load fail. The error names the file and field of each problem.
func TestConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              "kind and apiVersion",
		"providers: []": "kind and apiVersion",
		"apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n": "lists no provider",
		config("../p", ""):                               `config.yaml:4: providers[0].name: "../p"`,
		config("absent", ""):                             "is not a program",
		config("p", "  matchImage: [x]\n"):               "config.yaml:8: providers[0].matchImage: unknown field",
		config("p", "- {name: p, apiVersion: x/v1}\n"):   "providers[1].matchImages: it is required",
		config("p", "- {name: p, apiVersion: x/v1}\n#2"): "providers[1].defaultCacheDuration: it is required",
		config("p", "- {name: p, matchImages: [x.y], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n"): `two providers have the name "p"`,
		config("p", "  env: [{name: \"A=B\"}]\n"):                                                                       "config.yaml:8: providers[0].env[0]: ",
		config("p", "  args: [1]\n"):                                                                                    "config.yaml:8: providers[0].args[0]: expected a string, found the number 1",
		config("p", "  tokenAttributes: {requireServiceAccount: true}\n"):                                               "serviceAccountTokenAudience: it is required",
		config("p", fmt.Sprintf(tokenFields, false, "Token", "role")):                                                   "needs requireServiceAccount: true",
		config("p", fmt.Sprintf(tokenFields, true, "Pod", "")):                                                          `"Pod" must be Token or ServiceAccount`,
		config("p", fmt.Sprintf(tokenFields, true, "Token", "a, a")):                                                    `"a" is named twice`,
		strings.Replace(config("p", fmt.Sprintf(tokenFields, true, "Token", "")), "io/v1\nkind", "io/v1beta1\nkind", 1): "needs a configuration of apiVersion",
		"{": "yaml",
	} {
		s := newSite(t, answering(auth), "")
		s.write("config.yaml", text)
		if _, err := Load(s.cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q", text, err, want)
		}
	}
	if _, err := Load(Config{File: "/x"}); err == nil {
		t.Error("a file without a directory of plugins was taken")
	}
}

// A directory of files is read in the order of their names.
func TestADirectoryOfConfigurations(t *testing.T) {
	t.Parallel()
	s := newSite(t, answering(`"cacheKeyType":"Global",`+auth), "")
	s.plugin("q", answering(`"cacheKeyType":"Global","auth":{"*.example.com":{"username":"q"}}`))
	if err := os.Mkdir(filepath.Join(s.dir, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.write("conf/10-q.json", `{"apiVersion":"kubelet.config.k8s.io/v1alpha1","kind":"CredentialProviderConfig","providers":[{"name":"q",`+
		`"apiVersion":"credentialprovider.kubelet.k8s.io/v1","matchImages":["*.example.com"],"defaultCacheDuration":"1m"}]}`)
	s.write("conf/20-p.yml", config("p", ""))
	s.write("conf/notes.txt", "not read")
	s.cfg.File = filepath.Join(s.dir, "conf")
	got, err := s.load().Credentials(t.Context(), nil, "a.example.com/x")
	if err != nil || len(got) != 2 || got[0].Username != "q" || got[1].Username != "u" {
		t.Errorf("got %v, %v", got, err)
	}
	s.cfg.File = t.TempDir()
	if _, err := Load(s.cfg); err == nil || !strings.Contains(err.Error(), "has no .json") {
		t.Errorf("an empty directory: %v", err)
	}
}

// The number of cached answers is bounded.
func TestKeptAnswersAreBounded(t *testing.T) {
	t.Parallel()
	p := &Plugins{kept: map[string]answer{}}
	now := time.Now()
	for i := range 3 * maxKept {
		p.makeRoom(now)
		p.kept[fmt.Sprint(i)] = answer{until: now.Add(time.Duration(i+1) * time.Hour)}
	}
	if _, ok := p.kept[fmt.Sprint(3*maxKept-1)]; !ok || len(p.kept) != maxKept {
		t.Errorf("%d are kept, the newest among them: %t", len(p.kept), ok)
	}
	p.makeRoom(now.Add(1e6 * time.Hour))
	if len(p.kept) != 0 {
		t.Errorf("%d are kept after their time", len(p.kept))
	}
}

// FuzzDecode checks that decode does not panic, whatever bytes a plugin writes.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image",` + auth + `}`))
	one := &plugin{}
	one.APIVersion = pluginVersions[0]
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := one.decode(raw); err == nil {
			_, _ = credentialsOf(r, &identity{}, one)
		}
	})
}

// The hash of a configuration depends on the lengths and contents of its files, as in upstream's kubelet.
func TestHashOfTheConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	const text = "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders: []\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, got, _ := readConfig(file, true) // the error, that the file lists no provider, is not tested here
	sum := sha256.Sum256([]byte("\x00\x00\x00\x00\x00\x00\x00" + string(rune(len(text))) + text))
	if want := fmt.Sprintf("sha256:%x", sum); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
