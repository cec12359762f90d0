package crispec

import (
	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

// DefaultPullPolicy is the pull policy of an image for which none is set, as the API server fills it in: Always for the
// tag latest, written or meant (neither tag nor digest), also where a digest follows it; IfNotPresent for any other.
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
