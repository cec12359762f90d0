package image

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// plugins is a fake of the credential provider plugins. Its credential belongs to the node if node is set, and otherwise to the pod's
// service account; a pod without a service account then gets none.
type plugins struct {
	node bool
	err  error
}

// Credentials returns one credential for the repositories of *.example.com.
func (p plugins) Credentials(_ context.Context, of *v1.Pod, _ string) ([]pullaccess.PluginCredential, error) {
	c := pullaccess.PluginCredential{Pattern: pullaccess.Pattern{Host: "*.example.com"}, Username: "good"}
	if !p.node {
		if of.Spec.ServiceAccountName == "" {
			return nil, p.err
		}
		c.Account = &kubelet.ImagePullServiceAccount{UID: "uid", Namespace: of.Namespace, Name: of.Spec.ServiceAccountName}
	}
	return []pullaccess.PluginCredential{c}, p.err
}

// If an image was pulled with a plugin's credential for a service account, only pods with that account may use it. If it was pulled with a
// plugin's credential for the node, every pod may use it.
func TestWhoseIsWhatPluginsPull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerifyPreloadedImages)
		s.cfg.Plugins = plugins{}
		s.restart()
		ensure := func(namespace, account string) string {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1.PodSpec{ServiceAccountName: account}}
			res, err := s.images.Ensure(t.Context(), Request{Pod: p, Image: private, Policy: v1.PullIfNotPresent})
			switch {
			case err != nil:
				return err.Reason
			case res.Pulled:
				return "pulled"
			}
			return "present"
		}
		got := []string{ensure("a", ""), ensure("a", "x"), ensure("a", "x"), ensure("a", ""), ensure("b", "x"), ensure("b", "x")}
		s.cfg.Plugins = plugins{node: true}
		s.restart()
		got = append(got, ensure("c", ""), ensure("c", ""))
		s.cfg.Plugins = nil
		s.restart()
		got = append(got, ensure("d", ""))
		want := []string{ReasonPull, "pulled", "present", ReasonPull, "pulled", "present", "pulled", "present", "present"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// If a plugin fails and the pull fails too, the error names the plugin. A pull that succeeds without the plugin is no failure.
func TestAPluginThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerify)
		s.cfg.Plugins = plugins{err: errors.New(`credential provider plugin "ecr": exit status 1`)}
		s.restart()
		_, err := s.images.Ensure(t.Context(), Request{Pod: &v1.Pod{}, Image: private, Policy: v1.PullAlways})
		if want := `pull access denied for ""; credential provider plugin "ecr": exit status 1`; err == nil || err.Message != want {
			t.Errorf("got %v, want %s", err, want)
		}
		s.want("pulled", "a", public, v1.PullAlways)
	})
}
