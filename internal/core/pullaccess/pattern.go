package pullaccess

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Pattern says for which repositories a registry credential is meant: a host, whose labels may have wildcards ("*.example.com"), a
// port, and a prefix of the path.
type Pattern struct{ Host, Port, Path string }

// ParsePattern parses a pattern from the key of a docker configuration or from the configuration of a credential provider plugin:
// "registry.example.com:5000/team", with or without a scheme. A /v1/ or /v2/ at the beginning of the path is ignored.
func ParsePattern(text string) (Pattern, error) {
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return Pattern{}, fmt.Errorf("it is not a registry with an optional port and path: %w", err)
	}
	if u.Hostname() == "" {
		return Pattern{}, errors.New("it names no registry")
	}
	p := u.Path
	for _, version := range []string{"/v1/", "/v2/"} {
		if strings.HasPrefix(p, version) {
			p = p[len(version)-1:]
		}
	}
	if p == "/" {
		p = ""
	}
	return Pattern{Host: u.Hostname(), Port: u.Port(), Path: p}, nil
}

// Matches reports whether a repository (host/path) matches the pattern. A wildcard matches within one label of the host only;
// Kubernetes documents: "Each glob can only match a single subdomain segment, so *.io does not match *.k8s.io." Ports must be equal.
func (p Pattern) Matches(repository string) bool {
	registry, rest, _ := strings.Cut(repository, "/")
	u := url.URL{Host: registry}
	host, port := u.Hostname(), u.Port()
	if p.Port != port || !strings.HasPrefix("/"+rest, p.Path) {
		return false
	}
	want, got := strings.Split(p.Host, "."), strings.Split(host, ".")
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

// Compare orders patterns so that the less specific one comes first: by host, then port, then path.
func (p Pattern) Compare(o Pattern) int {
	return strings.Compare(p.Host+":"+p.Port+p.Path, o.Host+":"+o.Port+o.Path)
}

// PluginCredential is a registry credential that a credential provider plugin returned.
type PluginCredential struct {
	Pattern            Pattern
	Username, Password string
	// Account is the service account whose token the plugin received. It is nil if the plugin received no token. The credential then
	// belongs to the node, and every pod may use the images that it pulls.
	Account *kubelet.ImagePullServiceAccount
}

// MatchAccount reports whether the image was pulled before with a token of one of these service accounts.
func MatchAccount(recorded kubelet.ImagePullCredentials, have []kubelet.ImagePullServiceAccount) bool {
	for _, mine := range have {
		for _, old := range recorded.KubernetesServiceAccounts {
			if mine.UID != "" && mine == old {
				return true
			}
		}
	}
	return false
}
