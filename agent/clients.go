package agent

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/event"
	"github.com/wherry-node/wherry/internal/edge/mirror"
	"github.com/wherry-node/wherry/internal/edge/objects"
	"github.com/wherry-node/wherry/internal/edge/status"
)

// clients are the clients of the API server. All are nil without an API server.
type clients struct {
	api   *kubeclient.Client
	beats *kubeclient.Client // heartbeats and events
	// statuses writes the statuses of pods. Its requests have a limit of their own, which is as high as that of api: a pod can cause any number
	// of requests for objects and tokens, and a status gives up if its turn comes too late.
	statuses *kubeclient.Client
	// reviews sends TokenReviews and SubjectAccessReviews for requests to the agent's HTTPS API. Unknown clients can cause any
	// number of reviews, so this client is used for nothing else. It is nil if the agent serves no HTTPS API.
	reviews *kubeclient.Client
}

// buildClients makes the clients from Deps, if there is an API server.
func (a *Agent) buildClients() error {
	if a.deps.Client == nil {
		return nil
	}
	var err error
	a.clients, err = newClients(&a.deps, &a.cfg.Server, a.calls)
	return err
}

func newClients(deps *Deps, limits *ServerLimits, calls kubeclient.Meter) (c clients, err error) {
	if c.api, err = kubeclient.NewMetered(deps.Client, calls); err != nil {
		return c, fmt.Errorf("agent: Deps.Client: %w", err)
	}
	c.statuses = c.api
	if deps.Client.RateLimiter == nil && deps.Client.QPS >= 0 { // NewMetered makes another limiter
		if c.statuses, err = kubeclient.NewMetered(deps.Client, calls); err != nil {
			return c, fmt.Errorf("agent: Deps.Client: %w", err)
		}
	}
	if deps.API != nil {
		own := rest.CopyConfig(deps.Client)
		own.RateLimiter, own.QPS, own.Burst = nil, limits.ReviewQPS, limits.ReviewBurst
		if c.reviews, err = kubeclient.NewMetered(own, calls); err != nil {
			return c, fmt.Errorf("agent: Deps.Client: %w", err)
		}
	}
	c.beats = c.api
	if deps.Heartbeats != nil {
		if c.beats, err = kubeclient.NewMetered(deps.Heartbeats, calls); err != nil {
			return c, fmt.Errorf("agent: Deps.Heartbeats: %w", err)
		}
	}
	return c, nil
}

// Each method below returns the interface through which one part of the agent calls the API server. Each interface has only the methods
// that its part needs.

func (c *clients) statusPods(namespace string) status.Pods { return c.statuses.Pods(namespace) }

func (c *clients) mirrorPods(namespace string) mirror.API { return c.api.Pods(namespace) }

func (c *clients) events(namespace string) event.API { return c.beats.Events(namespace).Unread() }

func (c *clients) objects(gates config.Gates) objects.API {
	api := objects.API{
		ConfigMaps: func(namespace string) objects.Reader[*v1.ConfigMap, *v1.ConfigMapList] {
			return c.api.ConfigMaps(namespace)
		},
		Secrets: func(namespace string) objects.Reader[*v1.Secret, *v1.SecretList] {
			return c.api.Secrets(namespace)
		},
		ServiceAccounts: func(namespace string) objects.ServiceAccounts { return c.api.ServiceAccounts(namespace) },
		Services:        c.api.Services(metav1.NamespaceAll),
	}
	if gates.Enabled("ClusterTrustBundleProjection") {
		api.ClusterTrustBundles = c.api.ClusterTrustBundles()
	}
	if gates.Enabled("PodCertificateRequest") {
		api.CertificateRequests = func(namespace string) objects.CertificateRequests { return c.api.PodCertificateRequests(namespace) }
	}
	return api
}
