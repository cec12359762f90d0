package handtools

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	tokenapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/wherry-node/wherry/internal/cli/plain"
)

// DefaultTokenGroup is the group that kubeadm binds to the ClusterRole system:node-bootstrapper.
const DefaultTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// Secrets accesses the Secrets of the namespace kube-system.
type Secrets interface {
	Create(ctx context.Context, s *v1.Secret, opts metav1.CreateOptions) (*v1.Secret, error)
	List(ctx context.Context, opts metav1.ListOptions) (*v1.SecretList, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Token is a bootstrap token as the user describes it.
type Token struct {
	// Value is ID.SECRET; "": random.
	Value string
	// TTL is how long the token is valid; 0: for ever.
	TTL         time.Duration
	Groups      []string
	Usages      []string // what the token is for: signing, authentication
	Description string
}

// CreateToken stores a token as a Secret of kube-system, where the API server and the token cleaner look for it
// (https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/), and returns its value.
func CreateToken(ctx context.Context, secrets Secrets, t Token) (string, error) {
	if t.Value == "" {
		t.Value = newToken()
	}
	secret, err := t.secret(time.Now())
	if err != nil {
		return "", err
	}
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("a token with the ID %s exists: delete it (wherry token delete %[1]s) or choose another", idOf(t.Value))
	}
	if err != nil {
		return "", fmt.Errorf("create secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return t.Value, nil
}

func (t Token) secret(now time.Time) (*v1.Secret, error) {
	if !validToken(t.Value) {
		return nil, errors.New("the token must have 6 and 16 lower-case letters or digits, separated by a dot, as in abcdef.0123456789abcdef")
	}
	if t.TTL < 0 {
		return nil, fmt.Errorf("--ttl %s: must not be negative: use 24h, or 0 for a token that does not expire", t.TTL)
	}
	for _, g := range t.Groups {
		if !validGroup(g) {
			return nil, fmt.Errorf("--groups %s: must begin with system:bootstrappers: and go on with small letters, digits, colons, dashes", g)
		}
	}
	if len(t.Usages) == 0 || slices.ContainsFunc(t.Usages, func(u string) bool { return u != "signing" && u != "authentication" }) {
		return nil, fmt.Errorf("--usages %s: use signing, authentication or both", strings.Join(t.Usages, ","))
	}
	id, key, _ := strings.Cut(t.Value, ".")
	data := map[string]string{tokenapi.BootstrapTokenIDKey: id, tokenapi.BootstrapTokenSecretKey: key}
	for _, u := range t.Usages {
		data[tokenapi.BootstrapTokenUsagePrefix+u] = "true"
	}
	if len(t.Groups) > 0 {
		data[tokenapi.BootstrapTokenExtraGroupsKey] = strings.Join(t.Groups, ",")
	}
	if t.Description != "" {
		data[tokenapi.BootstrapTokenDescriptionKey] = t.Description
	}
	if t.TTL > 0 {
		data[tokenapi.BootstrapTokenExpirationKey] = now.Add(t.TTL).UTC().Format(time.RFC3339)
	}
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenapi.BootstrapTokenSecretPrefix + id},
		Type:       v1.SecretTypeBootstrapToken,
		StringData: data,
	}, nil
}

func idOf(token string) string {
	id, _, _ := strings.Cut(token, ".")
	return id
}

// ListTokens prints the tokens of a cluster with their remaining lifetime.
func ListTokens(ctx context.Context, secrets Secrets, out io.Writer) error {
	list, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(v1.SecretTypeBootstrapToken)})
	if err != nil {
		return fmt.Errorf("list bootstrap tokens: %w", err)
	}
	now := time.Now()
	rows := []string{}
	for i := range list.Items {
		if s := &list.Items[i]; s.Type == v1.SecretTypeBootstrapToken {
			rows = append(rows, row(s, now))
		}
	}
	slices.Sort(rows)
	if len(rows) == 0 {
		fmt.Fprintln(out, "There are no bootstrap tokens. Make one: wherry token create")
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tGROUPS")
	for _, r := range rows {
		fmt.Fprintln(w, r)
	}
	return w.Flush()
}

func row(s *v1.Secret, now time.Time) string {
	value := func(key string) string {
		if v := string(s.Data[key]); v != "" {
			return v
		}
		return s.StringData[key] // the API server turns StringData into Data; an object that it has not stored still has StringData
	}
	or := func(v, empty string) string {
		if v == "" {
			return empty
		}
		return v
	}
	ttl, expires := "<forever>", "<never>"
	if at := value(tokenapi.BootstrapTokenExpirationKey); at != "" {
		expires = at
		if t, err := time.Parse(time.RFC3339, at); err != nil {
			ttl = "<invalid>"
		} else if left := t.Sub(now); left <= 0 {
			ttl = "<expired>"
		} else {
			ttl = duration.ShortHumanDuration(left)
		}
	}
	var usages []string
	for _, u := range []string{"authentication", "signing"} {
		if value(tokenapi.BootstrapTokenUsagePrefix+u) == "true" {
			usages = append(usages, u)
		}
	}
	token := value(tokenapi.BootstrapTokenIDKey) + "." + value(tokenapi.BootstrapTokenSecretKey)
	columns := []string{token, ttl, expires, or(strings.Join(usages, ","), "<none>"),
		or(value(tokenapi.BootstrapTokenDescriptionKey), "<none>"), or(value(tokenapi.BootstrapTokenExtraGroupsKey), "<none>")}
	for i, c := range columns {
		columns[i] = plain.Text(c)
	}
	return strings.Join(columns, "\t")
}

// DeleteToken removes a token by its value or its ID.
func DeleteToken(ctx context.Context, secrets Secrets, token string) error {
	id := idOf(token)
	if !smallText(id, 6) {
		return fmt.Errorf("%q is neither a token nor the ID of one (6 small letters or digits)", token)
	}
	err := secrets.Delete(ctx, tokenapi.BootstrapTokenSecretPrefix+id, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no token with the ID %s: wherry token list", id)
	}
	if err != nil {
		return fmt.Errorf("delete token %s: %w", id, err)
	}
	return nil
}

// "Bootstrap Tokens take the form of abcdef.0123456789abcdef. More formally, they must match the regular expression
// [a-z0-9]{6}\.[a-z0-9]{16}." The code checks this without a regular expression: k8s.io/cluster-bootstrap compiles its
// expressions at the start of every process, also of the agent, and they take about 190 KiB.

func newToken() string {
	text := strings.ToLower(rand.Text()) // contains a-z and 2-7
	return text[:6] + "." + text[6:22]
}

func validToken(token string) bool {
	id, secret, _ := strings.Cut(token, ".")
	return smallText(id, 6) && smallText(secret, 16)
}

// smallText reports whether s consists of n lower-case letters and digits.
func smallText(s string, n int) bool {
	return len(s) == n && !strings.ContainsFunc(s, func(r rune) bool { return !small(r) })
}

func small(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

// validGroup checks a group: "auth-extra-groups ... each must start with system:bootstrappers:", followed by a name.
func validGroup(group string) bool {
	name, ok := strings.CutPrefix(group, "system:bootstrappers:")
	if !ok || name == "" || len(name) > 256 || !small(rune(name[len(name)-1])) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return !small(r) && r != ':' && r != '-' })
}
