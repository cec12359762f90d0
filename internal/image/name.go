package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
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

// repository is the name that credentials are matched against: registry and path, without tag and digest.
func repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return strings.TrimPrefix(named.Name(), "/"), nil
}
