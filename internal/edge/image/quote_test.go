package image

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An error about a pull secret names the secret and quotes none of its content, because errors become events and log lines.
func TestCVE20208564PullSecretsAreNotQuoted(t *testing.T) {
	t.Parallel()
	const hidden = "hunter2"
	for _, data := range []string{
		hidden, `{"auths": {"r.example": {"auth": "` + hidden + `"}}}`, `{"auths": "` + hidden + `"}`, `{"auths": {"r.example": "` + hidden + `"}}`,
		`{"auths": {"r.example": {"username": 5, "password": "` + hidden + `"}}}`, `{"` + hidden + `": {`,
	} {
		for _, kind := range []v1.SecretType{v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg} {
			s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pull"}, Type: kind,
				Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(data), v1.DockerConfigKey: []byte(data)}}
			if err := new(keyring).addSecret(s); err != nil && (strings.Contains(err.Error(), hidden) || !strings.Contains(err.Error(), "ns/pull")) {
				t.Errorf("%s of %s: %v", kind, data, err)
			}
		}
	}
	if err := new(keyring).addSecret(&v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(hidden)}}); err == nil {
		t.Error("invalid JSON gave no error")
	}
}
