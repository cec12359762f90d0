package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	tokenapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

const (
	// tokenLife is how long the bootstrap token is valid after its last renewal, so that the token of a fleet that was killed expires.
	tokenLife    = time.Hour
	tokenRenewal = 20 * time.Minute
	tokenRetry   = time.Minute
	// tokenPatience is how long the API server may take until it accepts a new token.
	tokenPatience = 20 * time.Second
	tokenPoll     = 100 * time.Millisecond

	// bootstrapGroup is the beginning of the group of a fleet's bootstrap token; the fleet's name follows.
	bootstrapGroup = "system:bootstrappers:wherry-fleet:"

	bindingsPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	requestRole  = "system:node-bootstrapper"                                         // may create certificate requests
	approvedRole = "system:certificates.k8s.io:certificatesigningrequests:nodeclient" // the controller manager approves its requests
)

// accessKind is a kind of objects of which access creates some. All of them have the label of their fleet.
type accessKind struct {
	name, path string
	field      string // a field selector, in addition to the label; "": none
}

// accessKinds are the kinds, in the order in which their objects are removed.
var accessKinds = []accessKind{
	{"bootstrap tokens", "/api/v1/namespaces/" + metav1.NamespaceSystem + "/secrets", "type=" + string(v1.SecretTypeBootstrapToken)},
	{"cluster role bindings", bindingsPath, ""},
	{"certificate requests", "/apis/certificates.k8s.io/v1/certificatesigningrequests", ""},
}

// removeAll removes the objects of this kind that belong to fleets.
func (k *accessKind) removeAll(ctx context.Context, api *kubeclient.Client, selector string) error {
	err := api.DeleteAll(ctx, k.path, metav1.ListOptions{LabelSelector: selector, FieldSelector: k.field})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the %s of the fleet: %w", k.name, err)
	}
	return nil
}

// access lets the nodes of a fleet get certificates from a cluster. It keeps a bootstrap token in the cluster, and binds to the token's group
// the roles that let the nodes create certificate requests and let the cluster approve them. open comes before all other methods.
type access struct {
	api   *kubeclient.Client // sends requests as the user of Config.Client
	fleet string
	host  string
	log   *slog.Logger
	// server configures the access to the API server, without credentials. It has no files.
	server *rest.Config
	count  *requests

	token string
	// boot sends requests with the token.
	boot http.RoundTripper
	// byOwn: the cluster approves what nodes request with their own certificates, so renewals need no token.
	byOwn bool
	// created: open has begun to create objects, so close removes them.
	created bool
}

// newAccess returns the access of a fleet's nodes. It creates nothing in the cluster.
func newAccess(f *Fleet) (*access, error) {
	if f.cfg.Client.Transport != nil || f.cfg.Client.WrapTransport != nil {
		return nil, wrongConfig("Client", "it has a transport of its own, so nodes cannot present certificates: use another identity")
	}
	server := rest.AnonymousClientConfig(f.cfg.Client)
	server.RateLimiter = nil
	if err := rest.LoadTLSFiles(server); err != nil {
		return nil, wrongConfig("Client", "%w", err)
	}
	server.CAFile = "" // its content is in CAData now
	if !strings.HasPrefix(f.host, "https://") {
		return nil, wrongConfig("Client", "the API server %s has no TLS, so nodes cannot present certificates: use another identity", f.host)
	}
	return &access{api: f.api, fleet: f.cfg.Name, host: f.host, log: f.cfg.Log, server: server, count: f.count}, nil
}

// open creates the token and the bindings, and waits until the API server accepts the token.
func (a *access) open(ctx context.Context) error {
	err := a.removeAll(ctx) // what a fleet of this name left that was killed
	if err == nil {
		a.token = newToken()
		own := rest.CopyConfig(a.server)
		own.BearerToken = a.token
		if a.boot, err = rest.TransportFor(own); err != nil {
			return fmt.Errorf("let the nodes get certificates: %w", err)
		}
		a.created = true
		err = a.create(ctx)
	}
	if err == nil {
		err = a.accepted(ctx)
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("let the nodes get certificates: %w: this user needs the rights of cluster-admin, to create a bootstrap token and to bind the roles %s and %s; "+
			"or let the nodes use this user's rights (--identity impersonate or shared)", err, requestRole, approvedRole)
	}
	if err != nil {
		return fmt.Errorf("let the nodes get certificates: %w", err)
	}
	a.byOwn = a.approvesOwn(ctx)
	return nil
}

// close removes what open has created.
func (a *access) close(ctx context.Context) error {
	if !a.created {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	return a.removeAll(ctx)
}

func (a *access) removeAll(ctx context.Context) error {
	var errs []error
	for _, k := range accessKinds {
		errs = append(errs, k.removeAll(ctx, a.api, selectorOf(a.fleet)))
	}
	return errors.Join(errs...)
}

// run keeps the token valid until ctx ends.
func (a *access) run(ctx context.Context) {
	for wait := tokenRenewal; pause(ctx, wait); {
		wait = tokenRenewal
		if err := a.extend(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the bootstrap token of the fleet's nodes is not renewed; trying again", "err", err)
			wait = tokenRetry
		}
	}
}

// extend makes the token valid for tokenLife from now on. If somebody has deleted it, extend creates it again.
func (a *access) extend(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"data": map[string][]byte{tokenapi.BootstrapTokenExpirationKey: []byte(tokenEnd())}})
	if err != nil {
		return err
	}
	_, err = a.api.Secrets(metav1.NamespaceSystem).Patch(ctx, a.secretName(), types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		err = a.createToken(ctx)
	}
	return err
}

// tokenEnd returns the time at which a token expires that is renewed now.
func tokenEnd() string { return time.Now().Add(tokenLife).UTC().Format(time.RFC3339) }

// newToken returns a random bootstrap token: six characters, a dot, and sixteen characters.
func newToken() string {
	text := strings.ToLower(rand.Text()) // has a-z and 2-7
	return text[:6] + "." + text[6:22]
}

func (a *access) secretName() string {
	id, _, _ := strings.Cut(a.token, ".")
	return tokenapi.BootstrapTokenSecretPrefix + id
}

func (a *access) labels() map[string]string { return map[string]string{LabelFleet: a.fleet} }

func (a *access) createToken(ctx context.Context) error {
	id, secret, _ := strings.Cut(a.token, ".")
	_, err := a.api.Secrets(metav1.NamespaceSystem).Create(ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: a.secretName(), Labels: a.labels()},
		Type:       v1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			tokenapi.BootstrapTokenIDKey: []byte(id), tokenapi.BootstrapTokenSecretKey: []byte(secret),
			tokenapi.BootstrapTokenExpirationKey:       []byte(tokenEnd()),
			tokenapi.BootstrapTokenUsageAuthentication: []byte("true"),
			tokenapi.BootstrapTokenExtraGroupsKey:      []byte(bootstrapGroup + a.fleet),
			tokenapi.BootstrapTokenDescriptionKey:      []byte("for the simulated nodes of wherry fleet " + a.fleet),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a bootstrap token: %w", err)
	}
	return nil
}

// binding is the JSON of a ClusterRoleBinding.
type binding struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	RoleRef    roleRef           `json:"roleRef"`
	Subjects   []roleRef         `json:"subjects"`
}

// roleRef names a role or a subject.
type roleRef struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// create creates the token and the bindings.
func (a *access) create(ctx context.Context) error {
	if err := a.createToken(ctx); err != nil {
		return err
	}
	const group = "rbac.authorization.k8s.io"
	for _, role := range []string{requestRole, approvedRole} {
		name := "wherry-fleet:" + a.fleet + ":" + role
		body, err := json.Marshal(binding{
			APIVersion: group + "/v1", Kind: "ClusterRoleBinding", Metadata: metav1.ObjectMeta{Name: name, Labels: a.labels()},
			RoleRef: roleRef{group, "ClusterRole", role}, Subjects: []roleRef{{group, "Group", bootstrapGroup + a.fleet}},
		})
		if err == nil {
			err = a.api.CreateJSON(ctx, bindingsPath, body)
		}
		if err != nil {
			return fmt.Errorf("create the cluster role binding %s: %w", name, err)
		}
	}
	return nil
}

// accepted waits until the API server accepts the token and its rights, which it does only when it has noticed the new objects.
func (a *access) accepted(ctx context.Context) error {
	c, err := newClient(&rest.Config{Host: a.host, Transport: a.boot}, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	for last := error(nil); ; {
		_, err := c.CertificateSigningRequests().List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: selectorOf(a.fleet)})
		switch {
		case err == nil:
			return nil
		case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
			last = err
		case last == nil || ctx.Err() == nil:
			return fmt.Errorf("use the new bootstrap token: %w", err)
		}
		if !pause(ctx, tokenPoll) {
			// The error is not wrapped, because it does not mean that the user of Config.Client lacks a right.
			return fmt.Errorf("the API server does not accept a new bootstrap token after %s (%s): it needs --enable-bootstrap-token-auth; or use --identity impersonate", tokenPatience, last.Error())
		}
	}
}

// approvesOwn reports whether the cluster approves the requests of nodes for their next certificates. Otherwise the nodes use the token for
// these requests, too, because to give this right to the group of all nodes would change what real nodes of the cluster may do.
func (a *access) approvesOwn(ctx context.Context) bool {
	got, err := a.api.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:node:" + a.fleet, Groups: []string{"system:nodes", "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "selfnodeclient"},
	}}, metav1.CreateOptions{})
	return err == nil && got.Status.Allowed
}

// identity returns the identity of a node, which has no certificate yet. All its requests have the faults of the node's link.
func (a *access) identity(n *node) (*identity.Memory, error) {
	csrs := func(t http.RoundTripper) func() (identity.CSRs, error) {
		return func() (identity.CSRs, error) {
			c, err := newClient(&rest.Config{Host: a.host, Transport: t}, nil)
			if err != nil {
				return nil, err
			}
			return c.CertificateSigningRequests(), nil
		}
	}
	cfg := identity.MemoryConfig{
		Server: a.server, NodeName: n.name, Labels: a.labels(), Log: n.fleet.cfg.NodeLog, Bootstrap: csrs(n.link.over(a.count.over(a.boot))),
		Now: n.clock.now,
	}
	if a.byOwn {
		cfg.Own = csrs(n.link)
	}
	return identity.NewMemory(cfg)
}
