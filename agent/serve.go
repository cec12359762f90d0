package agent

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os/exec"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// buildServer wires the node's HTTPS API, if there is a listener.
func (a *Agent) buildServer() error {
	if a.deps.API == nil && a.deps.Health == nil && a.deps.ReadOnly == nil {
		return nil
	}
	k := &a.cfg.Kubelet
	view := a.view()
	gates, _ := config.NewGates(k.FeatureGates) // checked when the configuration was read
	extra := a.explanations(view)
	if a.cfg.PushAPI {
		maps.Copy(extra, a.push.Routes(a.finished))
	}
	authn, authz, err := a.access()
	if err != nil {
		return err
	}
	a.server, err = server.New(server.Config{
		NodeName: a.cfg.NodeName, Authenticator: authn, Authorizer: authz, Pods: view, MirrorUID: a.mirrorUID, Runtime: a.streams(),
		Enable: server.Enable{
			Flagz: gates.Enabled("ComponentFlagz"), Statusz: gates.Enabled("ComponentStatusz"),
			Debugging: *k.EnableDebuggingHandlers, SystemLog: *k.EnableSystemLogHandler, SystemLogQuery: k.EnableSystemLogQuery != nil && *k.EnableSystemLogQuery, Profiling: *k.EnableProfilingHandler, Flags: *k.EnableDebugFlagsHandler,
		},
		Sources: server.Sources{
			SetVerbosity: a.deps.SetVerbosity,
			Stats:        a.stats.Summary(), Resource: a.stats.Resource(), CAdvisor: a.stats.CAdvisor(), Probes: a.probed.Handler(), Metrics: a.deps.Metrics, RunningPods: view.running, Configz: func() any { return config.Masked(a.kubelet()) },
			Flags: func() map[string]string { return a.cfg.Flags }, SystemLogDir: "/var/log", Journalctl: a.journalctl(), Checkpoint: a.checkpointer(),
			Version: a.cfg.KubeletVersion, Started: time.Now(), Extra: extra, Console: a.consolePage(), ConsoleRefused: a.consoleRefused(),
		},
		StreamingByGet: a.cfg.Server.StreamingByGet, StreamIdle: k.StreamingConnectionIdleTimeout.Duration, UnknownConnections: a.cfg.Server.UnknownConnections,
		Checks:     []server.Check{{Name: "syncloop", Func: a.pleg.Healthy}},
		Registerer: a.deps.Metrics, Clock: a.clock(), Log: a.log,
	})
	return err
}

// journalctl returns the command that reads the machine's journal; "": there is none.
func (a *Agent) journalctl() string {
	if q := a.cfg.Kubelet.EnableSystemLogQuery; !a.deps.Machine.real || q == nil || !*q {
		return ""
	}
	path, err := exec.LookPath("journalctl")
	if err != nil {
		return ""
	}
	return path
}

// streams returns the runtime for exec, attach and port-forward, which the HTTPS API and the control socket use.
func (a *Agent) streams() server.Runtime {
	return peoplesRuntime{server.CRI{Client: a.deps.Runtime, Timeout: a.cfg.Kubelet.RuntimeRequestTimeout.Duration}, a.work}
}

// access returns the authentication and authorization of the HTTPS API. A client authenticates with a certificate or a token. The API
// server decides whether a token is valid, and whether a client may do what it requests.
func (a *Agent) access() (server.Authenticator, server.Authorizer, error) {
	k := &a.cfg.Kubelet
	standalone := a.deps.Client == nil
	if standalone && *k.Authentication.Anonymous.Enabled {
		return nil, nil, errors.New("authentication.anonymous.enabled: without an API server every authenticated client may do everything, so anonymous clients are not allowed: set it to false")
	}
	authn := server.AuthnConfig{Anonymous: *k.Authentication.Anonymous.Enabled, TokenTTL: k.Authentication.Webhook.CacheTTL.Duration}
	if f := k.Authentication.X509.ClientCAFile; f != "" {
		cas, err := server.LoadClientCAs(f, a.log)
		if err != nil {
			return nil, nil, err
		}
		authn.ClientCAs = cas
	}
	var authz server.Authorizer = denyAll{} // replaced below if the API server can review requests, or all are allowed
	if k.Authorization.Mode == "AlwaysAllow" {
		authz = server.AlwaysAllow{}
	}
	if ask := a.clients.reviews; ask != nil {
		authn.Reviews = server.NewReviews(a.cfg.Server.WaitingReviews) // TokenReviews and SubjectAccessReviews share one limit
		if *k.Authentication.Webhook.Enabled {
			authn.Tokens = counted[*authnv1.TokenReview]{ask.TokenReviews(), a.calls.Authenticated}
		}
		if k.Authorization.Mode != "AlwaysAllow" {
			authz = server.NewAuthorizer(server.AuthzConfig{
				Access: counted[*authzv1.SubjectAccessReview]{ask.SubjectAccessReviews(), a.calls.Authorized}, Reviews: authn.Reviews,
				AllowedTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration, DeniedTTL: k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
			})
		}
	}
	return server.NewAuthenticator(authn), authz, nil
}

// counted sends reviews to the API server and counts them by the status code of the answer.
type counted[T any] struct {
	to interface {
		Create(ctx context.Context, review T, opts metav1.CreateOptions) (T, error)
	}
	count func(status int, took time.Duration)
}

// Create sends a review and counts it.
func (c counted[T]) Create(ctx context.Context, review T, opts metav1.CreateOptions) (T, error) {
	began := time.Now()
	got, err := c.to.Create(ctx, review, opts)
	status := http.StatusCreated
	if err != nil {
		var answered apierrors.APIStatus
		status = 0
		if errors.As(err, &answered) {
			status = int(answered.Status().Code)
		}
	}
	c.count(status, time.Since(began))
	return got, err
}

// denyAll denies every request.
type denyAll struct{}

// Authorize denies.
func (denyAll) Authorize(context.Context, server.Attributes) (bool, error) { return false, nil }

// serverPart returns the part that serves the node's HTTP and HTTPS ports. If the only port is one that needs no goroutine, the part has none.
func (a *Agent) serverPart() part {
	follower, ok := a.deps.API.(server.Follower)
	if !ok || a.deps.Health != nil || a.deps.ReadOnly != nil {
		return part{name: "server", run: func(ctx context.Context) error {
			return a.server.Run(ctx, server.Listeners{API: a.deps.API, TLS: a.deps.TLS, Health: a.deps.Health, ReadOnly: a.deps.ReadOnly})
		}}
	}
	return part{name: "server", begin: func(ctx context.Context) (join func()) {
		end := a.server.Begin(ctx, follower, a.deps.TLS)
		return func() { _ = end() } // the log has the error of a connection that could not be served
	}}
}
