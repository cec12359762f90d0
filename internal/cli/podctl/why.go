package podctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/core/why"
)

// Why prints why a pod of a cluster is in its state. It asks the pod's node through the API server, with the user's own rights.
type Why struct {
	Config    *rest.Config
	Namespace string
	All       bool   // also print the record of decisions
	Format    string // json or yaml; "": text
}

// mostAnswer bounds the bytes of a node's answer.
const mostAnswer = 4 << 20

// Run prints why the pod is in its state.
func (r *Why) Run(ctx context.Context, s Streams, name string) error {
	c, err := kubeclient.New(r.Config)
	if err != nil {
		return err
	}
	namespace := r.Namespace
	if ns, n, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, n
	}
	p, err := c.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return unknownPod(ctx, c, namespace, name)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not read pod %s/%s: %w\nWhoever administers the cluster can allow it:\n"+
			"  kubectl create rolebinding read-pods -n %s --clusterrole=view --user=YOU", namespace, name, err, namespace)
	case err != nil:
		return fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	e := explanation{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
	if p.Spec.NodeName == "" {
		e.Answer = unscheduled(p)
	} else if e, err = r.ask(ctx, p); err != nil {
		return err
	}
	print := Explain{All: r.All && p.Spec.NodeName != "", Format: r.Format}
	return print.print(s.Out, e)
}

// unknownPod is the error for a pod that the cluster does not have: it names pods of the namespace with similar names, if the user may list
// them.
func unknownPod(ctx context.Context, c *kubeclient.Client, namespace, name string) error {
	text := fmt.Sprintf("there is no pod %s/%s", namespace, name)
	list, err := c.Pods(namespace).List(ctx, metav1.ListOptions{Limit: mostListed})
	if err != nil {
		return errors.New(text)
	}
	var names []string
	for i := range list.Items {
		names = append(names, namespace+"/"+list.Items[i].Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: namespace %q has no pods", text, namespace)
	}
	return fmt.Errorf("%s; the namespace has %s", text, shortList(why.Nearest(names, name)))
}

// mostListed bounds the pods among which unknownPod looks for similar names.
const mostListed = 500

// unscheduled returns the explanation for a pod that has no node yet.
func unscheduled(p *v1.Pod) why.Answer {
	a := why.Answer{Cause: "Unscheduled", Level: why.Trouble, Line: "no node has been chosen for the pod", Since: p.CreationTimestamp.Time}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Message != "" {
			a.Facts = append(a.Facts, "scheduler: "+c.Message)
		}
	}
	a.Next = "the scheduler tries again when the cluster changes"
	return a
}

// ask asks the pod's node, through the API server, why the pod is in its state.
func (r *Why) ask(ctx context.Context, p *v1.Pod) (e explanation, err error) {
	h, err := rest.HTTPClientFor(r.Config)
	if err != nil {
		return e, fmt.Errorf("make API client: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(r.Config)
	if err != nil {
		return e, fmt.Errorf("make API client: %w", err)
	}
	u := base.JoinPath("api/v1/nodes", url.PathEscape(p.Spec.NodeName), "proxy/explain", p.Namespace, p.Name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return e, err
	}
	resp, err := h.Do(req)
	if err != nil {
		return e, fmt.Errorf("ask node %s: %w", p.Spec.NodeName, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return e, fmt.Errorf("ask node %s: %w", p.Spec.NodeName, err)
	}
	if resp.StatusCode != http.StatusOK {
		return e, refused(p, resp.StatusCode, body)
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("read the answer of node %s: %w", p.Spec.NodeName, err)
	}
	return e, nil
}

// saidBy returns the text of an unsuccessful answer, which may be a Status of the API server.
func saidBy(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(body[:min(len(body), 1<<10)]))
}

// mayNotAsk says that a user may not ask a node through the API server, which has answered with this text, and what allows it.
func mayNotAsk(node, text string) string {
	return fmt.Sprintf("you may not ask node %s: %s\nWhoever administers the cluster can allow it:\n"+
		"  kubectl create clusterrole ask-nodes --verb=get --resource=nodes/proxy\n"+
		"  kubectl create clusterrolebinding ask-nodes --clusterrole=ask-nodes --user=YOU", node, text)
}

// refused says what an unsuccessful answer of a node means, and what to do.
func refused(p *v1.Pod, code int, body []byte) error {
	text, node := saidBy(body), p.Spec.NodeName
	switch {
	case code == http.StatusForbidden:
		return errors.New(mayNotAsk(node, text))
	case code == http.StatusNotFound && strings.Contains(text, "page not found"):
		return fmt.Errorf("node %s does not run Wherry, so it cannot say why: see kubectl describe pod -n %s %s", node, p.Namespace, p.Name)
	case code == http.StatusServiceUnavailable, code == http.StatusBadGateway, code == http.StatusGatewayTimeout:
		return fmt.Errorf("node %s cannot be reached: %s", node, text)
	case code == http.StatusNotFound:
		return errors.New("node " + node + ": " + text)
	}
	return fmt.Errorf("ask node %s: status %d: %s", node, code, text)
}
