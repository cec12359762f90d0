package config

import (
	"net/url"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// masked stands for what may be a credential.
const masked = "REDACTED"

// Masked is the configuration as others may see it: the credentials of the static pods' URL (user, password, query and
// headers) are not in it. What it was made from is not changed.
func Masked(kc *kubelet.KubeletConfiguration) *kubelet.KubeletConfiguration {
	out := kc.DeepCopy()
	out.StaticPodURL = maskURL(kc.StaticPodURL)
	for _, values := range out.StaticPodURLHeader {
		for i := range values {
			values[i] = masked
		}
	}
	return out
}

func maskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return masked
	}
	if u.User == nil && u.RawQuery == "" && u.Fragment == "" {
		return raw
	}
	if u.User != nil {
		u.User = url.User(masked)
	}
	if u.RawQuery != "" {
		u.RawQuery = masked
	}
	u.Fragment = ""
	return u.String()
}
