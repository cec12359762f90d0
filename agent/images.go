package agent

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/credplugin"
	"github.com/wherry-node/wherry/internal/edge/image"
	"github.com/wherry-node/wherry/internal/edge/pullrecord"
	"github.com/wherry-node/wherry/internal/edge/stats"
)

// pacedImages limits the rate of pulls to registryPullQPS and registryBurst. A pull beyond the limit waits.
type pacedImages struct {
	runtimeapi.ImageServiceClient
	rate *rate.Limiter
}

// PullImage waits until the rate limit allows a pull, and pulls the image.
func (p pacedImages) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, opts ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	if err := p.rate.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait for registryPullQPS: %w", err)
	}
	return p.ImageServiceClient.PullImage(ctx, in, opts...)
}

// pullLimit returns registryPullQPS and registryBurst. If no QPS is set, there is no limit.
func pullLimit(k *kubelet.KubeletConfiguration) (rate.Limit, int) {
	if k.RegistryPullQPS == nil || *k.RegistryPullQPS <= 0 {
		return rate.Inf, 0
	}
	return rate.Limit(*k.RegistryPullQPS), int(max(1, k.RegistryBurst))
}

// buildPullRecords creates the store of pull records, which say with which credentials each image was pulled, if the machine keeps them.
func (a *Agent) buildPullRecords() error {
	if dir := a.pullRecordDir(); dir != "" {
		a.pullRecords = pullrecord.New(dir, a.log)
		a.pulls = pullrecord.NewSettler(a.pullRecords, a.log)
	}
	return nil
}

// buildPlugins loads the credential provider plugins, if the node has any.
func (a *Agent) buildPlugins() error {
	if a.cfg.CredentialProviderConfig == "" && a.cfg.CredentialProviderDir == "" {
		return nil
	}
	gates, _ := config.NewGates(a.cfg.Kubelet.FeatureGates) // checked by New
	cfg := credplugin.Config{
		File: a.cfg.CredentialProviderConfig, Dir: a.cfg.CredentialProviderDir, Meter: a.metrics, Log: a.log,
		Tokens: gates.Enabled("KubeletServiceAccountTokenForCredentialProviders"),
	}
	if a.deps.Client != nil {
		cfg.Account = func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
			return a.clients.api.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		}
		cfg.Token = func(ctx context.Context, p *v1.Pod, audience string) (string, error) {
			token, _, err := a.platform.objects.ServiceAccountToken(ctx, p, audience, nil)
			return token, err
		}
	}
	var err error
	if a.plugins, err = credplugin.Load(cfg); err == nil {
		a.opened.closes = append(a.opened.closes, a.plugins.Close)
	}
	return err
}

// images wires the image pulls, and the checks of which pod may use which image.
func (a *Agent) images(g *platform) *image.Images {
	a.pullRate = rate.NewLimiter(pullLimit(&a.cfg.Kubelet))
	cfg := image.Config{
		Client: pacedImages{a.deps.Images, a.pullRate}, Timeout: a.cfg.Kubelet.RuntimeRequestTimeout.Duration,
		Secrets: g.objects.Secret, MaxParallel: maxPulls(&a.cfg.Kubelet), Meter: a.metrics, Log: a.log,
	}
	cfg.NodeCredentials = a.cfg.DockerConfigs
	if a.plugins != nil {
		cfg.Plugins = a.plugins
	}
	if list := a.opened.downloads; list != nil {
		cfg.Downloads = func(ctx context.Context) ([]image.Download, error) {
			found, err := list(ctx)
			out := make([]image.Download, len(found))
			for i, d := range found {
				out[i] = image.Download(d)
			}
			return out, err
		}
	}
	if a.pulls != nil {
		cfg.Access, cfg.Records = a.pullPolicy, a.pullRecords
		cfg.Listed = func() []*runtimeapi.Image { return a.runtime.Store().Images }
	}
	return image.New(cfg)
}

// pullRecordDir returns the directory of pull records; "": there are none, and every pod may use every image.
func (a *Agent) pullRecordDir() string {
	gates, _ := config.NewGates(a.cfg.Kubelet.FeatureGates) // checked when the configuration was read
	switch {
	case !gates.Enabled("KubeletEnsureSecretPulledImages"):
		return ""
	case a.deps.Machine.real:
		return a.cfg.RootDir
	}
	return a.deps.Machine.shape.PullRecords
}

// pullAccess converts the configuration for package pullaccess.
func pullAccess(k *kubelet.KubeletConfiguration) (pullaccess.Policy, error) {
	p := pullaccess.Policy{Verify: k.ImagePullCredentialsVerificationPolicy}
	if p.Verify == "" {
		p.Verify = kubelet.NeverVerifyPreloadedImages
	}
	var err error
	if p.Allowlist, err = pullaccess.ParseAllowlist(k.PreloadedImagesVerificationAllowlist); err != nil {
		return p, fmt.Errorf("preloadedImagesVerificationAllowlist: %w", err)
	}
	return p, nil
}

// imagePulls returns the pulls that have not ended, for the answers about pods.
func (a *Agent) imagePulls() (out []why.Pull) {
	for _, p := range a.platform.images.Pulls() {
		out = append(out, why.Pull(p))
	}
	return out
}

// servePulls answers with the image pulls that have not ended, the oldest first: a JSON list of why.Pull.
func (a *Agent) servePulls(w http.ResponseWriter, _ *http.Request) {
	pulls := a.imagePulls()
	if pulls == nil {
		pulls = []why.Pull{}
	}
	writeObject(w, pulls)
}

// countImagePulls counts the pulls that have not ended, for the metrics.
func (a *Agent) countImagePulls() (out stats.ImagePulls) {
	if !a.built.Load() {
		return out
	}
	for i, p := range a.platform.images.Pulls() {
		switch {
		case p.Queued:
			out.Waiting++
		case p.Stalled != "":
			out.Stalled++
		default:
			out.Running++
		}
		if i == 0 {
			out.Oldest = time.Since(p.Began)
		}
	}
	return out
}
