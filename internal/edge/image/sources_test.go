package image

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// answers is a fake of the credential provider plugins with fixed credentials.
type answers []pullaccess.PluginCredential

// Credentials returns the credentials for every image.
func (a answers) Credentials(context.Context, *v1.Pod, string) ([]pullaccess.PluginCredential, error) {
	return a, nil
}

// nodeFile writes a docker configuration file of the node.
func nodeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A pull tries the credentials of the pod's secrets, then of the node's files, then of the plugins. A later source does not come first
// because its registry is more specific, and it does not hide the Docker Hub credential of an earlier one.
func TestOrderOfTheSources(t *testing.T) {
	t.Parallel()
	const hub = "https://index.docker.io/v1/"
	for name, c := range map[string]struct {
		image, secret, file string // secret and file: the registry of the credential
		plugin              pullaccess.Pattern
	}{
		"one registry":                {"reg.example.com/team/app:1", "reg.example.com", "reg.example.com", pullaccess.Pattern{Host: "reg.example.com"}},
		"the plugin's is specific":    {"reg.example.com/team/app:1", "reg.example.com", "reg.example.com", pullaccess.Pattern{Host: "reg.example.com", Path: "/team"}},
		"the file's is specific":      {"reg.example.com/team/app:1", "reg.example.com", "reg.example.com/team", pullaccess.Pattern{Host: "reg.example.com"}},
		"Docker Hub":                  {"nginx:1", hub, hub, pullaccess.Pattern{Host: "docker.io"}},
		"Docker Hub of the plugin":    {"nginx:1", "docker.io", "docker.io", pullaccess.Pattern{Host: "index.docker.io"}},
		"Docker Hub as the file says": {"nginx:1", "docker.io", hub, pullaccess.Pattern{Host: "docker.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := nodeFile(t, "config.json", `{"auths":{"`+c.file+`":{"username":"file"}}}`)
			synctest.Test(t, func(t *testing.T) {
				s := &store{present: map[string]string{}, err: func(string, string) error { return status.Error(codes.Unknown, "denied") }}
				m := New(Config{Client: s, NodeCredentials: []string{file}, Plugins: answers{{Pattern: c.plugin, Username: "plugin"}},
					Secrets: func(context.Context, *v1.Pod, string) (*v1.Secret, error) {
						return secret("s", v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths":{"`+c.secret+`":{"username":"secret"}}}`), nil
					}})
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{{Name: "s"}}}}
				if _, err := m.Ensure(t.Context(), Request{Pod: p, Image: c.image}); err == nil {
					t.Error("a registry that refuses each credential gave the image")
				}
				if diff := cmp.Diff([]string{c.image + " secret", c.image + " file", c.image + " plugin"}, s.pulls); diff != "" {
					t.Errorf("pulls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// If a file of the node and a plugin have the same credential, the image belongs to the node: every pod may use it.
func TestACredentialOfTheNodesFilesIsTheNodes(t *testing.T) {
	t.Parallel()
	file := nodeFile(t, "config.json", `{"auths":{"reg.example.com":{"username":"good"}}}`)
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerifyPreloadedImages)
		s.cfg.NodeCredentials = []string{file}
		s.cfg.Plugins = answers{{
			Pattern: pullaccess.Pattern{Host: "reg.example.com", Path: "/team"}, Username: "good", Account: &kubelet.ImagePullServiceAccount{UID: "u", Namespace: "a", Name: "x"},
		}}
		s.restart()
		s.want("pulled", "a", private, v1.PullIfNotPresent)
		s.cfg.Plugins = nil
		s.restart()
		s.want("present", "b", private, v1.PullIfNotPresent)
	})
}

// A wrong entry in a docker configuration file of the node is left out, and the log names its registry and quotes nothing of it. All other
// entries of the file count, whatever the order is in which Go's maps return them.
func TestAWrongEntryInAFileOfTheNode(t *testing.T) {
	t.Parallel()
	const hidden = "hunter2"
	entries := `"a.example.com":{"auth":"` + hidden + `!"},"reg.example.com":{"username":"short"},"reg.example.com/team":{"username":"long"},"z.example.com":{"auth":"` + hidden + `!"}`
	for name, text := range map[string]string{"config.json": `{"auths":{` + entries + `}}`, ".dockercfg": `{` + entries + `}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := nodeFile(t, name, text)
			for range 50 {
				var log bytes.Buffer
				var got []string
				c := credentials{
					images: New(Config{NodeCredentials: []string{file}, Log: slog.New(slog.NewTextHandler(&log, nil))}), req: &Request{Image: "reg.example.com/team/app:1"},
				}
				all, err := c.find(t.Context())
				for _, one := range all {
					got = append(got, one.auth.Username)
				}
				if diff := cmp.Diff([]string{"long", "short"}, got); err != nil || diff != "" {
					t.Fatalf("%v, credentials (-want +got):\n%s", err, diff)
				}
				if said := log.String(); strings.Count(said, file) != 2 || !strings.Contains(said, "a.example.com") || !strings.Contains(said, "z.example.com") || strings.Contains(said, hidden) {
					t.Fatalf("the log must name the file and the two registries, and quote no auth: %s", said)
				}
			}
		})
	}
}

// If an entry of a secret is wrong, nothing of the secret is used, and the error always names the same entry.
func TestAWrongEntryInASecret(t *testing.T) {
	t.Parallel()
	s := secret("s", v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey,
		`{"auths":{"a.example.com":{"username":"a"},"b.example.com":{"auth":"!"},"c.example.com":{"auth":"!"},"d.example.com":{"username":"d"}}}`)
	for range 50 {
		var k keyring
		if err := k.addSecret(s); err == nil || !strings.Contains(err.Error(), `"b.example.com"`) || len(k.keys) != 0 {
			t.Fatalf("%d credentials, %v, want none and an error about b.example.com", len(k.keys), err)
		}
	}
}
