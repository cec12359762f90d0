package crispec

import (
	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

// DefaultPullPolicy returns the pull policy that the API server sets for an image without one: Always for the tag
// latest, also if it is only implied (no tag, no digest) or a digest follows it; IfNotPresent for any other.
func DefaultPullPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
