package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// keyring holds registry credentials by the registry and path that they are for.
type keyring struct{ keys []key }

// key is one credential, with the pattern of the repositories that it is for.
type key struct {
	pattern pullaccess.Pattern
	credential
}

// credential is what the agent sends to a registry, and where it comes from.
type credential struct {
	auth *runtimeapi.AuthConfig
	from owner
}

// owner says to whom a credential belongs, in the form in which records of pulls store it: to a secret, or to a service account whose
// token a plugin got. If neither is set, the credential belongs to the node, and every pod may use an image that was pulled with it.
type owner struct {
	secret  *kubelet.ImagePullSecret
	account *kubelet.ImagePullServiceAccount
}

// same reports whether two owners are the same secret or service account, or are both the node.
func (o owner) same(other owner) bool {
	return samePointee(o.secret, other.secret) && samePointee(o.account, other.account)
}

func samePointee[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// same reports whether two credentials are equal for a registry, whoever owns them.
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
	Auth     string `json:"auth"` // base64 of username:password; takes precedence over the two fields
}

// addSecret takes the credentials out of a secret of type kubernetes.io/dockerconfigjson or dockercfg. Secrets of
// other types have none. If an entry of the secret is wrong, addSecret returns an error and adds nothing.
func (k *keyring) addSecret(s *v1.Secret) error {
	var (
		own keyring
		bad []error
	)
	from := &kubelet.ImagePullSecret{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name}
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		bad = own.addConfig(s.Data[v1.DockerConfigJsonKey], from)
	case v1.SecretTypeDockercfg:
		bad = own.addLegacy(s.Data[v1.DockerConfigKey], from)
	}
	if len(bad) > 0 { // the first is enough: a secret may have thousands of bad entries, and the error becomes an event
		return fmt.Errorf("read registry credentials from secret %s/%s: %w", s.Namespace, s.Name, bad[0])
	}
	k.keys = append(k.keys, own.keys...)
	return nil
}

// addConfig adds the credentials of a docker config.json. from is the secret that holds it; nil: it is a file of the node. It returns an
// error for each entry that it leaves out, or one error if it can use nothing.
func (k *keyring) addConfig(raw []byte, from *kubelet.ImagePullSecret) []error {
	if len(raw) == 0 {
		return nil
	}
	var c struct {
		Auths map[string]entry `json:"auths"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return []error{hideContent(err)}
	}
	return k.add(c.Auths, from)
}

// addLegacy adds the credentials of a .dockercfg. Its errors are those of addConfig.
func (k *keyring) addLegacy(raw []byte, from *kubelet.ImagePullSecret) []error {
	if len(raw) == 0 {
		return nil
	}
	var c map[string]entry
	if err := json.Unmarshal(raw, &c); err != nil {
		return []error{hideContent(err)}
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

// add adds the entries in the order of their names, so that the same entries always give the same keyring. It leaves out each entry whose
// auth is wrong, and returns an error that names the entry's registry.
func (k *keyring) add(auths map[string]entry, from *kubelet.ImagePullSecret) (bad []error) {
	for _, pattern := range slices.Sorted(maps.Keys(auths)) {
		e := auths[pattern]
		auth := &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password}
		if e.Auth != "" {
			user, password, err := decodeAuth(e.Auth)
			if err != nil {
				bad = append(bad, fmt.Errorf("registry %q: %w", pattern, err))
				continue
			}
			auth.Username, auth.Password = user, password
		}
		at, err := pullaccess.ParsePattern(pattern)
		if err != nil {
			continue // an unusable entry does not affect the others
		}
		c := credential{auth: auth}
		if from != nil {
			secret := *from
			secret.CredentialHash = pullaccess.Fingerprint(auth.Username, auth.Password, e.Email)
			c.from.secret = &secret
		}
		k.keys = append(k.keys, key{pattern: at, credential: c})
	}
	return bad
}

// addPlugins adds the credentials that credential provider plugins returned.
func (k *keyring) addPlugins(all []pullaccess.PluginCredential) {
	for _, c := range all {
		auth := &runtimeapi.AuthConfig{Username: c.Username, Password: c.Password}
		k.keys = append(k.keys, key{pattern: c.Pattern, credential: credential{auth: auth, from: owner{account: c.Account}}})
	}
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

// lookup returns the credentials for a repository (host/path). Those with a more specific pattern come first. Those with the same pattern
// come in the order in which they were added.
func (k *keyring) lookup(repo string) []credential {
	var found []key
	for _, c := range k.keys {
		if c.pattern.Matches(repo) {
			found = append(found, c)
		}
	}
	if len(found) == 0 && strings.HasPrefix(repo, "docker.io/") {
		for _, c := range k.keys {
			if c.pattern.Host == dockerHub && c.pattern.Path == "" {
				found = append(found, c)
			}
		}
	}
	inorder.Sort(found, func(a, b key) int { return b.pattern.Compare(a.pattern) })
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
