package podctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/edge/push"
)

func graceArg(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// settled waits until done returns true for each pod, and then prints the pod's name.
func settled(ctx context.Context, c *client, out io.Writer, pods []*v1.Pod, done func(p *v1.Pod, err error) (bool, error)) error {
	for _, p := range pods {
		for {
			now, err := c.pod(ctx, p.Namespace, p.Name)
			ok, err := done(now, err)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, plain.Text(p.Name))
	}
	return nil
}

// gone is the condition for which rm waits: nothing of the pod is left.
func gone(_ *v1.Pod, err error) (bool, error) {
	if isNotFound(err) {
		return true, nil
	}
	return false, err
}

// ended is the condition for which stop waits: the node ends the pod and none of its containers runs, or nothing of the pod
// is left.
func ended(p *v1.Pod, err error) (bool, error) {
	if err != nil {
		return gone(p, err)
	}
	return !runsAny(p) && p.DeletionTimestamp != nil, nil
}

func (r *Target) several(ctx context.Context, args []string) (*client, []*v1.Pod, error) {
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return nil, nil, err
	}
	all, err := c.pods(ctx)
	if err != nil {
		return nil, nil, err
	}
	var pods []*v1.Pod
	var errs []error
	for _, arg := range args {
		p, err := findPod(all, r.Namespace, arg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pods = append(pods, p)
	}
	return c, pods, errors.Join(errs...) // an error for one name is an error for all: no pod is stopped
}

// Stop ends pods, but does not remove them, so that their logs can still be read.
type Stop struct {
	Target
	Grace  int64 // seconds until containers are killed; negative: the pod's own grace period
	NoWait bool
}

// Run ends the named pods.
func (r *Stop) Run(ctx context.Context, s Streams, names []string) error {
	c, pods, err := r.several(ctx, names)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if err := c.end(ctx, p, graceArg(r.Grace), false); err != nil {
			return err
		}
	}
	if r.NoWait {
		return nil
	}
	return settled(ctx, c, s.Out, pods, ended)
}

// Rm removes pods completely, and objects that were pushed.
type Rm struct {
	Target
	Grace  int64 // seconds until containers are killed; negative: the pod's own grace period
	NoWait bool
	Force  bool // remove running pods too
	All    bool // remove all pushed pods
}

// Run removes the named pods and objects.
func (r *Rm) Run(ctx context.Context, s Streams, names []string) error {
	if r.All == (len(names) > 0) {
		return errors.New("name the pods to remove, or use --all")
	}
	names, objects := splitObjects(names)
	if r.All {
		var err error
		if names, err = r.pushed(ctx); err != nil {
			return err
		}
	}
	c, pods, err := r.several(ctx, names)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if runsAny(p) && !r.Force {
			return fmt.Errorf("pod %s runs: stop it first (wherry stop %s), or remove it with --force", p.Name, p.Name)
		}
	}
	for _, o := range objects {
		if err := removeObject(ctx, c, r.Namespace, o); err != nil {
			return err
		}
		fmt.Fprintln(s.Out, o)
	}
	for _, p := range pods {
		if err := c.end(ctx, p, graceArg(r.Grace), true); err != nil {
			return err
		}
	}
	if r.NoWait {
		return nil
	}
	return settled(ctx, c, s.Out, pods, gone)
}

// pushed returns the names of all pushed pods.
func (r *Rm) pushed(ctx context.Context) (names []string, err error) {
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return nil, err
	}
	pods, err := c.pods(ctx)
	for i := range pods {
		if pods[i].Annotations["kubernetes.io/config.source"] == "push" && (r.Namespace == "" || r.Namespace == pods[i].Namespace) {
			names = append(names, pods[i].Namespace+"/"+pods[i].Name)
		}
	}
	return names, err
}

// splitObjects separates the names of ConfigMaps and Secrets from the names of pods.
func splitObjects(args []string) (pods, objects []string) {
	for _, a := range args {
		kind, _, ok := strings.Cut(a, "/")
		if ok && (kind == "configmap" || kind == "secret") {
			objects = append(objects, a)
			continue
		}
		pods = append(pods, a)
	}
	return pods, objects
}

// removeObject removes configmap/NAME or configmap/NAMESPACE/NAME.
func removeObject(ctx context.Context, c *client, namespace, arg string) error {
	kind, name, _ := strings.Cut(arg, "/")
	if ns, n, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, n
	}
	if namespace == "" {
		namespace = v1.NamespaceDefault
	}
	return c.ask(ctx, http.MethodDelete, "/"+kind+"s/"+namespace+"/"+name, nil, nil, &push.Answer{})
}
