package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// keyring holds registry credentials by the registry and path that they are for.
type keyring struct{ keys []key }

// key is one credential: host may have wildcards per label ("*.example.com"), path is a prefix.
type key struct {
	host, port, path string
	credential
}

// credential is what the agent sends to a registry, and where it comes from.
type credential struct {
	auth *runtimeapi.AuthConfig
	// from is the pod's secret, in the form of the record; nil: a credential of the node, which all pods may use.
	from *kubelet.ImagePullSecret
}

// same reports whether a registry cannot tell two credentials apart.
func (c credential) same(o credential) bool {
	return c.auth.GetUsername() == o.auth.GetUsername() && c.auth.GetPassword() == o.auth.GetPassword()
}

// dockerHub is the registry of images whose name has no host.
const dockerHub = "index.docker.io"

// entry is the credential for one registry in a docker configuration.
type entry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Email    string `json:"email"`
	Auth     string `json:"auth"` // base64 of username:password; takes precedence over both
}

// addSecret takes the credentials out of a secret of type kubernetes.io/dockerconfigjson or dockercfg. Secrets of
// other types have none.
func (k *keyring) addSecret(s *v1.Secret) error {
	var err error
	from := &kubelet.ImagePullSecret{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name}
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		err = k.addConfig(s.Data[v1.DockerConfigJsonKey], from)
	case v1.SecretTypeDockercfg:
		err = k.addLegacy(s.Data[v1.DockerConfigKey], from)
	}
	if err != nil {
		return fmt.Errorf("read registry credentials from secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// addConfig adds the credentials of a docker config.json. from is the secret that holds it; nil: it is a file of the node.
func (k *keyring) addConfig(raw []byte, from *kubelet.ImagePullSecret) error {
	if len(raw) == 0 {
		return nil
	}
	var c struct {
		Auths map[string]entry `json:"auths"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return hideContent(err)
	}
	return k.add(c.Auths, from)
}

// addLegacy adds the credentials of a .dockercfg.
func (k *keyring) addLegacy(raw []byte, from *kubelet.ImagePullSecret) error {
	if len(raw) == 0 {
		return nil
	}
	var c map[string]entry
	if err := json.Unmarshal(raw, &c); err != nil {
		return hideContent(err)
	}
	return k.add(c, from)
}

// hideContent removes the content of a secret from an error.
func hideContent(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("it is not JSON (at byte %d)", syntax.Offset)
	}
	return errors.New("it is not a docker configuration: auths must map registries to objects with auth, or username and password")
}

func (k *keyring) add(auths map[string]entry, from *kubelet.ImagePullSecret) error {
	for place, e := range auths {
		auth := &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password}
		if e.Auth != "" {
			user, password, err := decodeAuth(e.Auth)
			if err != nil {
				return fmt.Errorf("registry %q: %w", place, err)
			}
			auth.Username, auth.Password = user, password
		}
		if !strings.HasPrefix(place, "https://") && !strings.HasPrefix(place, "http://") {
			place = "https://" + place
		}
		u, err := url.Parse(place)
		if err != nil {
			continue // an unusable entry does not affect the others
		}
		p := u.Path
		for _, version := range []string{"/v1/", "/v2/"} { // these paths mean the whole host
			if strings.HasPrefix(p, version) {
				p = p[len(version)-1:]
			}
		}
		if p == "/" {
			p = ""
		}
		c := credential{auth: auth}
		if from != nil {
			secret := *from
			secret.CredentialHash = pullaccess.Fingerprint(auth.Username, auth.Password, e.Email)
			c.from = &secret
		}
		k.keys = append(k.keys, key{host: u.Hostname(), port: u.Port(), path: p, credential: c})
	}
	return nil
}

// decodeAuth reads base64(username:password), padded or not.
func decodeAuth(s string) (user, password string, err error) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(s), "="))
	if err != nil {
		return "", "", errors.New("field auth is not base64")
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok {
		return "", "", errors.New("field auth must be base64 of username:password")
	}
	return user, strings.TrimRight(password, "\x00"), nil
}

// lookup returns the credentials for a repository (host/path), the more specific place first, in the order they
// were added within one place.
func (k *keyring) lookup(repo string) []credential {
	host, p, _ := strings.Cut(repo, "/")
	port := ""
	if h, pt, err := net.SplitHostPort(host); err == nil {
		host, port = h, pt
	}
	var found []key
	for _, c := range k.keys {
		if c.matches(host, port, "/"+p) {
			found = append(found, c)
		}
	}
	if len(found) == 0 && host == "docker.io" {
		for _, c := range k.keys {
			if c.host == dockerHub && c.path == "" {
				found = append(found, c)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b key) int {
		return strings.Compare(b.host+":"+b.port+b.path, a.host+":"+a.port+a.path)
	})
	var out []credential
	for _, c := range found {
		out = append(out, c.credential)
	}
	return out
}

// distinct returns the credentials without duplicates.
func distinct(all []credential) []credential {
	var out []credential
	for _, c := range all {
		if !slices.ContainsFunc(out, c.same) {
			out = append(out, c)
		}
	}
	return out
}

// matches reports whether a key applies to a repository. Each label of the host is a pattern of its own ("*.kubernetes.io will
// not match kubernetes.io"), ports must be equal, and the path is a prefix.
func (c key) matches(host, port, repoPath string) bool {
	if c.port != port || !strings.HasPrefix(repoPath, c.path) {
		return false
	}
	want, got := strings.Split(c.host, "."), strings.Split(host, ".")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], got[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
