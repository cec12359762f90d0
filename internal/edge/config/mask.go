package config

import (
	"net/url"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// masked replaces a value that may be a credential.
const masked = "REDACTED"

// Masked returns a copy of the configuration without the credentials in staticPodURL (user, password and query) and in
// staticPodURLHeader. It is safe to show to others.
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
	if err != nil || u.Opaque != "" { // url.Parse reads user:password@host as the scheme "user" with opaque data
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
