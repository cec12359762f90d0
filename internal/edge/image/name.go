package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// WithTag adds the tag latest to an image name that has neither tag nor digest: "If you don't specify a tag, Kubernetes assumes
// you mean the tag latest." It adds no registry, because the runtime chooses the default registry.
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

// repository returns the registry and path of an image, without tag and digest, to match credentials against.
func repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return strings.TrimPrefix(named.Name(), "/"), nil
}
