package podctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	spdyclient "k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/edge/push"
)

// client is a client of an agent's control socket.
type client struct {
	socket    string
	http      *http.Client
	transport *http.Transport
}

// openClient finds an agent: on the given socket, or on one of the default ones.
func openClient(ctx context.Context, asked string) (*client, error) {
	socket, err := findSocket(ctx, asked)
	if err != nil {
		return nil, err
	}
	return newClient(socket), nil
}

func newClient(socket string) *client {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	return &client{socket: socket, http: &http.Client{Transport: t}, transport: t}
}

// answerError is the error for a response of the agent with an HTTP status of 300 or more. done has what the agent has stored although it
// refuses the rest of a push.
type answerError struct {
	status int
	text   string
	done   []push.Pushed
}

func (e *answerError) Error() string { return e.text }

func isNotFound(err error) bool {
	var a *answerError
	return errors.As(err, &a) && a.status == http.StatusNotFound
}

// do sends a request and returns the body of the response. If the HTTP status is 300 or more, it returns an answerError.
func (c *client) do(ctx context.Context, method, path string, query url.Values, body []byte) (io.ReadCloser, error) {
	u := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, noAgent{c.socket}
		}
		return nil, fmt.Errorf("send a request to the agent at %s: %w", c.socket, errors.Unwrap(err))
	}
	if resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, &answerError{status: resp.StatusCode, text: "the agent at " + c.socket + " refuses this process: only root and the agent's user may use it, and not from a container (its log says why)"}
	}
	return nil, refusal(resp.StatusCode, text)
}

// refusal returns the error from the body of an unsuccessful response.
func refusal(status int, body []byte) *answerError {
	var a push.Answer
	if json.Unmarshal(body, &a) == nil && len(a.Errors) > 0 {
		var lines []string
		for _, e := range a.Errors {
			lines = append(lines, e.Message)
		}
		return &answerError{status, strings.Join(lines, "\n"), a.Items}
	}
	return &answerError{status: status, text: strings.TrimSpace(string(body))}
}

func (c *client) ask(ctx context.Context, method, path string, query url.Values, body []byte, into any) error {
	r, err := c.do(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer r.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, r)
	} else {
		err = json.NewDecoder(r).Decode(into)
	}
	if err != nil {
		return fmt.Errorf("read the agent's answer to %s %s: %w", method, path, err)
	}
	return nil
}

func (c *client) pods(ctx context.Context) ([]v1.Pod, error) {
	var l v1.PodList
	err := c.askList(ctx, &l) // not in the return statement: Go does not define whether l.Items is read before the call
	return l.Items, err
}

func (c *client) askList(ctx context.Context, l *v1.PodList) error {
	return c.ask(ctx, http.MethodGet, "/pods", nil, nil, l)
}

// pod returns one pod. When nothing of the pod is left, it returns an error for which isNotFound is true.
func (c *client) pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	var p v1.Pod
	return &p, c.ask(ctx, http.MethodGet, "/pods/"+namespace+"/"+name, nil, nil, &p)
}

// post pushes a manifest. Together with an error, it returns what the agent has stored.
func (c *client) post(ctx context.Context, name string, manifest []byte) (push.Answer, error) {
	var a push.Answer
	err := c.ask(ctx, http.MethodPost, "/pods", url.Values{"name": {name}}, manifest, &a)
	if refused := (*answerError)(nil); errors.As(err, &refused) {
		a.Items = refused.done
	}
	return a, err
}

// end stops a pod; if remove is true, it removes the pod. grace is the grace period in seconds; nil: the pod's own.
func (c *client) end(ctx context.Context, p *v1.Pod, grace *int64, remove bool) error {
	query := url.Values{}
	if grace != nil {
		query.Set("gracePeriodSeconds", strconv.FormatInt(*grace, 10))
	}
	path := "/pods/" + p.Namespace + "/" + p.Name
	if remove {
		return c.ask(ctx, http.MethodDelete, path, query, nil, nil)
	}
	return c.ask(ctx, http.MethodPost, path+"/stop", query, nil, nil)
}

// logs returns a container's log. The caller must close it.
func (c *client) logs(ctx context.Context, p *v1.Pod, container string, query url.Values) (io.ReadCloser, error) {
	return c.do(ctx, http.MethodGet, "/containerLogs/"+p.Namespace+"/"+p.Name+"/"+container, query, nil)
}

// events returns the events after the position after, and the position for the next call. If there is no event yet, it waits
// for one, at most for the time wait.
func (c *client) events(ctx context.Context, after string, wait time.Duration) ([]v1.Event, string, error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
		query.Set("wait", strconv.Itoa(int(wait.Seconds())))
	}
	var l v1.EventList
	err := c.ask(ctx, http.MethodGet, "/events", query, nil, &l)
	if isNotFound(err) {
		err = errors.New("this node's events are in its API server: kubectl get events")
	}
	return l.Items, l.ResourceVersion, err
}

// explanation is the response of the agent to a request for /explain: why a pod is in its state.
type explanation struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	UID       string            `json:"uid"`
	Answer    why.Answer        `json:"answer"`
	Dropped   int               `json:"dropped,omitempty"`
	Records   []timeline.Record `json:"records,omitempty"`
	// Inspection describes a problem with the inspections of the pod (the reading of its state from the runtime); "": there is none.
	Inspection string `json:"inspection,omitempty"`
	// LastKnown is when the API server last answered, if the node has started without it. Expired are the credentials of the pod that
	// have expired since.
	LastKnown *time.Time `json:"lastKnown,omitempty"`
	Expired   []string   `json:"expired,omitempty"`
}

// lastKnown says whether the agent has started without its API server, so that it knows the API's pods only from its record on disk. Since
// is when the API server last answered.
type lastKnown struct {
	Since   *time.Time `json:"since,omitempty"`
	Problem string     `json:"problem,omitempty"`
}

// lastKnown asks the agent whether it knows the API's pods only from its record on disk. An older agent keeps no record; for such an agent
// the result is empty.
func (c *client) lastKnown(ctx context.Context) (lastKnown, error) {
	var l lastKnown
	err := c.ask(ctx, http.MethodGet, "/lastknown", nil, nil, &l)
	if isNotFound(err) {
		err = nil
	}
	return l, err
}

// note returns a line for the user if the agent knows the API's pods only from its record, or if there is a problem with the record;
// otherwise "".
func (l lastKnown) note() string {
	switch {
	case l.Since != nil:
		return fmt.Sprintf("The API server has not answered since this agent started: its pods are as last known at %s.", l.Since.Local().Format(time.RFC3339))
	case l.Problem != "":
		return "Offline start: " + plain.Text(l.Problem)
	}
	return ""
}

// pulls returns the image pulls of the node that have not ended. An older agent does not say; for such an agent the result is empty.
func (c *client) pulls(ctx context.Context) ([]why.Pull, error) {
	var l []why.Pull
	err := c.ask(ctx, http.MethodGet, "/pulls", nil, nil, &l)
	if isNotFound(err) {
		err = nil
	}
	return l, err
}

func (c *client) explain(ctx context.Context, p *v1.Pod) (explanation, error) {
	var e explanation
	err := c.ask(ctx, http.MethodGet, "/explain/"+p.Namespace+"/"+p.Name, nil, nil, &e)
	return e, err
}

// turn returns the present turn of a pod (a decision with its input) in the format of package replay. The caller must close the result.
func (c *client) turn(ctx context.Context, p *v1.Pod) (io.ReadCloser, error) {
	return c.do(ctx, http.MethodGet, "/explain/"+p.Namespace+"/"+p.Name+"/turn", nil, nil)
}

// explainAll returns the explanations of all pods. Those of pods in trouble are first.
func (c *client) explainAll(ctx context.Context) ([]explanation, error) {
	var l []explanation
	err := c.ask(ctx, http.MethodGet, "/explain", nil, nil, &l)
	return l, err
}

// nodeChanges returns what would change the conditions of the node. An older agent does not say; for such an agent the result is empty.
func (c *client) nodeChanges(ctx context.Context) ([]why.Change, error) {
	var answer struct{ Changes []why.Change }
	err := c.ask(ctx, http.MethodGet, "/explain/node", nil, nil, &answer)
	if isNotFound(err) {
		err = nil
	}
	return answer.Changes, err
}

// stream runs a command in a container, or attaches to it.
func (c *client) stream(ctx context.Context, path string, query url.Values, o remotecommand.StreamOptions) error {
	set := func(name string, on bool) {
		if on {
			query.Set(name, "1")
		}
	}
	set("input", o.Stdin != nil)
	set("output", o.Stdout != nil)
	set("error", o.Stderr != nil && !o.Tty)
	set("tty", o.Tty)
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: c.transport})
	if err != nil {
		return err
	}
	u := &url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	x, err := remotecommand.NewSPDYExecutorForTransports(rt, spdyclient.NewUpgraderForStreaming(rt), http.MethodPost, u)
	if err != nil {
		return err
	}
	return x.StreamWithContext(ctx, o)
}

// find returns the pod that the user names by arg: NAME, NAMESPACE/NAME or pod/NAME. NAME may have the node's name as a
// suffix or not. Without a namespace, find looks in all namespaces; if several have such a pod, it takes the one in the
// namespace default, or fails.
func (c *client) find(ctx context.Context, namespace, arg string) (*v1.Pod, error) {
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	return findPod(pods, namespace, arg)
}

func findPod(pods []v1.Pod, namespace, arg string) (*v1.Pod, error) {
	name := strings.TrimPrefix(strings.TrimPrefix(arg, "pods/"), "pod/")
	if ns, n, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, n
	}
	var found []*v1.Pod
	for i := range pods {
		p := &pods[i]
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		if p.Name == name || p.Name == name+"-"+p.Spec.NodeName {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		var names []string
		for i := range pods {
			names = append(names, pods[i].Namespace+"/"+pods[i].Name)
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("pod %q is not on this node, which has no pods", arg)
		}
		return nil, fmt.Errorf("pod %q is not on this node; it has %s", arg, shortList(why.Nearest(names, name)))
	case 1:
		return found[0], nil
	}
	for _, p := range found {
		if p.Namespace == v1.NamespaceDefault {
			return p, nil
		}
	}
	var names []string
	for _, p := range found {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return nil, fmt.Errorf("pod %q may be %s: choose a namespace with -n", arg, strings.Join(names, " or "))
}

// shortList returns the first few names of a long list.
func shortList(names []string) string {
	const few = 8
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
