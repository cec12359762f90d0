package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

// WithTag returns the image as the runtime is asked for it: "If you don't specify a tag, Kubernetes assumes you
// mean the tag latest." The name is left as short as it was: what docker.io or another default means is the
// runtime's to say.
func WithTag(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}

// DefaultPolicy is the pull policy of a container that names none: Always for the tag latest (said or meant),
// IfNotPresent for any other tag and for digests.
func DefaultPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if _, ok := named.(reference.Digested); ok {
		return v1.PullIfNotPresent
	}
	if t, ok := reference.TagNameOnly(named).(reference.Tagged); ok && t.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// repository is the name that credentials are matched against: registry and path, without tag and digest.
func repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return strings.TrimPrefix(named.Name(), "/"), nil
}
