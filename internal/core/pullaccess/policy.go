package pullaccess

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Policy says which of the present images every pod may use. The zero value is NeverVerify: every pod may use every image.
type Policy struct {
	Verify    kubelet.ImagePullCredentialsVerificationPolicy
	Allowlist Allowlist
}

// Exempts reports whether every pod may use the image (named as in the spec) without a record. pulled reports whether this node's
// agent pulled the image; it is called only if the result depends on it.
func (p Policy) Exempts(image string, pulled func() bool) bool {
	switch p.Verify {
	case kubelet.NeverVerify, "":
		return true
	case kubelet.NeverVerifyPreloadedImages:
		return !pulled()
	case kubelet.NeverVerifyAllowlistedImages:
		return p.Allowlist.Has(image)
	case kubelet.AlwaysVerify:
	}
	return false
}

// NeedsIntents reports whether the agent has to record its intent before each pull. Under NeverVerifyPreloadedImages, every pod may use an
// image that has no record. Without the intent, that would be true for a private image that was just pulled but is not recorded yet.
func (p Policy) NeedsIntents() bool { return p.Verify == kubelet.NeverVerifyPreloadedImages }

// Allowlist holds the images of preloadedImagesVerificationAllowlist.
type Allowlist struct {
	names    map[string]bool
	prefixes []string // prefixes of image names, each with a slash at its end
}

// ParseAllowlist parses the patterns: an image without tag or digest, or a prefix that ends with "/*".
func ParseAllowlist(patterns []string) (Allowlist, error) {
	list := Allowlist{names: map[string]bool{}}
	for _, p := range patterns {
		prefix, wild := strings.CutSuffix(p, "*")
		switch {
		case p == "":
			return Allowlist{}, errors.New("a pattern is empty: name an image")
		case strings.TrimSpace(p) != p:
			return Allowlist{}, fmt.Errorf("pattern %q: remove the spaces around it", p)
		case strings.Contains(prefix, "*"), wild && !strings.HasSuffix(prefix, "/"):
			return Allowlist{}, fmt.Errorf("pattern %q: an asterisk may only stand at the end, as a path segment of its own (registry.example.com/team/*)", p)
		case prefix == "/":
			return Allowlist{}, fmt.Errorf("pattern %q: name at least a registry before /*", p)
		case wild:
			list.prefixes = append(list.prefixes, prefix)
		default:
			name, err := Repository(p)
			if err != nil {
				return Allowlist{}, fmt.Errorf("pattern %q: %w", p, err)
			}
			if name != p {
				return Allowlist{}, fmt.Errorf("pattern %q: remove the tag and the digest: %s", p, name)
			}
			list.names[name] = true
		}
	}
	return list, nil
}

// Has reports whether the list contains an image, whatever its tag or digest.
func (a Allowlist) Has(image string) bool {
	name, err := Repository(image)
	if err != nil {
		return false
	}
	if a.names[name] {
		return true
	}
	for _, p := range a.prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// Repository returns an image's name without tag and digest, otherwise as in the spec. Credentials are recorded under this name.
func Repository(image string) (string, error) {
	ref, err := reference.Parse(image)
	if err != nil {
		return "", fmt.Errorf("read image name %q: %w", image, err)
	}
	named, ok := ref.(reference.Named)
	if !ok {
		return "", fmt.Errorf("image name %q has only a digest", image)
	}
	return named.Name(), nil
}

// SameImage reports whether a name from a spec may mean the image that the runtime lists under a full name. The runtime decides
// which registry a short name means, so SameImage accepts any registry for a short name.
func SameImage(spec, full string) bool {
	whole, short := forms(spec)
	return spec == full || whole != "" && whole == full || short != "" && strings.HasSuffix(full, "/"+short)
}

// forms returns two forms of the image name in a pod's spec. whole is the full name; it begins with the default registry if spec names no
// registry. short is whole without the default registry and without "library/", or "" if spec names a registry. Both are "" if spec is
// not a valid image name.
func forms(spec string) (whole, short string) {
	named, err := reference.ParseDockerRef(spec)
	if err != nil {
		return "", ""
	}
	whole = named.String()
	if domain := reference.Domain(named) + "/"; !strings.HasPrefix(spec, domain) {
		short = strings.TrimPrefix(strings.TrimPrefix(whole, domain), "library/")
	}
	return whole, short
}

// Names is a set of image names from pod specs. The zero value is empty. It is not safe for concurrent use while names are added.
type Names struct{ whole, short map[string]bool }

// Add adds a name.
func (n *Names) Add(spec string) {
	if spec == "" || n.whole[spec] {
		return
	}
	if n.whole == nil {
		n.whole, n.short = map[string]bool{}, map[string]bool{}
	}
	whole, short := forms(spec)
	n.whole[spec], n.whole[whole], n.short[short] = true, true, true
	delete(n.whole, "")
	delete(n.short, "")
}

// Has reports whether one of the names may mean the image that the runtime lists as full (see SameImage). Its cost does not depend on the
// number of names.
func (n *Names) Has(full string) bool {
	if n.whole[full] {
		return true
	}
	for i := range len(full) {
		if full[i] == '/' && n.short[full[i+1:]] {
			return true
		}
	}
	return false
}
